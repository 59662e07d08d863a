// SPDX-License-Identifier: Apache-2.0
/* A small static server for the built page: node serve.mjs FOLDER [--port N]. 127.0.0.1 only. It sends the headers of the folder's
 * _headers, and the .br or .gz beside a file to who accepts it. */
import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize, resolve, sep } from 'node:path';
import { parseArgs } from 'node:util';

/** @type {Record<string, string>} */
const TYPES = {
  '.html': 'text/html; charset=utf-8', '.css': 'text/css; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
  '.wasm': 'application/wasm', '.json': 'application/json', '.svg': 'image/svg+xml', '.png': 'image/png', '.webmanifest': 'application/manifest+json',
};

const ENCODINGS = { br: '.br', gzip: '.gz' };

const isFile = (/** @type {string} */ path) => stat(path).then((found) => found.isFile(), () => false);

/** A _headers file: lines of paths, `*` at the end of one standing for anything, each with indented headers below it.
 * @param {string} text @returns {(path: string) => [name: string, value: string][]} */
function readHeaders(text) {
  /** @type {{path: string, headers: [string, string][]}[]} */
  const rules = [];
  for (const line of text.split('\n').filter((one) => one.trim())) {
    const header = /^\s+([^:]+):\s*(.*)$/.exec(line);
    if (header) rules.at(-1)?.headers.push([header[1], header[2]]);
    else rules.push({ path: line.trim(), headers: [] });
  }
  const meets = (/** @type {string} */ rule, /** @type {string} */ path) => (rule.endsWith('*') ? path.startsWith(rule.slice(0, -1)) : path === rule);
  return (path) => rules.filter((rule) => meets(rule.path, path)).flatMap((rule) => rule.headers);
}

/** Serves a folder; port 0 takes a free one.
 * @param {string} folder
 * @param {{port?: number, headers?: boolean, policy?: (policy: string) => string, types?: Record<string, string>, encodings?: ('br' | 'gzip')[],
 *   latency?: (path: string) => number}} [options]
 *   headers false: as a host that sends none; policy: what it makes of the Content-Security-Policy; types: by the ending of a name, over the
 *   usual ones; encodings: those that it serves; latency: ms until a path is answered
 * @returns {Promise<{url: string, close: () => void}>} */
export async function serve(folder, { port = 0, headers = true, policy = (text) => text, types = {}, encodings = ['br', 'gzip'], latency } = {}) {
  const root = resolve(folder);
  const headersOf = readHeaders(headers ? await readFile(join(root, '_headers'), 'utf8').catch(() => '') : '');

  /** The file to send. @param {string} file @param {string} accepted @returns {Promise<{path: string, encoding?: string}>} */
  async function encoded(file, accepted) {
    for (const encoding of encodings) {
      const path = file + ENCODINGS[encoding];
      if (new RegExp(`\\b${encoding}\\b`).test(accepted) && await isFile(path)) return { path, encoding };
    }
    return { path: file };
  }

  const server = createServer(async (request, response) => {
    try {
      const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname);
      const file = normalize(join(root, path.endsWith('/') ? `${path}index.html` : path));
      if (file !== root && !file.startsWith(root + sep)) throw new Error('outside the folder');
      if (!await isFile(file)) throw new Error('not a file');
      if (latency) await new Promise((done) => { setTimeout(done, latency(path)); });
      const { path: sent, encoding } = await encoded(file, String(request.headers['accept-encoding'] ?? ''));
      response.setHeader('Content-Type', types[extname(file)] ?? TYPES[extname(file)] ?? 'application/octet-stream');
      response.setHeader('Vary', 'Accept-Encoding');
      if (encoding) response.setHeader('Content-Encoding', encoding);
      response.setHeader('Cache-Control', 'no-cache');
      for (const [name, value] of headersOf(path)) response.setHeader(name, name === 'Content-Security-Policy' ? policy(value) : value);
      response.setHeader('Content-Length', (await stat(sent)).size);
      if (request.method === 'HEAD') return response.end();
      createReadStream(sent).on('error', () => response.destroy()).pipe(response);
    } catch {
      response.writeHead(404, { 'Content-Type': 'text/plain' }).end('Not found\n');
    }
  });
  await new Promise((done, fail) => server.once('error', fail).listen(port, '127.0.0.1', () => done(null)));
  const { port: taken } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${taken}/`, close: () => { server.closeAllConnections(); server.close(); } };
}

if (process.argv[1] === import.meta.filename) {
  const { values, positionals } = parseArgs({ options: { port: { type: 'string' } }, allowPositionals: true });
  if (positionals.length !== 1) {
    console.error('usage: node serve.mjs FOLDER [--port N]');
    process.exit(2);
  }
  const { url } = await serve(positionals[0], { port: Number(values.port ?? 0) });
  console.log(url);
}
