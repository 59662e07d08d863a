// SPDX-License-Identifier: Apache-2.0
/* Dropped, chosen and pasted files, as the core takes them: text. What they are is the core's to say, by their content; of
 * safetensors only the header is read, and of what is no text only the beginning. */

/** @typedef {{name: string, text: string, kind: 'job' | 'model' | 'processor' | 'other'}} OpenFile
 *   kind: which other file it replaces */

import { askAsIs } from './asking.js';

export const MOST_FILES = 20;
const MOST_BYTES = 32 * 1024 * 1024;
const MOST_HEADER = 100 * 1024 * 1024;
const HEAD = 4096;
const GGUF_PIECE = 4 * 1024 * 1024;

/** @param {string} text @returns {OpenFile['kind']} */
function kindOf(text) {
  if (/^\s*\{\s*("ok"\s*:\s*true,\s*)?"tidemark"\s*:/.test(text) && /"settings"\s*:/.test(text)) return 'job';
  if (/^\{"gguf":/.test(text)) return 'model';
  if (/"(image_processor_type|feature_extractor_type|image_mean|crop_size)"\s*:/.test(text)) return 'processor';
  if (/"(model_type|architectures|hidden_size|text_config)"\s*:/.test(text)) return 'model';
  return 'other';
}

/** A description of a model in tidemark's language. @param {string} text */
export const isDescription = (text) => /"architecture"\s*:\s*"/.test(text) && /"(tidemark|modules)"\s*:/.test(text) && !/"settings"\s*:/.test(text);

/** @param {string} name @param {string} text @returns {OpenFile} */
const textFile = (name, text) => ({ name, text: text.charCodeAt(0) === 0xfeff ? text.slice(1) : text, kind: kindOf(text) });

/** By the name's ending, or a first line of `key:`. @param {string} name @param {string} text */
export function isYaml(name, text) {
  const first = text.split('\n', 200).map((line) => line.trim()).find((line) => line && !/^([#%]|---)/.test(line));
  return /\.ya?ml$/.test(name) || /^[\w-]*:(\s|$)/.test(first ?? '');
}

/** Whether a text is a command that starts training or a server, as the core says. @param {string} text */
export const isCommand = async (text) => Boolean((await askAsIs({ call: 'command', text }, 'command'))?.is_command);

/** The core takes JSON: YAML is turned into it. @param {string} name @param {string} text
 * @returns {Promise<{file?: OpenFile, problem?: string}>} */
export async function readText(name, text) {
  if (!isYaml(name, text)) return { file: textFile(name, text) };
  const { toJson } = await import('./yaml.js');
  try {
    return { file: textFile(name, toJson(text.replace(/^\ufeff/, ''))) };
  } catch (error) {
    return { problem: `${name}: ${error instanceof Error ? error.message : error}` };
  }
}

/** The length of a safetensors header; -1: it is another file. @param {Uint8Array} head */
function headerLength(head) {
  if (head.length < 9 || head[8] !== 0x7b) return -1;
  const length = Number(new DataView(head.buffer, head.byteOffset).getBigUint64(0, true));
  return length > 1 && length < 2 ** 40 ? length : -1;
}

/** @param {Blob} blob @returns {Promise<string>} */
const base64Of = (blob) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(String(reader.result).replace(/^[^,]*,/, ''));
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(blob);
});

/** Of a GGUF file the header, as the core writes it; more of the file is read until it has all.
 * @param {File} file @returns {Promise<{file?: OpenFile, problem?: string}>} */
async function fromGguf(file) {
  for (let end = GGUF_PIECE; ; end *= 2) {
    const reply = await askAsIs({ call: 'gguf', base64: await base64Of(file.slice(0, end)) }, 'gguf');
    if (!reply?.ok) return { problem: `${file.name} is a GGUF file that ${reply?.diagnostics[0]?.message ?? 'could not be read'}.` };
    if (!reply.is_cut) return { file: textFile(file.name, reply.text) };
    if (end >= file.size || end > MOST_HEADER) return { problem: `${file.name} is a GGUF file that ends within its header. Is the download complete?` };
  }
}

/** @param {File} file @returns {Promise<{file?: OpenFile, problem?: string}>} */
export async function fromFile(file) {
  const { name, size } = file;
  const head = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  const header = headerLength(head);
  if (header >= 0 && (header > MOST_HEADER || header + 8 > size)) return { problem: `${name} looks like a safetensors file that was cut or damaged: its header would have ${header} bytes.` };
  if (header >= 0) return { file: { ...textFile(name, await file.slice(8, 8 + header).text()), kind: 'other' } };
  if (new TextDecoder().decode(head.subarray(0, 4)) === 'GGUF') return fromGguf(file);
  if (head.includes(0) || new TextDecoder().decode(head.subarray(0, 4)).includes('\ufffd')) return { file: { ...textFile(name, new TextDecoder().decode(head)), kind: 'other' } };
  if (size > MOST_BYTES) return { problem: `${name} is larger than 32 MB. Drop the model’s config.json instead.` };
  return readText(name, await file.text());
}

/* Of a folder, what can say something of a job. */
const OF_A_FOLDER = /(^|[._-])(config|preprocessor_config|adapter_config|trainer_state|training_args|model\.safetensors\.index)\.json$|(^|[._-])(ds|deepspeed|zero)[^/]*\.json$|\.ya?ml$/i;
const MOST_ENTRIES = 2000;

/** The files of a drop, those of its folders among them.
 * @param {DataTransfer} data @returns {Promise<File[]>} */
export async function ofDrop(data) {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => !!entry);
  if (!entries.some((entry) => entry.isDirectory)) return [...data.files];
  /** @type {File[]} */
  const found = [];
  let seen = 0;
  /** @param {any} entry @param {number} depth */
  async function walk(entry, depth) {
    if (++seen > MOST_ENTRIES || depth > 3 || found.length >= MOST_FILES) return;
    if (entry.isFile) {
      if (depth === 0 || OF_A_FOLDER.test(entry.name)) found.push(await new Promise((done, fail) => entry.file(done, fail)));
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((done, fail) => reader.readEntries(done, fail));
      if (some.length === 0) return;
      for (const one of some.sort((/** @type {any} */ a, /** @type {any} */ b) => Number(a.isDirectory) - Number(b.isDirectory))) await walk(one, depth + 1);
    }
  }
  for (const entry of entries) await walk(entry, 0);
  return found;
}
