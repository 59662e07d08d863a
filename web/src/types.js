// SPDX-License-Identifier: Apache-2.0
/* Shapes of what the core answers, for the type checker and the reader. All sizes are whole bytes. */

/**
 * @typedef {{severity: 'error' | 'warning' | 'note', code: string, place?: string, message: string, remedy?: string}} Diagnostic
 * @typedef {{name: string, title: string, type: string, default: any, choices?: any[], least?: number, most?: number, unit?: string, group: string,
 *   aliases?: string[], when?: {setting: string, choices: string[]}}} Setting
 * @typedef {{name: string, title: string, note: string, search: string, ids?: string[], taken?: string, words?: [string, string][]}} Choice
 *   one row of a picker; ids: other names of it; taken: what was typed, where it is the nearest; words: what comes with it then
 * @typedef {{settings: Setting[], gpus: Choice[]}} Describe  the answer to describe, made uniform
 * @typedef {Record<string, number>} Factors  bytes by factor name
 * @typedef {{name: string, bytes: number, factors: Factors}} Layer
 * @typedef {{part: string, title: string, bytes: number, factors: Factors, layers: Layer[]}} Part
 * @typedef {{bytes: number, count: number, each: number, factor: string, part: string, module: string, op: string,
 *   line?: string, dtype: string, shape: {n: number, name: string}[],
 *   freed: import('./kept.js').Freed[], rest?: undefined}} Tensor
 * @typedef {{from: number, peak: number, allocated: number, reserved: number, factors: number[],
 *   change?: number, factor?: string, op?: string, module?: string, line?: string}} Column  change ff.: of a single event
 * @typedef {{title: string, factor?: string, part?: string, layer?: string, event?: number, outside?: string}} Details
 *   the cell of the breakdown, the event or the line outside of the allocator that the drawer takes apart
 * @typedef {{events: number, from?: number, to?: number, columns: Column[], marks: Mark[], repetitions?: {from: number, to: number, times: number}[], peak_column: number}} Curve
 * @typedef {{event: number, step: number, phase: string}} Mark  where a phase ends
 * @typedef {{before: number, after_step: number, allocated_peak: number, reserved_peak: number, reserved: number,
 *   seq?: number, padded?: number} & Record<string, number | undefined>} Step  its phases by their names, as step_columns has them
 * @typedef {{steps: number, step: number, seq: number, allocated: number}} StepsAlike  of which the highest is `step`
 * @typedef {{key: string, value?: string, setting?: string, taken?: string, note?: string}} FileKey  what became of a key of a file
 * @typedef {{name: string, title: string, used: FileKey[], ignored: FileKey[], unsupported: FileKey[], unknown: FileKey[], overruled: FileKey[]}} FileCard
 * @typedef {{
 *   ok: true, tidemark: string, brief?: true, smallest_device_bytes?: number, link: string, files?: FileCard[],
 *   settings: {name: string, value: string, origin: string}[],
 *   model: {name: string, title: string, architecture: string, source: string, parameters: {total: number, trainable: number, rank?: number,
 *     parts: {name: string, title: string, total: number, trainable: number}[]}},
 *   versions?: {name: string, version: string, asked?: string, pinned?: string, by?: string}[],
 *   gpu: {name: string, title: string, bytes: number, capability: number, context_bytes: number} | null,
 *   verdict: {fits: boolean | null, device_bytes: number, gpu_bytes?: number, margin_bytes?: number, retries?: number, sentence: string, left_out?: string[],
 *     loading?: {steps_allocated: number, setting?: string},
 *     oom?: {step: number, phase: string, module: string, op: string, line?: string, event: number, tried: number, free: number}},
 *   serving?: {engine: string, engine_args: Record<string, any>, weights: number, consumed: number, transient: number, graphs: number, available: number,
 *     requested: number, block_bytes: number, blocks: number, blocks_at_least: number, blocks_at_most: number, tokens: number, card: {context: number},
 *     groups: {kind: string, block_size: number}[], requests: {tokens: number, fit: number}[], levers?: {flag: string, cache_bytes: number, tokens: number}[],
 *     buffers?: {name: string, place: 'card' | 'host', low: number, high: number, why?: string}[], command: string,
 *     longest?: {of_one: number, of_max_concurrency?: number},
 *     smallest?: {cards: number, servers: number, tensor_parallel_size: number, requests: number, asked?: number} | null},
 *   batches?: {sentence: string, padded?: StepsAlike, full?: StepsAlike},
 *   peak: {allocated: number, reserved: number, device: number, context: number, step: number, phase: string,
 *     module: string, op: string, event: number, rank?: number, range?: {low: number, high: number, reason: string, remedy?: string}},
 *   ranks?: {rank: number, stage: number, layers?: number, allocated: number, reserved: number}[],
 *   moves?: {from: number, to: number, settings: string[], saves: number, reserved_peak: number}[],
 *   factors: {name: string, bytes: number}[],
 *   outside: {name: string, bytes: number, source?: string}[],
 *   besides?: {name: string, bytes: number, least?: number, most?: number, source: string}[],
 *   breakdown: Part[],
 *   tensors: (Tensor | {rest: number})[],
 *   timeline: Curve,
 *   steps: Step[], step_columns: {name: string, title: string}[],
 *   allocator: {segments: number, retries: number, ooms: number, conf: string},
 *   read_as?: string,
 *   assumptions: {setting: string, value: string, text: string}[],
 *   diagnostics: Diagnostic[]
 * }} Report
 * @typedef {{
 *   ok: true, tidemark: string,
 *   recording: {format: string, source?: string, is_whole: boolean, is_estimate: boolean, devices: number, device: number, requests: number,
 *     frees: number, before: number, allocator: string, reserved_peak?: number, said?: {allocated_peak: number, reserved_peak: number,
 *     allocated: number, reserved: number, retries: number, ooms: number}},
 *   outcome: 'ok' | 'oom', allocated_peak: number, reserved_peak: number, allocated: number, reserved: number, retries: number, ooms: number,
 *   peak_event: number, fragmentation: {bytes: number, allocated_at_reserved_peak: number, cached_in_used_segments: number},
 *   verdict: {fits: boolean | null, gpu_bytes?: number, outside_bytes: number, smallest_device_bytes: number,
 *     oom?: {event: number, requested: number, tried: number, free: number, frames: string[]}},
 *   allocator: string, options: {allocator: string, reserved_peak: number, change: number, fits?: boolean, is_approximate?: true}[],
 *   advice?: {allocator: string, saves: number, sentence: string}, differences?: string[],
 *   live_at_peak: ({bytes: number, count: number, requested: number, frame: string, frames: string[], rest?: undefined} | {rest: number})[],
 *   timeline: {events: number, columns: {from: number, allocated: number, reserved: number, us?: number}[]},
 *   diagnostics: Diagnostic[]
 * }} Recorded  the answer to replay
 */
export {};
