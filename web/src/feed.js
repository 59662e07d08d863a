// SPDX-License-Identifier: Apache-2.0
/* A recording's file into the core, in its worker: piece after piece, the next one on its way while one is read. */

const PIECE = 4 << 20;

/** The pieces of a file. @param {Blob} file */
async function* piecesOf(file) {
  const piece = (/** @type {number} */ at) => file.slice(at, at + PIECE).arrayBuffer();
  let next = piece(0);
  for (let at = 0; at < file.size; at += PIECE) {
    const bytes = new Uint8Array(await next);
    if (at + PIECE < file.size) {
      next = piece(at + PIECE);
      next.catch(() => {}); /* it is awaited later */
    }
    yield bytes;
  }
}

/** The same of what gzip has packed; of a damaged file those before the damage. @param {Blob} file @param {(read: number) => void} packed bytes that were taken
 * @param {() => void} isDamaged */
async function* unpackedOf(file, packed, isDamaged) {
  let taken = 0;
  const counted = new TransformStream({
    transform(/** @type {Uint8Array} */ piece, controller) {
      packed(taken += piece.length);
      controller.enqueue(piece);
    },
  });
  const reader = file.stream().pipeThrough(counted).pipeThrough(/** @type {any} */ (new DecompressionStream('gzip'))).getReader();
  for (;;) {
    let got;
    try {
      got = await reader.read();
    } catch {
      return isDamaged();
    }
    if (got.done) return;
    yield /** @type {Uint8Array} */ (got.value);
  }
}

/** @param {import('./tidemark.js').Core} core @param {Blob} file @param {(bytes: number) => void} tell how much of it has been read
 * @returns {Promise<string>} what is damaged, or '' */
export async function read(core, file, tell) {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isGzip = head[0] === 0x1f && head[1] === 0x8b;
  let damage = '';
  let taken = 0;
  let told = 0;
  core.open();
  const pieces = isGzip ? unpackedOf(file, (bytes) => { taken = bytes; }, () => { damage = 'the gzip file is truncated or damaged'; }) : piecesOf(file);
  for await (const piece of pieces) {
    core.add(piece);
    if (!isGzip) taken += piece.length;
    if (taken - told < PIECE) continue;
    tell(told = taken);
  }
  return damage;
}
