// SPDX-License-Identifier: Apache-2.0
/* A job as words: `key=value`, the same on the command line, in a link and in a request. Links are read and written by the
 * core; here they are only taken apart. */

/** @typedef {[name: string, value: string][]} Words */

/* What holds the content of a file, and no setting. */
const FILE_KEYS = ['config', 'preprocessor', 'description'];

/** @param {string} word @returns {[string, string]} */
export function toWord(word) {
  const cut = word.indexOf('=');
  return cut < 0 ? [word, ''] : [word.slice(0, cut), word.slice(cut + 1)];
}

/** The words of a job whose settings have no answer yet, as a link. @param {Words} words */
export const toLink = (words) =>
  [...words.map((word) => word.map((text) => encodeURIComponent(text).replaceAll(/%(2C|3A|2F)/g, decodeURIComponent)).join('=')), 'v=1'].join('&');

/** The settings of a link that the core wrote. @param {string} link @returns {Words} */
export const wordsOf = (link) => link.split('&').map((piece) => toWord(piece)).filter(([name]) => name !== 'v' && !FILE_KEYS.includes(name))
  .map(([name, value]) => [decodeURIComponent(name), decodeURIComponent(value)]);

/** @param {string} word */
const quoted = (word) => (/^[A-Za-z0-9\-_.,:/=+@%]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The command line that gives the same answer.
 * @param {Words} words @param {string[]} files names @param {string} [name] of the command */
export function toCommand(words, files, name = 'estimate') {
  return ['tidemark', name, ...files.map(quoted), ...words.map(([name, value]) => quoted(`${name}=${value}`))]
    .join(' ');
}
