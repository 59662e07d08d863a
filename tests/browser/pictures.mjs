// SPDX-License-Identifier: Apache-2.0
/* Reference pictures: five states in both themes on desk and phone, and what high contrast, paper and no scripts make of the page; compared with a tolerance. --update writes them anew.
 * web/page.png, the picture in the README, is one of them. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { DESKTOP, PHONE, still, test } from './harness.mjs';
import { toWhatIf } from './site.mjs';

const folder = new URL('reference/', import.meta.url);
const inReadme = new URL('../../web/page.png', import.meta.url);

/* A point differs when it is off by more than FAR of 255 after averaging over blocks; numbers change with the core and letters
 * with the fonts of a machine, so a part of the points may. A moved column or a lost card is far more. */
const FAR = 28;
const PART = 0.09;

const STATES = {
  example: async () => {},
  'does-not-fit': async (/** @type {any} */ page) => {
    await page.evaluate(() => { location.hash = '#model=llava-1.5-7b&gpu=h100-80&batch=32&seq=1024&freeze=vision_tower&b.checkpointing=full&v=1'; });
    await page.locator('#compare .causes').waitFor();
    await page.locator('.closest').waitFor();
  },
  error: async (/** @type {any} */ page) => {
    await page.evaluate(() => { location.hash = '#model=llama-2-7b&gpu=h100-80&batch=4&v=1'; });
    await page.locator('.job-name', { hasText: 'Llama' }).waitFor();
    await page.evaluate(() => {
      const input = /** @type {HTMLInputElement} */ (document.getElementById('set-batch'));
      input.value = '0';
      input.dispatchEvent(new InputEvent('input', { bubbles: true }));
    });
    await page.locator('.nearest .button').first().waitFor();
  },
  details: async (/** @type {any} */ page) => {
    await page.locator('.factor-table tbody tr').nth(2).locator('.total .opens').click();
    await page.locator('.drawer .formula').first().waitFor();
  },
  map: async (/** @type {any} */ page) => {
    await toWhatIf(page);
    await page.getByRole('tab', { name: 'Heat map' }).click();
    await page.locator('.heat-state', { hasText: 'cells simulated' }).waitFor();
    await page.waitForFunction(() => !document.querySelector('.heat td.wait') && document.querySelector('.heat td'));
    await page.locator('#whatif').evaluate((/** @type {Element} */ one) => one.scrollIntoView({ block: 'start' }));
  },
};

/** The part of the points that differ, worked out by the browser. @param {any} page @param {Buffer} one @param {Buffer} other */
const difference = (page, one, other) => page.evaluate(async ([a, b, far]) => {
  const load = async (/** @type {string} */ text) => {
    const bitmap = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], { type: 'image/png' }));
    const [wide, high] = [Math.round(bitmap.width / 8), Math.round(bitmap.height / 8)];
    const canvas = new OffscreenCanvas(wide, high);
    const to = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d'));
    to.imageSmoothingQuality = 'high';
    to.drawImage(bitmap, 0, 0, wide, high);
    return { size: [bitmap.width, bitmap.height], data: to.getImageData(0, 0, wide, high).data };
  };
  const [x, y] = [await load(a), await load(b)];
  if (String(x.size) !== String(y.size)) return 1;
  let off = 0;
  for (let i = 0; i < x.data.length; i += 4) if (Math.max(...[0, 1, 2].map((k) => Math.abs(x.data[i + k] - y.data[i + k]))) > far) off++;
  return off / (x.data.length / 4);
}, [one.toString('base64'), other.toString('base64'), FAR]);

/* What is looked at every day; at night it is every state in both themes on desk and phone. */
const DAILY = ['example-light-desk', 'example-dark-phone', 'does-not-fit-dark-desk', 'error-light-phone', 'details-light-desk', 'map-dark-phone'];

