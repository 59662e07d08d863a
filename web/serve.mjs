/* A small static server for the built page: node serve.mjs FOLDER [--port N]. 127.0.0.1 only. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize, resolve, sep } from 'node:path';
import { parseArgs } from 'node:util';
import { headerPolicy } from './csp.mjs';

/** @type {Record<string, string>} */
const TYPES = {
  '.html': 'text/html; charset=utf-8', '.css': 'text/css; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
  '.wasm': 'application/wasm', '.json': 'application/json', '.svg': 'image/svg+xml', '.png': 'image/png', '.webmanifest': 'application/manifest+json',
};

/* They have a policy of their own, which one in a header would forbid. */
const SINGLE = /\/(tidemark|embed)\.html$/;

/** Serves a folder; port 0 takes a free one.
 * @param {string} folder @param {{port?: number, headers?: boolean, policy?: string, types?: Record<string, string>}} [options]
 *   headers false: as a host that sends none; types: by the ending of a name, over the usual ones
 * @returns {Promise<{url: string, close: () => void}>} */
export async function serve(folder, { port = 0, headers = true, policy = headerPolicy, types = {} } = {}) {
  const root = resolve(folder);
  const server = createServer(async (request, response) => {
    try {
      const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname);
      const file = normalize(join(root, path.endsWith('/') ? `${path}index.html` : path));
      if (file !== root && !file.startsWith(root + sep)) throw new Error('outside the folder');
      if (!(await stat(file)).isFile()) throw new Error('not a file');
      response.setHeader('Content-Type', types[extname(file)] ?? TYPES[extname(file)] ?? 'application/octet-stream');
      if (headers) {
        if (!SINGLE.test(path)) response.setHeader('Content-Security-Policy', policy);
        response.setHeader('Referrer-Policy', 'no-referrer');
        response.setHeader('X-Content-Type-Options', 'nosniff');
      }
      response.setHeader('Cache-Control', path.includes('/assets/') ? 'public, max-age=31536000, immutable' : 'no-cache');
      if (request.method === 'HEAD') return response.end();
      createReadStream(file).on('error', () => response.destroy()).pipe(response);
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
