// SPDX-License-Identifier: Apache-2.0
/* Builds the static page: node build.mjs --wasm FILE --out FOLDER. FILE is tidemark.wasm; first.wasm and rest.wasm, recordings.wasm and
 * models.json lie beside it. A line for each file says how large it is; * marks what a first visit loads. */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { licences, program, script, scripts, style as styleOf } from './bundle.mjs';
import { asHeader, pagePolicy, singlePolicy } from './csp.mjs';

const here = import.meta.dirname;

const ICON = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Crect width='24' height='24' rx='6' fill='%2310233f'/%3E%3Cpath d='M0 15c3-2 6-2 9 0s6 2 9 0 4-2 6-.6V18a6 6 0 01-6 6H6a6 6 0 01-6-6z' fill='%233fa7ff'/%3E%3Cpath d='M5 8h14' stroke='%23fff' stroke-width='2.2' stroke-linecap='round'/%3E%3C/svg%3E";

const gzipped = (/** @type {Buffer} */ bytes) => promisify(gzip)(bytes, { level: 9 });
const brotlied = (/** @type {Buffer} */ bytes) => promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } });

/** {{name}} by its value. @param {string} template @param {Record<string, string>} values */
const filled = (template, values) => template.replace(/\{\{(\w+)\}\}/g, (_, name) => values[name]);

const template = (/** @type {string} */ name) => readFile(join(here, name), 'utf8');

/** The files of a page, written into a folder. @param {string} folder */
function output(folder) {
  /** @type {Map<string, Buffer>} */
  const written = new Map();
  async function put(/** @type {string} */ name, /** @type {Buffer | string} */ content) {
    const bytes = Buffer.from(content);
    written.set(name, bytes);
    await writeFile(join(folder, name), bytes);
    return name;
  }
  /** A name that changes with the content, so that hosts may cache for good. */
  function asset(/** @type {string} */ name, /** @type {string} */ ext, /** @type {Buffer} */ bytes) {
    const hash = createHash('sha256').update(bytes).digest('hex').slice(0, 10);
    return put(`assets/${name}-${hash}.${ext}`, bytes);
  }
  return { written, put, asset };
}

/** @typedef {ReturnType<typeof output>} Output */
/** @typedef {{core: Buffer, first: Buffer, rest: Buffer, recordings: Buffer, models: Buffer}} Parts  what the WebAssembly build makes */
/** @typedef {{style: string, theme: string, app: string, command: string}} Content  of every form of the page */

const paths = (/** @type {Record<string, string>} */ of) => Object.fromEntries(['WASM', 'REST', 'RECORDINGS', 'MODELS', 'WORKER']
  .map((name) => [`${name}_PATH`, JSON.stringify(of[name.toLowerCase()] ?? '')]));

/** The scripts and modules of the page, and the names of those that a first visit loads.
 * @param {Output} out @param {string} folder @param {Parts} parts */
async function assets({ put, asset }, folder, { first, rest, recordings, models }) {
  const names = {
    wasm: await asset('tidemark', 'wasm', first), rest: await asset('rest', 'wasm', rest), recordings: await asset('recordings', 'wasm', recordings),
    models: await asset('models', 'json', models), worker: await asset('worker', 'js', await script('src/worker.js')),
  };
  /* What is behind a click comes as a chunk of its own when it is clicked. */
  const [main, ...chunks] = await scripts('src/main.jsx', {
    define: { ...paths(names), SINGLE: 'false' }, splitting: true, outdir: folder, entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]',
  });
  for (const { name, bytes } of [main, ...chunks]) await put(`assets/${name}`, bytes);
  const atOnce = new Set([main.name]);
  for (const name of atOnce) { /* a set hands out what is added meanwhile */
    const { bytes } = /** @type {typeof main} */ ([main, ...chunks].find((chunk) => chunk.name === name));
    for (const [, found] of bytes.toString().matchAll(/(?:from|import)"\.\/([^"]+)"/g)) atOnce.add(found);
  }
  const chunkNames = [...atOnce].slice(1).map((name) => `assets/${name}`);
  return { ...names, main: `assets/${main.name}`, chunks: chunkNames };
}

/** index.html. @param {Content} content @param {Awaited<ReturnType<typeof assets>>} names */
async function index({ style, theme, app, command }, { wasm, worker, main, chunks }) {
  const policy = pagePolicy({ scripts: [theme], styles: [style] });
  const html = filled(await template('index.html'), { policy, icon: ICON, theme, style, wasm, worker, main, command, app,
    chunks: chunks.map((name) => `<link rel="modulepreload" href="${name}">\n`).join('') });
  return { html, policy };
}

/** A page in one file: what it is made of stands inside, modules and models as base64 of gzip.
 * @param {string} entry @param {Content & {noscript: string}} content @param {Record<string, Buffer>} parts */
async function single(entry, { style, theme, app, noscript }, parts) {
  const define = { ...paths({}), SINGLE: 'true' };
  const text = async (/** @type {string} */ source, /** @type {any} */ more = {}) =>
    (await script(source, { define, ...more })).toString().trim().replaceAll('</script', '<\\/script');
  const [main, worker] = [await text(entry), await text('src/worker.js', { format: 'iife' })];
  const texts = await Promise.all(Object.entries(parts).map(async ([name, bytes]) => [name, (await gzipped(bytes)).toString('base64')]));
  return filled(await template('single.html'), { policy: singlePolicy({ scripts: [theme, main], styles: [style], hasHub: entry === 'src/main.jsx' }), icon: ICON, theme, style, noscript, app, main,
    parts: [['worker', worker], ...texts].map(([name, content]) => `<script type="text/plain" id="part-${name}">${content}</script>\n`).join('') });
}

