/* Builds the static page: node build.mjs --wasm FILE --out FOLDER. FILE is tidemark.wasm; its parts first.wasm and rest.wasm,
 * recordings.wasm, models.json, and unpack.wasm and takeapart.wasm of pack.mjs lie beside it. */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { build as bundle, transform } from 'esbuild';
import { minify } from 'terser';
import { packer } from './pack.mjs';
import { headerPolicy, metaPolicy, singlePolicy } from './csp.mjs';

const here = import.meta.dirname;
const common = /** @type {import('esbuild').BuildOptions} */ ({
  bundle: true, minify: true, format: 'esm', target: 'es2023', write: false, legalComments: 'none',
  jsx: 'automatic', jsxImportSource: 'preact', absWorkingDir: here, logLevel: 'warning', charset: 'utf8',
});

/* The style of what is behind a click comes with its chunk, as text. */
const laterStyle = /** @type {import('esbuild').Plugin} */ ({ name: 'style of a chunk', setup(of) {
  of.onLoad({ filter: /\/src\/.*\.css$/ }, async ({ path }) => ({ loader: 'text', contents: (await transform(await readFile(path, 'utf8'), { loader: 'css', minify: true })).code.trim() }));
} });

/* Packages that a bundle for the page took code from. */
const shipped = new Set();

/** @param {string} entry @param {import('esbuild').BuildOptions} [more]
 * @returns {Promise<{name: string, bytes: Buffer}[]>} the entry first, then its chunks */
async function bundledInParts(entry, more) {
  const { outputFiles, metafile } = await bundle({ ...common, plugins: [laterStyle], entryPoints: [entry], metafile: true, ...more });
  if (more?.platform !== 'node') {
    for (const input of Object.keys(/** @type {any} */ (metafile).inputs)) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input);
      if (found) shipped.add(found[1]);
    }
  }
  const outputs = /** @type {any} */ (metafile).outputs;
  const isEntry = (/** @type {string} */ path) => Number(Object.entries(outputs).some(([name, { entryPoint }]) => entryPoint === entry && basename(name) === basename(path)));
  return Promise.all(/** @type {any[]} */ (outputFiles).sort((a, b) => isEntry(b.path) - isEntry(a.path))
    .map(async ({ path, contents, text }) => ({ name: basename(path), bytes: entry.endsWith('.css') || more?.platform === 'node' ? Buffer.from(contents) : await smaller(text) })));
}

