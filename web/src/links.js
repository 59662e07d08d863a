// SPDX-License-Identifier: Apache-2.0
/* A link as the address bar has it: the core's readable words, or, when they are long or hold a configuration, z=1. and
 * base64url of a zlib stream. What the words mean is the core's to say (call read_link). */

const READ_LIMIT = 64 * 1024; /* characters */
const INFLATED_LIMIT = 256 * 1024; /* bytes */
const READABLE_LIMIT = 1800;
export const WRITE_LIMIT = 8000;
/* Some mail and chat programs cut longer ones. */
export const LONG = 2000;

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let text = '';
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** @param {Uint8Array} bytes @param {CompressionStream | DecompressionStream} through @param {number} limit
 * @returns {Promise<Uint8Array | null>} null past the limit; what is damaged throws */
async function stream(bytes, through, limit) {
  const reader = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(/** @type {any} */ (through)).getReader();
  const pieces = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    length += value.length;
    if (length > limit) {
      reader.cancel().catch(() => {});
      return null;
    }
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** @param {string} text @param {string} prefix that names what is packed @returns {Promise<string | null>} null: too long for a link */
async function deflated(text, prefix) {
  if (text.length > INFLATED_LIMIT) return null;
  const bytes = await stream(new TextEncoder().encode(text), new CompressionStream('deflate'), INFLATED_LIMIT);
  const packed = `${prefix}1.${toBase64(/** @type {Uint8Array} */ (bytes))}`;
  return packed.length > WRITE_LIMIT ? null : packed;
}

/** @param {string} link readable @returns {Promise<string | null>} null: too long for a link */
export const pack = async (link) => (link.length <= READABLE_LIMIT && !link.includes('%7B') ? link : deflated(link, 'z='));

/* Several jobs with their names: a list of [name, link]. */
export const SEVERAL = 'scenarios=';

/** @param {[string, string][]} list @returns {Promise<string | null>} null: too long for a link */
export const packSeveral = (list) => deflated(JSON.stringify(list), SEVERAL);

/** @param {string} fragment @param {string} prefix @returns {Promise<string>} */
async function inflated(fragment, prefix) {
  if (fragment.length > READ_LIMIT) throw new Error('This link is longer than 64 KiB and was not read.');
  if (!fragment.startsWith(prefix)) return fragment;
  if (!fragment.startsWith(`${prefix}1.`)) throw new Error('This link is compressed in a way that this version does not know. Reload the page for the newest one.');
  let bytes;
  try {
    const text = atob(fragment.slice(prefix.length + 2).replaceAll('-', '+').replaceAll('_', '/'));
    bytes = await stream(Uint8Array.from(text, (c) => c.charCodeAt(0)), new DecompressionStream('deflate'), INFLATED_LIMIT);
  } catch {
    throw new Error('This link is damaged or was cut. Copy it again from where it came from.');
  }
  if (!bytes) throw new Error('This link holds more than 256 KiB and was not read.');
  return new TextDecoder().decode(bytes);
}

/** @param {string} fragment without `#` @returns {Promise<string>} readable; a problem is thrown as a sentence */
export const unpack = (fragment) => inflated(fragment, 'z=');

/** @param {string} fragment without `#`, that begins with SEVERAL @returns {Promise<[string, string][]>} a problem is thrown as a sentence */
export async function unpackSeveral(fragment) {
  const text = await inflated(fragment, SEVERAL);
  let list;
  try {
    list = JSON.parse(text);
  } catch { /* said below */ }
  const isList = Array.isArray(list) && list.length > 0 && list.every((one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === 'string'));
  if (!isList) throw new Error('This link is damaged or was cut. Copy it again from where it came from.');
  return list;
}
