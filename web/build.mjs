/* Builds the static page: node build.mjs --wasm FILE --out FOLDER; recordings.wasm lies beside FILE */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { build as bundle } from 'esbuild';
import { headerPolicy, metaPolicy } from './csp.mjs';

const here = import.meta.dirname;
const common = /** @type {import('esbuild').BuildOptions} */ ({
  bundle: true, minify: true, format: 'esm', target: 'es2023', write: false, legalComments: 'none',
  alias: { 'd3-interpolate': './src/numbers.js', 'd3-format': './src/numbers.js' },
  jsx: 'automatic', jsxImportSource: 'preact', absWorkingDir: here, logLevel: 'warning', charset: 'utf8',
});

/* Packages that a bundle for the page took code from. */
const shipped = new Set();

/** @param {string} entry @param {import('esbuild').BuildOptions} [more]
 * @returns {Promise<{name: string, bytes: Buffer}[]>} the entry first, then its chunks */
async function bundledInParts(entry, more) {
  const { outputFiles, metafile } = await bundle({ ...common, entryPoints: [entry], metafile: true, ...more });
  if (more?.platform !== 'node') {
    for (const input of Object.keys(/** @type {any} */ (metafile).inputs)) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input);
      if (found) shipped.add(found[1]);
    }
  }
  return /** @type {any[]} */ (outputFiles).map(({ path, contents }) => ({ name: basename(path), bytes: Buffer.from(contents) }));
}

/** @param {string} entry @param {import('esbuild').BuildOptions} [more] */
const bundled = async (entry, more) => (await bundledInParts(entry, more))[0].bytes;

/** The licences of the packages in the bundles, as their authors ask. */
async function licences() {
  const texts = [];
  for (const name of [...shipped].sort()) {
    const folder = join(here, 'node_modules', name);
    const { version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    texts.push(`${name} ${version} (${license})\n\n${file ? await readFile(join(folder, file), 'utf8') : ''}`);
  }
  return Buffer.from(texts.join(`\n${'-'.repeat(80)}\n\n`));
}

/** @param {{wasm: string, out: string}} options */
export async function build({ wasm, out }) {
  await rm(out, { recursive: true, force: true });
  await mkdir(join(out, 'assets'), { recursive: true });
  /** @type {Map<string, Buffer>} */
  const written = new Map();

  async function put(/** @type {string} */ name, /** @type {Buffer} */ bytes) {
    written.set(name, bytes);
    await writeFile(join(out, name), bytes);
    return name;
  }
  /** A name that changes with the content, so that hosts may cache for good. */
  function asset(/** @type {string} */ name, /** @type {string} */ ext, /** @type {Buffer} */ bytes) {
    const hash = createHash('sha256').update(bytes).digest('hex').slice(0, 10);
    return put(`assets/${name}-${hash}.${ext}`, bytes);
  }

  const core = await readFile(wasm);
  const wasmName = await asset('tidemark', 'wasm', core);
  const recordingsName = await asset('recordings', 'wasm', await readFile(join(dirname(wasm), 'recordings.wasm')));
  const workerName = await asset('worker', 'js', await bundled('src/worker.js'));
  /* What is behind a click comes as a chunk of its own when it is clicked. */
  const [main, ...chunks] = await bundledInParts('src/main.jsx', {
    define: { WASM_PATH: JSON.stringify(wasmName), WORKER_PATH: JSON.stringify(workerName), RECORDINGS_PATH: JSON.stringify(recordingsName) },
    splitting: true, outdir: out, entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]',
  });
  const mainName = await put(`assets/${main.name}`, main.bytes);
  for (const chunk of chunks) await put(`assets/${chunk.name}`, chunk.bytes);
  const first = new Set(['index.html', wasmName, workerName, mainName]);
  for (const { name, bytes } of [main, ...chunks]) { /* main comes first: what it imports at once */
    if (!first.has(`assets/${name}`)) continue;
    for (const found of bytes.toString().matchAll(/(?:from|import)"\.\/([^"]+)"/g)) first.add(`assets/${found[1]}`);
  }
  const themeName = await asset('theme', 'js', await bundled('src/theme.js', { format: 'iife' }));
  const styleName = await asset('style', 'css', await bundled('style.css'));

  first.add(themeName).add(styleName);

  const script = await bundled('src/prerender.jsx', { platform: 'node', minify: false });
  const { prerender } = await import(`data:text/javascript;base64,${script.toString('base64')}`);
  const { html, command } = await prerender(new WebAssembly.Module(core));

  /** @type {Record<string, string>} */
  const values = { policy: metaPolicy, theme: themeName, style: styleName, wasm: wasmName, main: mainName, command, app: html,
    chunks: [...first].filter((name) => chunks.some((chunk) => name === `assets/${chunk.name}`)).map((name) => `<link rel="modulepreload" href="${name}">\n`).join('') };
  const template = await readFile(join(here, 'index.html'), 'utf8');
  const index = template.replace(/\{\{(\w+)\}\}/g, (_, name) => values[name]);
  await put('index.html', Buffer.from(index));
  await put('_headers', Buffer.from(`/*\n  Content-Security-Policy: ${headerPolicy}\n  Referrer-Policy: no-referrer\n` +
    '  X-Content-Type-Options: nosniff\n/assets/*\n  Cache-Control: public, max-age=31536000, immutable\n'));

  await put('licences.txt', await licences());

  const sizes = [...written].filter(([name]) => name === 'index.html' || name.startsWith('assets/'))
    .map(([name, bytes]) => ({ name, bytes: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length, first: first.has(name) }));
  return sizes;
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({ options: { wasm: { type: 'string' }, out: { type: 'string' } } });
  if (!values.wasm || !values.out) {
    console.error('usage: npm run build -- --wasm FILE --out FOLDER');
    process.exit(2);
  }
  const sizes = await build({ wasm: values.wasm, out: values.out });
  for (const { name, bytes, gzip, first } of sizes)
    console.log(`${name.padEnd(36)}${String(bytes).padStart(9)} bytes${String(gzip).padStart(9)} gzip${first ? '' : '  when asked for'}`);
  const sum = (/** @type {typeof sizes} */ list) => String(list.reduce((all, { gzip }) => all + gzip, 0)).padStart(30);
  console.log(`${'first visit'.padEnd(36)}${sum(sizes.filter(({ first }) => first))} gzip`);
  console.log(`${'in all'.padEnd(36)}${sum(sizes)} gzip`);
}