/** A bundle once more by terser, which finds what esbuild leaves. @param {string} text */
async function smaller(text) {
  const { code } = await minify(text, { module: !text.startsWith('(()=>{'), ecma: 2020, compress: { passes: 3 } });
  return Buffer.from(/** @type {string} */ (code));
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

const ICON = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Crect width='24' height='24' rx='6' fill='%2310233f'/%3E%3Cpath d='M0 15c3-2 6-2 9 0s6 2 9 0 4-2 6-.6V18a6 6 0 01-6 6H6a6 6 0 01-6-6z' fill='%233fa7ff'/%3E%3Cpath d='M5 8h14' stroke='%23fff' stroke-width='2.2' stroke-linecap='round'/%3E%3C/svg%3E";

const hashOf = (/** @type {string} */ text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** {{name}} by its value. @param {string} template @param {Record<string, string>} values */
const filled = (template, values) => template.replace(/\{\{(\w+)\}\}/g, (_, name) => values[name]);

const noPaths = { WASM_PATH: '""', WORKER_PATH: '""', RECORDINGS_PATH: '""', MODELS_PATH: '""', REST_PATH: '""' };

/** A page in one file: what it is made of stands inside, packed parts as base64.
 * @param {string} entry @param {{style: string, theme: string, app: string, noscript: string, parts: Record<string, Buffer>}} content */
async function single(entry, { style, theme, app, noscript, parts }) {
  const define = { ...noPaths, SINGLE: 'true' };
  const text = async (/** @type {string} */ source, /** @type {any} */ more = {}) =>
    (await bundled(source, { define, ...more })).toString().trim().replaceAll('</script', '<\\/script');
  const main = await text(entry);
  const texts = Object.entries(parts).map(([name, bytes]) => `<script type="text/plain" id="part-${name}">${bytes.toString('base64')}</script>\n`);
  const policy = singlePolicy([hashOf(theme), hashOf(main)], [hashOf(style)]);
  return Buffer.from(filled(await readFile(join(here, 'single.html'), 'utf8'), { policy, icon: ICON, theme, style, noscript, app, main,
    parts: `<script type="text/plain" id="part-worker">${await text('src/worker.js', { format: 'iife' })}</script>\n${texts.join('')}` }));
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

  const [core, firstCore, restCore, recordingsCore, modelsText, unpacker, takeapart] = await Promise.all([basename(wasm), 'first.wasm', 'rest.wasm',
    'recordings.wasm', 'models.json', 'unpack.wasm', 'takeapart.wasm'].map((name) => readFile(join(dirname(wasm), name))));
  const packed = packer(unpacker, takeapart);
  const [recordings, models] = [await packed(recordingsCore), await packed(modelsText, false)];
  const wasmName = await asset('tidemark', 'wasm', await packed(firstCore));
  const restName = await asset('rest', 'wasm', await packed(restCore));
  const recordingsName = await asset('recordings', 'wasm', recordings);
  const modelsName = await asset('models', 'wasm', models);
  const workerName = await asset('worker', 'js', await bundled('src/worker.js'));
  /* What is behind a click comes as a chunk of its own when it is clicked. */
  const [main, ...chunks] = await bundledInParts('src/main.jsx', {
    define: { WASM_PATH: JSON.stringify(wasmName), WORKER_PATH: JSON.stringify(workerName), RECORDINGS_PATH: JSON.stringify(recordingsName),
      MODELS_PATH: JSON.stringify(modelsName), REST_PATH: JSON.stringify(restName), SINGLE: 'false' },
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

  const script = await bundled('src/prerender.jsx', { platform: 'node', minify: false,
    define: { ...noPaths, SINGLE: 'false' } });
  const { prerender } = await import(`data:text/javascript;base64,${script.toString('base64')}`);
  const { html, command } = await prerender(new WebAssembly.Module(firstCore)); /* which lacks nothing for it */

  /** @type {Record<string, string>} */
  const values = { policy: metaPolicy, theme: themeName, style: styleName, wasm: wasmName, main: mainName, command, app: html,
    chunks: [...first].filter((name) => chunks.some((chunk) => name === `assets/${chunk.name}`)).map((name) => `<link rel="modulepreload" href="${name}">\n`).join('') };
  const template = await readFile(join(here, 'index.html'), 'utf8');
  const index = filled(template, { ...values, icon: ICON });
  await put('index.html', Buffer.from(index));

  const style = (await readFile(join(out, styleName), 'utf8')).trim();
  const theme = (await readFile(join(out, themeName), 'utf8')).trim();
  const noscript = /** @type {RegExpExecArray} */ (/<noscript>.*<\/noscript>\n/.exec(index))[0];
  const whole = { core: await packed(core), models };
  await put('tidemark.html', await single('src/main.jsx', { style, theme, app: html, noscript, parts: { ...whole, recordings } }));
  await put('embed.html', await single('src/embed.jsx', { style, theme, app: '', noscript: '', parts: whole }));

  await put('icon.svg', Buffer.from(decodeURIComponent(ICON.slice(ICON.indexOf(',') + 1))));
  await put('manifest.webmanifest', Buffer.from(JSON.stringify({
    name: 'tidemark', description: 'GPU memory of a training job, before it runs', start_url: './', scope: './', display: 'standalone',
    background_color: '#f3f5f8', theme_color: '#10233f', icons: [{ src: 'icon.svg', sizes: 'any', type: 'image/svg+xml' }],
  })));

  /* What the service worker keeps: all that the page is made of. */
  const kept = [...written.keys()].filter((name) => name.startsWith('assets/')).sort();
  const version = createHash('sha256').update(index).update(kept.join('\n')).digest('hex').slice(0, 10);
  await put('sw.js', await bundled('src/sw.js', { format: 'iife', define: { SW_VERSION: JSON.stringify(version), SW_FILES: JSON.stringify(['./', 'manifest.webmanifest', 'icon.svg', ...kept]) } }));
  await put('sw-off.js', await bundled('src/sw-off.js', { format: 'iife' }));
  /* The single files have a policy of their own, which one in a header would forbid. */
  const strict = `  Content-Security-Policy: ${headerPolicy}\n`;
  await put('_headers', Buffer.from(['/*\n  Referrer-Policy: no-referrer\n  X-Content-Type-Options: nosniff\n', ...['/', '/index.html', '/sw.js'].map((path) =>
    `${path}\n${strict}  Cache-Control: no-cache\n`), `/assets/*\n${strict}  Cache-Control: public, max-age=31536000, immutable\n`].join('')));

  await put('licences.txt', await licences());

  const sizes = [...written].filter(([name]) => /^assets\/|\.html$/.test(name))
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
    console.log(`${name.padEnd(36)}${String(bytes).padStart(9)} bytes${String(gzip).padStart(9)} gzip${first ? '' : name.includes('/') ? '  when asked for' : '  apart'}`);
  const sum = (/** @type {typeof sizes} */ list) => String(list.reduce((all, { gzip }) => all + gzip, 0)).padStart(30);
  console.log(`${'first visit'.padEnd(36)}${sum(sizes.filter(({ first }) => first))} gzip`);
  console.log(`${'in all'.padEnd(36)}${sum(sizes.filter(({ name, first }) => first || name.includes('/')))} gzip`);
}
