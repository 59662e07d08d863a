// SPDX-License-Identifier: Apache-2.0
/* Reference pictures: five states in both themes on desk and phone, and what high contrast, paper and no scripts make of the page; compared with a tolerance. --update writes them anew.
 * web/page.png, the picture in the README, is one of them. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { DESKTOP, PHONE, still, test } from './harness.mjs';
import { toWhatIf } from './site.mjs';

const folder = new URL('reference/', import.meta.url);
const inReadme = new URL('../../web/page.png', import.meta.url);

/* Averaged over blocks of SIDE points. Letters are drawn differently from machine to machine, and figures change with the core: both change how light a
 * block is, by less than FAR of 255 but for few. They never change its colour: text is grey, so a block whose colour is off by more than TINT is another colour, a part
 * that moved, came or went. Of such blocks a picture may have few (a chart's edge moves with its figures), and no heap of them that touch. */
const SIDE = 8;
const FAR = 28;
const TINT = 8;
const PART = 0.06;
const TINTED = 0.003;
const HEAP = 0.002;

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

/** @typedef {{light: number, tinted: number, heap: number}} Difference  parts of all blocks: those that are lighter or darker, those of another colour, and the most of these that touch */

/** How two pictures differ, worked out by the browser. @param {any} page @param {Buffer} one @param {Buffer} other @returns {Promise<Difference>} */
const difference = (page, one, other) => page.evaluate(async ([a, b, side, far, tint]) => {
  const load = async (/** @type {string} */ text) => {
    const bitmap = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], { type: 'image/png' }));
    const [wide, high] = [Math.round(bitmap.width / side), Math.round(bitmap.height / side)];
    const canvas = new OffscreenCanvas(wide, high);
    const to = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d'));
    to.imageSmoothingQuality = 'high';
    to.drawImage(bitmap, 0, 0, wide, high);
    return { size: [bitmap.width, bitmap.height], wide, high, data: to.getImageData(0, 0, wide, high).data };
  };
  const [x, y] = [await load(a), await load(b)];
  if (String(x.size) !== String(y.size)) return { light: 1, tinted: 1, heap: 1 };
  const { wide, high } = x;
  const all = wide * high;
  const isTinted = new Uint8Array(all);
  let light = 0;
  for (let i = 0; i < all; i++) {
    const [red, green, blue] = [0, 1, 2].map((k) => x.data[4 * i + k] - y.data[4 * i + k]);
    const grey = 0.299 * red + 0.587 * green + 0.114 * blue;
    if (Math.abs(grey) > far) light++;
    isTinted[i] = Number(Math.max(Math.abs(red - grey), Math.abs(green - grey), Math.abs(blue - grey)) > tint);
  }
  const tinted = isTinted.reduce((sum, one) => sum + one, 0);
  let heap = 0;
  for (let i = 0; i < all; i++) {
    let size = 0;
    for (const left = isTinted[i] ? [i] : []; left.length;) {
      const at = /** @type {number} */ (left.pop());
      if (!isTinted[at]) continue;
      isTinted[at] = 0;
      size++;
      const column = at % wide;
      left.push(...[column > 0 ? at - 1 : -1, column < wide - 1 ? at + 1 : -1, at - wide, at + wide].filter((to) => to >= 0 && to < all));
    }
    heap = Math.max(heap, size);
  }
  return { light: light / all, tinted: tinted / all, heap: heap / all };
}, [one.toString('base64'), other.toString('base64'), SIDE, FAR, TINT]);

/** @param {Difference} off */
const isAnother = ({ light, tinted, heap }) => light > PART || tinted > TINTED || heap > HEAP;

/** @param {Difference} off */
const inWords = (off) => Object.entries(off).map(([name, part]) => `${name} ${(100 * part).toFixed(2)} %`).join(', ');

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
    if (isAnother(off)) writeFileSync(new URL(`../../build/${file.pathname.split('/').at(-1)}`, import.meta.url), now);
    assert.ok(!isAnother(off), `${file.pathname.split('/').at(-1)} differs: ${inWords(off)}; what is seen now is in build/`);
  };

  test('what moved, went or has another colour is seen, other letters and figures are not', () => visit(async (page) => {
    const look = async () => { await still(page); return page.screenshot(); };
    const first = await look();
    assert.deepEqual(await difference(page, first, await look()), { light: 0, tinted: 0, heap: 0 });
    /** @type {[string, string, boolean][]} */
    const changes = [
      ['the pair of panels is gone', '.pair { display: none }', true],
      ['the settings are on the other side', '.columns { direction: rtl }', true],
      ['labels are red', '.label-row label { color: #c00 }', true],
      ['a chart lost its colours', '.mark { fill: #888 }', true],
      ['the verdict has another colour', '.verdict .pill { background: #fdebc8 !important; color: #854d00 !important }', true],
      ['a column is cut', '.side { width: 240px; overflow: hidden }', true],
      ['other letters', 'body { font-family: "DejaVu Sans Condensed", "Noto Sans", serif; font-kerning: none; font-size-adjust: .52 }', false],
      ['other figures', '.bytes { letter-spacing: .4px }', false],
    ];
    for (const [name, css, isSeen] of changes) {
      const before = await look();
      await page.evaluate((/** @type {string} */ text) => {
        const sheet = new CSSStyleSheet();
        sheet.replaceSync(text);
        document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      }, css);
      const off = await difference(page, before, await look());
      assert.equal(isAnother(off), isSeen, `${name}: ${inWords(off)}`);
      await page.evaluate(() => { document.adoptedStyleSheets = document.adoptedStyleSheets.slice(0, -1); });
    }
  }, { scale: 0.5 }));

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
    await page.locator('.whatif tbody tr').first().waitFor();
    await compare(page, new URL('baseline-forced-colours.png', folder));
    await STATES.map(page);
    await compare(page, new URL('map-forced-colours.png', folder));
  }, { scale: 0.5 }));

  test.nightly('the baseline in the timeline', () => visit(async (page) => {
    await STATES['does-not-fit'](page);
    await page.locator('#timeline').evaluate((/** @type {Element} */ one) => one.scrollIntoView({ block: 'start' }));
    await page.locator('.baseline').waitFor({ state: 'attached' });
    await page.locator('.whatif tbody tr').first().waitFor();
    await compare(page, new URL('baseline.png', folder));
  }, { scale: 0.5 }));

  test('without scripts', () => visit((page) => compare(page, new URL('no-scripts.png', folder), false), { javaScript: false, scale: 0.5 }));

  test('printed', () => visit(async (page) => {
    await page.emulateMedia({ media: 'print' });
    await compare(page, new URL('print.png', folder));
  }, { scale: 0.5, viewport: { width: 794, height: 1123 } }));
}
