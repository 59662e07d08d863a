// SPDX-License-Identifier: Apache-2.0
/* The page's Content-Security-Policy: in a <meta> for any static host, as a header where the host sends headers.
 * A header also binds the worker, which a <meta> does not. Scripts and styles that stand in the page itself are allowed by their hashes. */
import { createHash } from 'node:crypto';
import { HUB } from './src/hosts.js';

/** A source expression that allows this text inline. @param {string} text */
export const hashOf = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** @typedef {{scripts: string[], styles: string[]}} Inline  what stands in the page itself */

/** Of the page whose parts are files beside it. @param {Inline} inline */
export const pagePolicy = ({ scripts, styles }) => [
  "default-src 'none'",
  `script-src 'self' ${scripts.map(hashOf).join(' ')} 'wasm-unsafe-eval'`,
  `style-src ${styles.map(hashOf).join(' ')}`,
  "img-src 'self' blob: data:",
  `connect-src 'self' ${HUB}`,
  "worker-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types tidemark',
].join('; ');

/** Of a single file: a worker from inside it, and no request but to the Hub, where it has a field for that. @param {Inline & {hasHub: boolean}} inline */
export const singlePolicy = ({ scripts, styles, hasHub }) => [
  "default-src 'none'",
  `script-src ${scripts.map(hashOf).join(' ')} 'wasm-unsafe-eval'`,
  `style-src ${styles.map(hashOf).join(' ')}`,
  'img-src blob: data:',
  ...(hasHub ? [`connect-src ${HUB}`] : []),
  'worker-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types tidemark',
].join('; ');

/** As a response header, where frame-ancestors is allowed. @param {string} policy */
export const asHeader = (policy) => `${policy}; frame-ancestors 'none'`;