/** @param {import('./site.mjs').Site} site @param {boolean} isUpdate */
export default function ({ visit }, isUpdate) {
  const compare = async (/** @type {any} */ page, /** @type {URL} */ file, isLive = true) => {
    await page.evaluate(() => /** @type {HTMLElement | null} */ (document.activeElement)?.blur());
    await page.mouse.move(0, 0);
    if (isLive) await still(page);
    const now = await page.screenshot();
    if (isUpdate) {
      mkdirSync(folder, { recursive: true });
      return writeFileSync(file, now);
    }
    assert.ok(existsSync(file), `${file.pathname} is not there; --update writes it`);
    const off = await difference(page, readFileSync(file), now);
    if (off > PART) writeFileSync(new URL(`../../build/${file.pathname.split('/').at(-1)}`, import.meta.url), now);
    assert.ok(off <= PART, `${(100 * off).toFixed(1)} % of ${file.pathname.split('/').at(-1)} differ; what is seen now is in build/`);
  };

  test('a moved part is seen', () => visit(async (page) => {
    const before = await page.screenshot();
    assert.equal(await difference(page, before, before), 0);
    await page.evaluate(() => { /** @type {HTMLElement} */ (document.querySelector('.pair')).hidden = true; });
    assert.ok(await difference(page, before, await page.screenshot()) > PART);
  }));

  for (const [state, act] of Object.entries(STATES)) {
    for (const scheme of ['light', 'dark']) {
      for (const [where, viewport] of /** @type {[string, any][]} */ ([['desk', DESKTOP], ['phone', PHONE]])) {
        const readme = state === 'example' && scheme === 'light' && where === 'desk';
        const add = DAILY.includes(`${state}-${scheme}-${where}`) ? test : test.nightly;
        add(`${state}, ${scheme}, ${where}`, () => visit(async (page) => {
          await act(page);
          await compare(page, readme ? inReadme : new URL(`${state}-${scheme}-${where}.png`, folder));
        }, { scheme, viewport, scale: readme ? 1 : 0.5 }));
      }
    }
  }

  /* High contrast: forced by the system, and asked for. */
  for (const scheme of /** @type {('light' | 'dark')[]} */ (['light', 'dark'])) {
    for (const [name, media] of Object.entries({ 'forced-colours': { forcedColors: 'active' }, contrast: { contrast: 'more' } })) {
      test.nightly(`${name}, ${scheme}`, () => visit(async (page) => {
        await page.emulateMedia({ ...media, colorScheme: scheme });
        await STATES['does-not-fit'](page);
        await compare(page, new URL(`${name}-${scheme}.png`, folder));
      }, { scheme, scale: 0.5 }));
    }
  }

  test.nightly('a baseline in the timeline, and a heat map, in forced colours', () => visit(async (page) => {
    await page.emulateMedia({ forcedColors: 'active' });
    await STATES['does-not-fit'](page);
    await page.locator('#timeline').evaluate((/** @type {Element} */ one) => one.scrollIntoView({ block: 'start' }));
    await page.locator('.baseline').waitFor({ state: 'attached' });
    await compare(page, new URL('baseline-forced-colours.png', folder));
    await STATES.map(page);
    await compare(page, new URL('map-forced-colours.png', folder));
  }, { scale: 0.5 }));

  test.nightly('the baseline in the timeline', () => visit(async (page) => {
    await STATES['does-not-fit'](page);
    await page.locator('#timeline').evaluate((/** @type {Element} */ one) => one.scrollIntoView({ block: 'start' }));
    await page.locator('.baseline').waitFor({ state: 'attached' });
    await compare(page, new URL('baseline.png', folder));
  }, { scale: 0.5 }));

  test('without scripts', () => visit((page) => compare(page, new URL('no-scripts.png', folder), false), { javaScript: false, scale: 0.5 }));

  test('printed', () => visit(async (page) => {
    await page.emulateMedia({ media: 'print' });
    await compare(page, new URL('print.png', folder));
  }, { scale: 0.5, viewport: { width: 794, height: 1123 } }));
}
