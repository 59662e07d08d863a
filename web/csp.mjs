/* The page's Content-Security-Policy: in a <meta> for any static host, as a header where the host sends headers.
 * A header also binds the worker, which a <meta> does not. */

const rules = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self' blob: data:",
  "connect-src 'self'",
  "worker-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types tidemark',
];

/** For a single file: its own scripts and style by their hashes, a worker from inside it, and no request at all.
 * @param {string[]} scripts @param {string[]} styles hashes, as 'sha256-...' */
export const singlePolicy = (scripts, styles) => [
  "default-src 'none'",
  `script-src ${scripts.join(' ')} 'wasm-unsafe-eval'`,
  `style-src ${styles.join(' ')}`,
  'img-src blob: data:',
  'worker-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types tidemark',
].join('; ');

/** For the <meta> element, where frame-ancestors is not allowed. */
export const metaPolicy = rules.join('; ');

/** For the response header. */
export const headerPolicy = [...rules, "frame-ancestors 'none'"].join('; ');
