// SPDX-License-Identifier: Apache-2.0
/* Scripts and styles of the page, bundled and made small. */
import { readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { build, transform } from 'esbuild';
import { minify } from 'terser';

const here = import.meta.dirname;
const PAGE = join(here, 'src/ui/App.jsx');
const common = /** @type {import('esbuild').BuildOptions} */ ({
  bundle: true, minify: true, format: 'esm', target: 'es2023', write: false, legalComments: 'none', metafile: true,
  jsx: 'automatic', jsxImportSource: 'preact', absWorkingDir: here, logLevel: 'warning', charset: 'utf8',
});

/* The style of what is behind a click comes with its chunk, as text. */
const styleOfChunk = /** @type {import('esbuild').Plugin} */ ({
  name: 'style of a chunk',
  setup(of) {
    of.onLoad({ filter: /\/src\/.*\.css$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, 'utf8'), { loader: 'css', minify: true });
      return { loader: 'text', contents: code.trim() };
    });
  },
});

/* What is behind a click runs after the page does. Said by an import, so that esbuild keeps all that both use in one chunk: else each set of
 * chunks that share something has one of its own. */
const afterPage = /** @type {import('esbuild').Plugin} */ ({
  name: 'after the page',
  setup(of) {
    const isLater = new Set();
    of.onResolve({ filter: /^\.{1,2}\// }, async ({ kind, path, ...where }) => {
      if (kind !== 'dynamic-import' || where.pluginData === afterPage) return null;
      const found = await of.resolve(path, { kind, ...where, pluginData: afterPage });
      isLater.add(found.path);
      return found;
    });
    of.onLoad({ filter: /\/src\/.*\.jsx?$/ }, async ({ path }) => (isLater.has(path)
      ? { loader: 'jsx', contents: `import '${PAGE}';${await readFile(path, 'utf8')}` } : null));
  },
});

/* Packages that a bundle for the page took code from. */
const shipped = new Set();

/** A bundle once more by terser, which finds what esbuild leaves. @param {string} text */
async function smaller(text) {
  const { code } = await minify(text, { module: !text.startsWith('(()=>{'), ecma: 2020, compress: { passes: 3 } });
  return Buffer.from(/** @type {string} */ (code));
}

/** A script for the page. @param {string} entry @param {import('esbuild').BuildOptions} [more]
 * @returns {Promise<{name: string, bytes: Buffer}[]>} the entry first, then its chunks */
export async function scripts(entry, more) {
  const plugins = [styleOfChunk, ...(more?.splitting ? [afterPage] : [])];
  const { outputFiles, metafile } = await build({ ...common, plugins, entryPoints: [entry], ...more });
  const { inputs, outputs } = /** @type {import('esbuild').Metafile} */ (metafile);
  for (const input of Object.keys(inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input);
    if (found) shipped.add(found[1]);
  }
  const first = Object.keys(outputs).find((path) => outputs[path].entryPoint === entry) ?? '';
  const made = /** @type {import('esbuild').OutputFile[]} */ (outputFiles)
    .map(async ({ path, text }) => ({ name: basename(path), bytes: await smaller(text) }));
  return (await Promise.all(made)).sort((a, b) => Number(b.name === basename(first)) - Number(a.name === basename(first)));
}

/** A script in one file. @param {string} entry @param {import('esbuild').BuildOptions} [more] */
export const script = async (entry, more) => (await scripts(entry, more))[0].bytes;

/** A program that Node runs while the page is built. @param {string} entry @param {import('esbuild').BuildOptions} more @returns {Promise<any>} its module */
export async function program(entry, more) {
  const { outputFiles } = await build({ ...common, plugins: [styleOfChunk], entryPoints: [entry], platform: 'node', minify: false, ...more });
  const [{ contents }] = /** @type {import('esbuild').OutputFile[]} */ (outputFiles);
  return import(`data:text/javascript;base64,${Buffer.from(contents).toString('base64')}`);
}

/** @param {string} entry */
export async function style(entry) {
  const { outputFiles } = await build({ ...common, entryPoints: [entry] });
  return /** @type {import('esbuild').OutputFile[]} */ (outputFiles)[0].text.trim();
}

/** The licences of the packages in the bundles so far, as their authors ask. */
export async function licences() {
  const texts = [];
  for (const name of [...shipped].sort()) {
    const folder = join(here, 'node_modules', name);
    const { version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    texts.push(`${name} ${version} (${license})\n\n${file ? await readFile(join(folder, file), 'utf8') : ''}`);
  }
  return Buffer.from(texts.join(`\n${'-'.repeat(80)}\n\n`));
}
