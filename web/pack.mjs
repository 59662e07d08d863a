/* Parts of the page, packed: a module of a kilobyte (web/wasm/unpack.c) with a .lzma file in its memory, which it unpacks. */
import { execFileSync } from 'node:child_process';
import { withSegments } from './object.mjs';

const PACKED_AT = 1 << 16; /* as in unpack.c */
const MEMORY = 1 << 20; /* of unpack.wasm at the start (web/wasm/CMakeLists.txt) */
const UNKNOWN_LENGTH = 5; /* of the header of a .lzma file: there xz leaves eight bytes open */

/** A .lzma file that says how long its content is. @param {Uint8Array} bytes */
export function lzma(bytes) {
  const options = ['--format=lzma', '--lzma1=preset=9e,dict=4MiB,lc=3,lp=0,pb=0,nice=273,depth=1000', '--stdout'];
  let file;
  try {
    file = execFileSync('xz', options, { input: bytes, maxBuffer: 1 << 26 });
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') throw new Error('xz is not installed (Debian: apt-get install xz-utils)');
    throw error;
  }
  file.writeBigUInt64LE(BigInt(bytes.length), UNKNOWN_LENGTH);
  return file;
}

/** @param {Uint8Array} unpacker unpack.wasm @param {Uint8Array} bytes */
export function packed(unpacker, bytes) {
  const file = lzma(bytes);
  const size = Buffer.alloc(4);
  size.writeUInt32LE(file.length);
  if (PACKED_AT + size.length + file.length > MEMORY) throw new Error('A part is larger than the memory of unpack.wasm.');
  return withSegments(unpacker, [{ at: PACKED_AT, bytes: Buffer.concat([size, file]) }]);
}