/** Headers for hosts that read this file. The single files have a policy of their own, which one in a header would forbid. @param {string} policy */
function headers(policy) {
  const strict = `  Content-Security-Policy: ${asHeader(policy)}\n`;
  return ['/*\n  Referrer-Policy: no-referrer\n  X-Content-Type-Options: nosniff\n',
    ...['/', '/index.html', '/sw.js'].map((path) => `${path}\n${strict}  Cache-Control: no-cache\n`),
    `/assets/*\n${strict}  Cache-Control: public, max-age=31536000, immutable\n`].join('');
}

/** The service worker and what it keeps: all that the page is made of. @param {Output} out @param {string} html */
async function serviceWorker({ written, put }, html) {
  const kept = [...written.keys()].filter((name) => name.startsWith('assets/')).sort();
  const version = createHash('sha256').update(html).update(kept.join('\n')).digest('hex').slice(0, 10);
  await put('sw.js', await script('src/sw.js', { format: 'iife',
    define: { SW_VERSION: JSON.stringify(version), SW_FILES: JSON.stringify(['./', 'manifest.webmanifest', 'icon.svg', ...kept]) } }));
  await put('sw-off.js', await script('src/sw-off.js', { format: 'iife' }));
}

const MANIFEST = {
  name: 'tidemark', description: 'GPU memory of a training or inference job, before it runs', start_url: './', scope: './', display: 'standalone',
  background_color: '#f3f5f8', theme_color: '#10233f', icons: [{ src: 'icon.svg', sizes: 'any', type: 'image/svg+xml' }],
};

/** What every file is on the wire, beside it for hosts that serve such files. @param {Output} out @param {string} folder */
async function compressed({ written }, folder) {
  return Promise.all([...written].map(async ([name, bytes]) => {
    const [gz, br] = await Promise.all([gzipped(bytes), brotlied(bytes)]);
    await Promise.all([writeFile(join(folder, `${name}.gz`), gz), writeFile(join(folder, `${name}.br`), br)]);
    return { name, bytes: bytes.length, gzip: gz.length, brotli: br.length };
  }));
}

/** @param {{wasm: string, out: string}} options */
export async function build({ wasm, out: folder }) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(join(folder, 'assets'), { recursive: true });
  const made = (/** @type {string} */ name) => readFile(name.includes('.') ? join(dirname(wasm), name) : wasm);
  const [core, first, rest, recordings, models] = await Promise.all(['tidemark', 'first.wasm', 'rest.wasm', 'recordings.wasm', 'models.json'].map(made));
  const out = output(folder);

  const names = await assets(out, folder, { core, first, rest, recordings, models });
  const { prerender } = await program('src/prerender.jsx', { define: { ...paths({}), SINGLE: 'false' } });
  const { html: app, command } = await prerender(new WebAssembly.Module(first)); /* which lacks nothing for it */
  const theme = (await script('src/theme.js', { format: 'iife' })).toString().trim();
  const content = { style: await styleOf('style.css'), theme, app, command };
  const { html, policy } = await index(content, names);
  await out.put('index.html', html);

  const noscript = /** @type {RegExpExecArray} */ (/<noscript>.*<\/noscript>\n/.exec(html))[0];
  await out.put('tidemark.html', await single('src/main.jsx', { ...content, noscript }, { core, models, recordings }));
  await out.put('embed.html', await single('src/embed.jsx', { ...content, app: '', noscript: '' }, { core, models }));
  await out.put('icon.svg', decodeURIComponent(ICON.slice(ICON.indexOf(',') + 1)));
  await out.put('manifest.webmanifest', JSON.stringify(MANIFEST));
  await serviceWorker(out, html);
  await out.put('licences.txt', await licences());
  await writeFile(join(folder, '_headers'), headers(policy));

  const atOnce = new Set(['index.html', names.wasm, names.worker, names.main, ...names.chunks]);
  return (await compressed(out, folder)).map((size) => ({ ...size, first: atOnce.has(size.name) }));
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({ options: { wasm: { type: 'string' }, out: { type: 'string' } } });
  if (!values.wasm || !values.out) {
    console.error('usage: npm run build -- --wasm FILE --out FOLDER');
    process.exit(2);
  }
  const sizes = await build({ wasm: values.wasm, out: values.out });
  const line = (/** @type {string} */ name, /** @type {number[]} */ ...columns) => console.log(name.padEnd(36) + columns.map((n) => String(n).padStart(10)).join(''));
  console.log(`${''.padEnd(36)}     bytes      gzip    brotli`);
  for (const { name, bytes, gzip: gz, brotli, first } of sizes) line(`${first ? '* ' : '  '}${name}`, bytes, gz, brotli);
  const sum = (/** @type {typeof sizes} */ list, /** @type {'bytes' | 'gzip' | 'brotli'} */ of) => list.reduce((all, one) => all + one[of], 0);
  const first = sizes.filter((one) => one.first);
  line('* first visit', sum(first, 'bytes'), sum(first, 'gzip'), sum(first, 'brotli'));
}
