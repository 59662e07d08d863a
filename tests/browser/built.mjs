// SPDX-License-Identifier: Apache-2.0
/* The built files: what a host sends, what the policy allows, how much a first visit is. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { part } from './core.mjs';
import { say, test } from './harness.mjs';
import { build } from '../../web/build.mjs';

/* Bytes of a first visit with gzip, as last looked at, and how far they may jump from there unseen. */
const FIRST_VISIT = 319 * 1000;
const JUMP = 0.1;

/** @param {import('./site.mjs').Site} site */
export default function ({ folder, server }) {
  test('a first visit does not jump in bytes', () => {
    const html = readFileSync(join(folder, 'index.html'), 'utf8');
    const sent = ['index.html', ...readdirSync(join(folder, 'assets')).filter((name) => html.includes(`assets/${name}"`)).map((name) => `assets/${name}`)];
    const bytes = sent.map((name) => statSync(join(folder, `${name}.gz`)).size).reduce((all, one) => all + one);
    say(`${sent.length} files, ${bytes.toLocaleString('en')} bytes of gzip`);
    assert.ok(bytes < FIRST_VISIT * (1 + JUMP), `${bytes} bytes; if all of it is wanted, FIRST_VISIT is the new figure`);
    assert.ok(bytes > FIRST_VISIT * (1 - 2 * JUMP), `${bytes} bytes: make FIRST_VISIT so small too`);
  });

  test('beside each file is what it is in gzip and in brotli, which a host sends to who accepts it', async () => {
    const names = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((file) => file.isFile() && !/\.(gz|br)$|^_headers$/.test(file.name))
      .map((file) => relative(folder, join(file.parentPath, file.name)));
    for (const name of names) {
      const bytes = readFileSync(join(folder, name));
      assert.ok(gunzipSync(readFileSync(join(folder, `${name}.gz`))).equals(bytes), `${name}.gz`);
      assert.ok(brotliDecompressSync(readFileSync(join(folder, `${name}.br`))).equals(bytes), `${name}.br`);
    }
    for (const [accepted, encoding, file] of [['gzip, br', 'br', 'index.html.br'], ['gzip', 'gzip', 'index.html.gz'], ['identity', undefined, 'index.html']]) {
      const { headers } = await new Promise((done) => { get(server.url, { headers: { 'accept-encoding': /** @type {string} */ (accepted) } }, done); });
      assert.deepEqual([headers['content-encoding'], headers['content-type'], headers['content-length']],
        [encoding, 'text/html; charset=utf-8', String(statSync(join(folder, /** @type {string} */ (file))).size)]);
    }
  });

  test('the policy allows the script and the style that stand in the page, and no others; the header is as strict', () => {
    const html = readFileSync(join(folder, 'index.html'), 'utf8');
    const [, policy] = /** @type {RegExpExecArray} */ (/http-equiv="Content-Security-Policy" content="([^"]+)"/.exec(html));
    const inside = (/** @type {RegExp} */ of) => [...html.matchAll(of)].map(([, text]) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`);
    const rule = (/** @type {string} */ name) => policy.split('; ').find((one) => one.startsWith(name))?.split(' ').slice(1);
    assert.deepEqual(rule('script-src'), ["'self'", ...inside(/<script>([^<]*)<\/script>/g), "'wasm-unsafe-eval'"]);
    assert.deepEqual(rule('style-src'), inside(/<style>([^<]*)<\/style>/g));
    const sent = readFileSync(join(folder, '_headers'), 'utf8').matchAll(/Content-Security-Policy: (.*)/g);
    assert.deepEqual([...new Set([...sent].map(([, text]) => text))], [`${policy}; frame-ancestors 'none'`]);
  });

  test('built files hold no inline style, handler, innerHTML or foreign address', () => {
    const html = readFileSync(join(folder, 'index.html'), 'utf8');
    assert.doesNotMatch(html, /<[^>]*\sstyle=/);
    assert.doesNotMatch(html, /<[^>]*\son[a-z]+=/);
    assert.doesNotMatch(html, /(src|href)="(https?:)?\/\//);
    for (const name of readdirSync(join(folder, 'assets')).filter((file) => /\.(js|css)$/.test(file))) {
      const text = readFileSync(join(folder, 'assets', name), 'utf8');
      assert.doesNotMatch(text, /outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(/, name);
      assert.doesNotMatch(text, /url\(["']?https?:/, name);
      /* Preact knows innerHTML for dangerouslySetInnerHTML; the page must not use it. */
      for (const found of text.matchAll(/.{0,60}innerHTML.{0,40}/g)) assert.match(found[0], /__html/, found[0]);
    }
    for (const name of readdirSync(new URL('../../web/src/ui', import.meta.url))) {
      const text = readFileSync(new URL(`../../web/src/ui/${name}`, import.meta.url), 'utf8');
      assert.doesNotMatch(text, /innerHTML|dangerously|style=\{/i, name);
    }
  });

  test.nightly('build: the same sources make the same files, byte for byte', async () => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-build-'));
    for (const [name, asset = name.split('.')[0]] of [['recordings.wasm'], ['models.json'], ['rest.wasm'], ['first.wasm', 'tidemark']]) {
      writeFileSync(join(own, name), part(folder, asset));
    }
    const core = Buffer.from(/** @type {RegExpExecArray} */ (/id="part-core">([^<]*)</.exec(readFileSync(join(folder, 'embed.html'), 'utf8')))[1], 'base64');
    writeFileSync(join(own, 'tidemark.wasm'), gunzipSync(core));
    await build({ wasm: join(own, 'tidemark.wasm'), out: join(own, 'out') });
    const list = (/** @type {string} */ at) => readdirSync(at, { recursive: true, withFileTypes: true }).filter((file) => file.isFile())
      .map((file) => join(file.parentPath, file.name)).sort();
    const made = list(join(own, 'out'));
    assert.deepEqual(made.map((file) => relative(join(own, 'out'), file)), list(folder).map((file) => relative(folder, file)));
    for (const file of made) assert.ok(readFileSync(file).equals(readFileSync(join(folder, relative(join(own, 'out'), file)))), file);
    for (const name of ['preact', 'd3-shape', '@preact/signals']) assert.match(readFileSync(join(folder, 'licences.txt'), 'utf8'), new RegExp(`^${name} `, 'm'));
    rmSync(own, { recursive: true });
  });
}
