// SPDX-License-Identifier: Apache-2.0
/* Keys, screen readers, small screens, large text: what WCAG 2.2 AA asks, in Chromium. */
import assert from 'node:assert/strict';
import { changed, DESKTOP, isNightly, openContext, PHONE, ready, still, test, violations, WCAG } from './harness.mjs';
import { recorded } from './site.mjs';

const launch = (/** @type {string} */ name) => new URL(`../cli/files/launch/${name}`, import.meta.url).pathname;

/** @param {import('./site.mjs').Site} site */
export default function ({ browser, server, visit, field, choose, tab, focusIs, palette, clipboard, toWhatIf }) {
  /* ---- keys and readers ---- */

  test('keyboard: skip link, layers, timeline', () => visit(async (page) => {
    await page.keyboard.press('Tab');
    assert.match(await page.evaluate(() => document.activeElement?.textContent), /Skip to the result/);
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'result');

    const parts = page.locator('.icicle .part');
    await parts.first().focus();
    const first = await page.locator('.icicle [tabindex="0"]').getAttribute('aria-label');
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction((/** @type {string} */ old) => document.activeElement?.getAttribute('aria-label') !== old, first);
    /* what has the focus is outlined and read out */
    await page.waitForFunction(() => {
      const at = document.activeElement?.getBoundingClientRect();
      const outline = document.querySelector('.icicle .outline');
      return at && outline && Math.abs(outline.getBoundingClientRect().left - at.left) < 4 && getComputedStyle(outline).strokeWidth === '3px'
        && document.activeElement?.getAttribute('aria-label')?.startsWith(`${document.querySelector('#layers .readout b')?.textContent}:`);
    });
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction(() => document.activeElement?.classList.contains('layer'));
    await page.keyboard.press('Enter');
    await page.locator('.drawer .drawer-sum').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.drawer').waitFor({ state: 'detached' });
    await page.waitForFunction(() => document.activeElement?.classList.contains('layer'));
    await page.keyboard.press('ArrowUp');
    await page.waitForFunction(() => document.activeElement?.classList.contains('part'));
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Everything' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Everything' }).waitFor({ state: 'detached' });
    assert.equal(await page.locator('.icicle [tabindex="0"]').count(), 1);

    const slider = page.getByRole('slider', { name: 'Memory timeline' });
    await slider.focus();
    const peak = await slider.getAttribute('aria-valuenow');
    await page.keyboard.press('Home');
    assert.equal(await slider.getAttribute('aria-valuenow'), '0');
    await page.keyboard.press('ArrowRight');
    assert.equal(await slider.getAttribute('aria-valuenow'), '1');
    await page.keyboard.press('p');
    assert.equal(await slider.getAttribute('aria-valuenow'), peak);
    assert.match(await slider.getAttribute('aria-valuetext'), /allocated/);
  }));

  test('every Tab stop is visible and named', () => visit(async (page) => {
    const seen = new Set();
    for (let i = 0; i < 80; i++) {
      await page.keyboard.press('Tab');
      await page.waitForFunction(() => document.activeElement === document.body || document.activeElement?.getBoundingClientRect().height); /* what comes when it is near */
      const stop = await page.evaluate(() => {
        const at = /** @type {HTMLElement} */ (document.activeElement);
        if (!at || at === document.body) return null;
        const box = at.getBoundingClientRect();
        return { id: at.id || at.className?.toString() || at.tagName, size: Math.min(box.width, box.height), inView: box.bottom > 0 && box.top < innerHeight };
      });
      if (!stop) break;
      seen.add(stop.id);
      assert.ok(stop.size > 0 && stop.inView, JSON.stringify(stop));
    }
    assert.ok(seen.has('model') && seen.has('set-batch') && seen.has('plot'), [...seen].join(' '));
  }));

  test('the numbers of the table are one tab stop; arrows move', () => visit(async (page) => {
    assert.equal(await page.locator('.factor-table .opens[tabindex="0"]').count(), 1);
    await page.locator('.factor-table .opens[tabindex="0"]').focus();
    const first = await page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    await page.keyboard.press('ArrowDown');
    const below = await page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    assert.match(first, /^Parameters:/);
    assert.match(below, /^Gradients:/);
    await page.keyboard.press('ArrowLeft');
    assert.match(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), /^Gradients, Output head:/);
    assert.equal(await page.locator('.factor-table .opens[tabindex="0"]').count(), 1);
  }));

  test('a whole session by keyboard', () => visit(async (page) => {
    await page.keyboard.press('/');
    await page.keyboard.type('llama-2-7b');
    await changed(page, () => page.keyboard.press('Enter'));
    await palette(page, 'micro batch');
    await page.keyboard.press('Enter');
    await focusIs(page, '#set-batch');
    await changed(page, () => page.keyboard.press('ArrowUp'));
    await page.keyboard.press('Escape');
    await page.locator('main').focus();
    await page.keyboard.press('2');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.locator('.drawer .formula').first().waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('3');
    await page.keyboard.press('ArrowRight');
    await toWhatIf(page);
    await page.locator('[role="tab"]').first().waitFor();
    await page.keyboard.press('4');
    await page.locator('.whatif .button').first().waitFor();
    for (let i = 0; i < 3 && !(await page.evaluate(() => document.activeElement?.matches('.whatif .button'))); i++) await page.keyboard.press('Tab');
    await focusIs(page, '.whatif .button');
    const covered = await page.evaluate(() => {
      const at = /** @type {Element} */ (document.activeElement);
      const box = at.getBoundingClientRect();
      const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
      return !at.contains(top) && getComputedStyle(at).outlineStyle !== 'none';
    });
    assert.equal(covered, false);
    await changed(page, () => page.keyboard.press('Enter'));
    await page.locator('main').focus();
    await page.keyboard.press('s');
    await page.locator('.said').waitFor();
    assert.match(await clipboard(page), /#model=llama-2-7b/);
  }));

  test('the live region speaks once per settled change', () => visit(async (page) => {
    await page.evaluate(() => {
      const said = /** @type {string[]} */ ([]);
      Object.assign(window, { said });
      new MutationObserver(() => said.push(document.getElementById('spoken')?.textContent ?? '')).observe(
        /** @type {Node} */ (document.getElementById('spoken')), { childList: true, characterData: true, subtree: true });
    });
    const heard = () => page.evaluate(() => /** @type {any} */ (window).said);
    for (const [round, values] of [['2', '24', '240'], ['3', '34', '340']].entries()) {
      await page.evaluate((/** @type {string[]} */ list) => {
        const input = /** @type {HTMLInputElement} */ (document.getElementById('set-batch'));
        for (const value of list) {
          input.value = value;
          input.dispatchEvent(new InputEvent('input', { bubbles: true }));
        }
      }, values);
      await page.waitForFunction((/** @type {number} */ more) => /** @type {any} */ (window).said.length >= more, round + 1);
    }
    const said = await heard();
    assert.equal(said.length, 2, said.join(' | '));
    assert.match(said[0], /gibibytes/);
  }));

  test('what a screen reader is told of the result', () => visit(async (page) => {
    const said = await page.locator('main').ariaSnapshot();
    for (const line of [/heading "What uses the memory/, /rowheader "Parameters"/, /columnheader "Total"/, /img ".*gibibytes used of .* on H100/, /slider "Memory timeline"/,
      /group "\d+ parts\. Arrows move/, /heading "Assumptions/]) assert.match(said, line);
  }));

  /* ---- sizes ---- */

  test('on a phone the settings open as a sheet', () => visit(async (page) => {
    assert.equal(await page.locator('.side').isVisible(), false);
    await page.getByRole('button', { name: 'Settings' }).click();
    await changed(page, () => field(page, 'batch').fill('2'));
    await page.getByRole('button', { name: 'Done' }).click();
    assert.equal(await page.locator('.side').isVisible(), false);
    await page.locator('.sticky-verdict').waitFor();
  }, { viewport: PHONE }));

  test('on a phone the verdict stays in sight, in the settings too', () => visit(async (page) => {
    await page.evaluate(() => scrollTo(0, 900));
    assert.equal(await page.locator('.sticky-verdict').evaluate((/** @type {Element} */ one) => one.getBoundingClientRect().top < 120), true);
    await page.getByRole('button', { name: 'Settings' }).click();
    assert.match(await page.locator('.sheet-verdict').innerText(), /GiB\s+Fits/);
    await page.getByRole('button', { name: 'Done' }).click();
    await ready(page);
  }, { viewport: PHONE }));

  test('nothing jumps, as the page starts and as a value is typed', async () => {
    for (const viewport of [DESKTOP, PHONE]) {
      const { context, page } = await openContext(browser, { viewport });
      await page.addInitScript(() => {
        Object.assign(window, { shift: 0 });
        new PerformanceObserver((list) => { for (const entry of list.getEntries()) /** @type {any} */ (window).shift += /** @type {any} */ (entry).value; }).observe({ type: 'layout-shift', buffered: true });
      });
      await page.goto(server.url);
      await ready(page);
      await still(page);
      const shift = await page.evaluate(() => /** @type {any} */ (window).shift);
      assert.ok(shift < 0.02, `${viewport.width}: ${shift}`);
      if (viewport === DESKTOP) {
        const top = () => field(page, 'batch').evaluate((/** @type {Element} */ one) => one.getBoundingClientRect().top);
        const before = await top();
        await changed(page, () => field(page, 'batch').fill('5'));
        assert.equal(await top(), before);
      }
      await context.close();
    }
  });

  test('nothing scrolls sideways at 1440, 1024, 390 and 320', async () => {
    for (const width of [1440, 1024, 768, 390, 320]) {
      await visit(async (page) => {
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
      }, { viewport: { width, height: 800 } });
    }
  });

  test.nightly('at 400 % nothing goes sideways, whatever is open and however long the title', () => visit(async (page) => {
    const narrow = async (/** @type {string} */ state) => assert.deepEqual(await page.evaluate(() => (document.documentElement.scrollWidth <= innerWidth ? [] : [...document.body.querySelectorAll('*')].filter((one) => {
      if (one.getBoundingClientRect().right <= innerWidth) return false;
      /* What an ancestor cuts off or scrolls does not widen the page, unless it is placed outside of it. */
      const isPlaced = getComputedStyle(one).position === 'absolute';
      for (let up = one.parentElement; up && up !== document.body; up = up.parentElement) {
        if (getComputedStyle(up).overflowX !== 'visible') return isPlaced && !up.contains(/** @type {HTMLElement} */ (one).offsetParent);
      }
      return true;
    }).map((one) => `${one.getBoundingClientRect().right}: ${one.outerHTML.slice(0, 200)}`))), [], state);
    await page.locator('#compare .causes').waitFor();
    await narrow('baseline');
    await page.locator('.opens:visible').first().click();
    await page.locator('.drawer .formula').first().waitFor();
    await narrow('details');
    await page.keyboard.press('Escape');
    await toWhatIf(page);
    for (const name of ['Reduce memory', 'Largest that fits', 'GPUs that fit']) {
      await page.getByRole('tab', { name }).click();
      await page.locator('.whatif tbody tr').first().waitFor();
      await narrow(name);
    }
    await page.getByRole('tab', { name: 'Heat map' }).click();
    await page.locator('.heat td:not(.wait)').first().waitFor();
    await narrow('heat map');
    for (const summary of await page.locator('.twin > summary').all()) await summary.click();
    await narrow('tables');
    await page.setInputFiles('#chooser', [new URL('../cli/files/launch/arguments.yaml', import.meta.url).pathname, new URL('../cli/files/launch/zero2.json', import.meta.url).pathname]);
    await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor({ state: 'attached' });
    await page.getByRole('button', { name: 'Settings' }).click();
    for (const summary of await page.locator('.file summary').all()) await summary.click();
    await narrow('files');
  }, { viewport: { width: 320, height: 256 }, at: `#model=gpt2&gpu=t4&title=${'W'.repeat(80)}&b.batch=4&v=1` }));

  test('text of twice its size cuts nothing off, and nothing goes sideways', async () => {
    for (const width of isNightly ? [1440, 1024, 390] : [1024, 390]) {
      await visit(async (page) => {
        await page.evaluate(() => {
          const sizes = [...document.body.querySelectorAll('*')].filter((one) => one instanceof HTMLElement)
            .map((one) => /** @type {[HTMLElement, number]} */ ([one, parseFloat(getComputedStyle(one).fontSize)]));
          for (const [one, size] of sizes) one.style.setProperty('font-size', `${2 * size}px`, 'important');
        });
        await still(page);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `sideways at ${width}`);
        const cut = await page.evaluate(() => [...document.querySelectorAll('.button, .pill, .job-name, .job-words, .big, .facts dd, label, .numbers td, h2')]
          .filter((one) => one.clientWidth > 1 && getComputedStyle(one).overflow !== 'visible' && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent));
        assert.deepEqual(cut, [], `${width}`);
        const [total, share] = await page.evaluate(() => ['.total', '.share'].map((cell) => document.querySelector(`.factor-table tbody ${cell}`)?.getBoundingClientRect()));
        assert.ok(total.right <= share.left + 1, 'the columns that stay do not cover each other');
        const [header, side] = await page.evaluate(() => ['.top', '.columns'].map((one) => document.querySelector(one)?.getBoundingClientRect()));
        assert.ok(header.bottom <= side.top + 1, 'the header covers nothing');
      }, { viewport: { width, height: 900 } });
    }
  });

  test('larger text and spacing cut nothing off', () => visit(async (page) => {
    await page.evaluate(() => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync('* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; } p { margin-bottom: 2em !important; }');
      document.adoptedStyleSheets = [sheet];
    });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 640);
    const cut = await page.evaluate(() => [...document.querySelectorAll('.button, .pill, .job-name, .field-error, .big')]
      .filter((one) => one.clientWidth > 0 && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 2)).map((one) => one.textContent));
    assert.deepEqual(cut, []);
  }, { viewport: { width: 640, height: 450 } }));

  test('printed, it is verdict, tables, assumptions and link, without controls', () => visit(async (page) => {
    await page.emulateMedia({ media: 'print' });
    for (const part of ['.verdict', '.factor-table', '.tensors', '.assumptions', '.print-only']) assert.equal(await page.locator(part).first().isVisible(), true, part);
    for (const control of ['.side', '.top-actions', '#whatif', '.timeline-tools']) assert.equal(await page.locator(control).first().isVisible(), false, control);
    assert.match(await page.locator('.print-only').innerText(), /#model=llava-1\.5-7b/);
  }));

  /* ---- axe ---- */

  for (const scheme of /** @type {('light' | 'dark')[]} */ (['light', 'dark'])) {
    for (const viewport of [DESKTOP, PHONE, { width: 320, height: 700 }]) {
      const add = scheme === 'light' && viewport === DESKTOP ? test : test.nightly;
      add(`axe finds nothing in any state, ${scheme}, ${viewport.width}`, async () => {
        const found = /** @type {string[]} */ ([]);
        const small = viewport.width < 900;
        await visit(async (page) => {
          /* Of what is open, that alone: the page around it has been checked. */
          const check = async (/** @type {string} */ state, /** @type {string[]} */ ...places) => {
            for (const line of await violations(page, places, [...WCAG, 'best-practice'])) found.push(`${scheme} ${viewport.width} ${state}: ${line}`);
          };
          await check('first');
          for (const summary of await page.locator('.twin > summary').all()) await summary.click();
          await check('tables', '.twin');
          if (small) {
            await page.getByRole('button', { name: 'Settings' }).click();
            await check('sheet', '.side');
          }
          if (small) await page.getByRole('button', { name: 'Done' }).click();
          await page.keyboard.press('Control+k');
          await page.locator('.palette').waitFor();
          await page.keyboard.type('zero');
          await check('palette', 'dialog[open]');
          await page.keyboard.press('Escape');
          await page.locator('main').focus();
          await page.keyboard.press('?');
          await page.locator('.keys').waitFor();
          await check('help', 'dialog[open]');
          await page.keyboard.press('Escape');
          await page.getByRole('button', { name: 'Share' }).click();
          await check('menu', '.top');
          await page.keyboard.press('Escape');
          await page.locator('.opens:visible').first().click();
          await page.locator('.formula').first().waitFor();
          await check('details', '.drawer');
          await page.keyboard.press('Escape');
          await page.locator('.plot').focus();
          await page.keyboard.press(']');
          await page.locator('.event-readout').waitFor();
          await page.keyboard.press('c');
          await page.locator('#compare').waitFor();
          await toWhatIf(page);
          await check('advice, baseline, events');
          await page.getByRole('tab', { name: 'Heat map' }).click();
          await page.waitForFunction(() => document.querySelectorAll('.heat td:not(.wait)').length > 20);
          await check('heat map', '#whatif');
          if (small) await page.getByRole('button', { name: 'Settings' }).click();
          await page.locator('#more-settings > summary').click();
          await page.locator('#model').click();
          await check('picker', '.side');
          await page.keyboard.type('some-lab/some-model');
          await check('picker, elsewhere', '.side');
          await page.keyboard.press('Escape');
          if (small) await page.getByRole('button', { name: 'Settings' }).click({ timeout: 1000 }).catch(() => {});
          await field(page, 'batch').fill('0');
          await page.locator('.field-error').waitFor();
          await check('error');
        }, { scheme, viewport, expected: /Content Security Policy/ });
        assert.deepEqual(found, []);
      });
    }
  }

  test('the largest tensors have their origin in sight at each width, long shapes too', () => visit(async (page) => {
    for (const width of [1440, 1160, 1000, 390]) {
      await page.setViewportSize({ width, height: 900 });
      assert.ok(await page.locator('.tensors').evaluate((table) => table.scrollWidth <= /** @type {HTMLElement} */ (table.parentElement).clientWidth), `cut at ${width}`);
      assert.ok(await page.locator('.tensors .from-head').first().isVisible());
    }
  }, { at: '#model=llama-3.1-8b&gpu=rtx-4090&adapter=lora&quant=nf4&batch=4&seq=2048&trainer=dpo&v=1' }));

  test('axe finds nothing in a recording and in the cards of files, in both themes, at 1440, 390 and 320', async () => {
    for (const scheme of isNightly ? /** @type {const} */ (['light', 'dark']) : ['light']) {
      await visit(async (page) => {
        await choose(page, recorded('snapshot-expand.pickle.gz'));
        await page.getByText('With other options').waitFor();
        for (const width of [1440, 390, 320]) {
          await page.setViewportSize({ width, height: 900 });
          assert.deepEqual(await violations(page), [], `recording, ${scheme}, ${width}`);
          assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `sideways at ${width}`);
        }
        await page.setViewportSize({ width: 1440, height: 900 });
        await choose(page, [launch('arguments.yaml'), launch('zero2.json')]);
        await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor();
        for (const summary of await page.locator('.file summary').all()) await summary.click();
        assert.deepEqual(await violations(page), [], `files, ${scheme}`);
      }, { scheme });
    }
  });

  test('axe finds nothing in events and segments, in both themes, at 1440, 390 and 320', async () => {
    for (const [scheme, width] of /** @type {['light' | 'dark', number][]} */ (isNightly ? [['light', 1440], ['dark', 1440], ['light', 390], ['dark', 320]] : [['dark', 320]])) {
      await visit(async (page) => {
        await page.getByText('Event by event, and the allocator’s blocks').click();
        await page.locator('#segments-title').waitFor();
        await page.getByText('Table of segments').click();
        assert.deepEqual(await violations(page), [], `job, ${scheme}, ${width}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `no sideways scrolling at ${width}`);
        await choose(page, recorded('snapshot-streams.pickle.gz'));
        await page.getByText('With other options').waitFor();
        await page.locator('#segments-title').waitFor();
        assert.deepEqual(await violations(page), [], `recording, ${scheme}, ${width}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `no sideways scrolling at ${width}`);
      }, { scheme, viewport: { width, height: 900 } });
    }
  });
}
