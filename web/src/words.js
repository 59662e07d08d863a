/* A job as words: `key=value`, the same on the command line, in a link and in a request. */

/** @typedef {[name: string, value: string][]} Words */

export const LINK_VERSION = 1;
const READ_LIMIT = 65536;

/* Characters that no mail or chat program changes in an address; the others are percent-encoded. */
const PLAIN = /[^A-Za-z0-9\-_.,:/]/g;

/** @param {string} text */
const encode = (text) => text.replace(PLAIN, (c) => encodeURIComponent(c).replace(/[!'()*]/g,
  (d) => '%' + d.charCodeAt(0).toString(16).toUpperCase()));

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {Words} words @returns {string} the fragment without its `#`, `v` last */
export function toFragment(words) {
  return [...words.map(([name, value]) => `${encode(name)}=${encode(value)}`), `v=${LINK_VERSION}`].join('&');
}

/** Reads a fragment, forgiving one level of percent-encoding too many.
 * @param {string} fragment without `#`
 * @param {(name: string) => string | null} known the setting's canonical name, or null
 * @returns {{words: Words, notices: string[]}} */
export function fromFragment(fragment, known) {
  const notices = [];
  if (fragment.length > READ_LIMIT) {
    notices.push(`This link is longer than ${READ_LIMIT} characters; the rest was not read.`);
    fragment = fragment.slice(0, READ_LIMIT);
  }
  if (!fragment.includes('=') && /%3d/i.test(fragment)) fragment = decode(fragment);

  /** @type {Map<string, string>} */
  const read = new Map();
  const unknown = [];
  let version = null;
  for (const piece of fragment.split('&')) {
    if (piece === '') continue;
    const cut = piece.indexOf('=');
    const name = decode(cut < 0 ? piece : piece.slice(0, cut));
    const value = cut < 0 ? '' : decode(piece.slice(cut + 1));
    if (name === 'v') {
      version = value;
      continue;
    }
    const canonical = known(name);
    if (canonical === null || cut < 0) unknown.push(name.slice(0, 40));
    else if (value !== '') read.set(canonical, value);
  }
  if (unknown.length) {
    notices.push(`${unknown.length === 1 ? '1 setting' : `${unknown.length} settings`} in this link ` +
      `${unknown.length === 1 ? 'is' : 'are'} not known to this version: ${unknown.slice(0, 8).join(', ')}.`);
  }
  if (version === null) notices.push('This link looks cut short: it does not end in v=1. Check the settings.');
  else if (Number(version) > LINK_VERSION) {
    notices.push('This link was made with a newer version. What is known here was read; reload for the newest page.');
  }
  return { words: [...read], notices };
}

/** @param {string} word */
const quoted = (word) => (/^[A-Za-z0-9\-_.,:/=+@%]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The command line that gives the same answer.
 * @param {Words} words @param {string[]} files names */
export function toCommand(words, files) {
  return ['tidemark', 'estimate', ...files.map(quoted), ...words.map(([name, value]) => quoted(`${name}=${value}`))]
    .join(' ');
}
