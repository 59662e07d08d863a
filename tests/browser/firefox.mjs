// SPDX-License-Identifier: Apache-2.0
/* Firefox ESR, over WebDriver BiDi, as smoke.mjs drives an engine. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));
const QUIET = { 'datareporting.policy.dataSubmissionEnabled': false, 'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false };

/** @returns {import('./smoke.mjs').Engine | string} why there is none */
export function firefox() {
  const executablePath = [process.env.FIREFOX, '/usr/bin/firefox-esr', '/usr/bin/firefox'].find((path) => path && existsSync(path));
  if (!executablePath) return 'no Firefox here (Debian: apt-get install firefox-esr), and FIREFOX does not name one';
  /** @type {any} */
  let browser = null;

  return {
    name: 'firefox',
    async open() {
      browser ??= await fromWeb('puppeteer-core').launch({ browser: 'firefox', executablePath, headless: true, extraPrefsFirefox: QUIET });
      const page = await browser.newPage();
      /** @type {string[]} */
      const problems = [];
      /** @type {string[]} */
      const requests = [];
      page.on('pageerror', (/** @type {Error} */ error) => problems.push(String(error)));
      page.on('request', (/** @type {any} */ request) => requests.push(request.url()));
      await page.setViewport({ width: 1440, height: 900 });
      return {
        problems, requests,
        go: (url) => page.goto(url, { waitUntil: 'domcontentloaded' }),
        back: () => page.evaluate(() => history.back()),
        run: (act, ...args) => page.evaluate(act, ...args),
        type: (text) => page.keyboard.type(text),
        async press(key) {
          const keys = key.split('+');
          for (const one of keys) await page.keyboard.down(one);
          for (const one of keys.reverse()) await page.keyboard.up(one);
        },
        choose: async (path) => (await page.$('#chooser')).uploadFile(path),
        close: () => page.close(),
      };
    },
    close: () => browser?.close(),
  };
}
