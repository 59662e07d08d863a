/* Parts of the page, packed: a module of two kilobytes (web/wasm/unpack.c, where the format is) with a .lzma file in its memory, which it
 * unpacks. Of modules the code is taken apart into streams of like bytes first (web/wasm/streams.h). */
import { execFileSync } from 'node:child_process';
import { codeOf, segmentsOf, withSegments } from './object.mjs';
import { unpackPart } from './src/tidemark.js';

const PACKED_AT = 1 << 16; /* as in unpack.c */
const MEMORY = 1 << 20; /* of unpack.wasm at the start (web/wasm/CMakeLists.txt) */
const UNKNOWN_LENGTH = 5; /* of the header of a .lzma file: there xz leaves eight bytes open */
const STREAMS = 8;

/** A .lzma file that says how long its content is. @param {Uint8Array} bytes */
function lzma(bytes) {
  const options = ['--format=lzma', '--lzma1=preset=9e,dict=4MiB,lc=2,lp=0,pb=0,nice=273,depth=1000', '--stdout'];
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

/** Four bytes each, lowest first. @param {number[]} list */
const numbers = (list) => Buffer.from(Uint32Array.from(list).buffer);

/** @param {WebAssembly.Module} takeapart @param {Uint8Array} bytes a module */
async function inStreams(takeapart, bytes) {
  const { memory, room, take_apart, stream, stream_size } = /** @type {any} */ ((await WebAssembly.instantiate(takeapart)).exports);
  const { whole, from, to } = codeOf(bytes);
  const at = room(to - from);
  new Uint8Array(memory.buffer, at, to - from).set(bytes.subarray(from, to));
  if (!take_apart(to - from)) throw new Error('The code of a module is not understood.');
  const parts = [bytes.subarray(0, whole + 1), bytes.subarray(to), ...Array.from({ length: STREAMS }, (_, kind) => new Uint8Array(memory.buffer, stream(kind), stream_size(kind)))];
  return Buffer.concat([numbers(parts.map(({ length }) => length)), ...parts]);
}

/** What packs, of a build's unpack.wasm and takeapart.wasm. @param {Uint8Array<ArrayBuffer>} unpacker @param {Uint8Array<ArrayBuffer>} takeapart */
export function packer(unpacker, takeapart) {
  const apart = new WebAssembly.Module(takeapart);

  /** @param {Uint8Array} bytes a module, or with isModule false anything */
  return async (bytes, isModule = true) => {
    const content = isModule ? await inStreams(apart, bytes) : bytes;
    const file = lzma(content);
    const packed = Buffer.concat([numbers([file.length, Number(isModule)]), file]);
    if (PACKED_AT + packed.length > MEMORY) throw new Error('A part is larger than the memory of unpack.wasm.');
    const part = withSegments(unpacker, [...segmentsOf(unpacker), { at: PACKED_AT, bytes: packed }]);
    const again = await unpackPart(new WebAssembly.Module(part));
    if (isModule ? !(await inStreams(apart, again)).equals(content) : Buffer.compare(again, bytes)) throw new Error('A part is not what was packed.');
    return part;
  };
}

/** The unpack.wasm that a part was made with. @param {Uint8Array} part */
export const unpackerOf = (part) => withSegments(part, segmentsOf(part).filter(({ at }) => at < PACKED_AT));
