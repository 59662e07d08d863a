// SPDX-License-Identifier: Apache-2.0
/* WebKitGTK's MiniBrowser on a display of its own, by plain WebDriver calls, as smoke.mjs drives an engine. */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/* As WebDriver writes keys that are no letters. */
const KEYS = /** @type {Record<string, string>} */ ({ Enter: '\ue007', Escape: '\ue00c', Tab: '\ue004', Backspace: '\ue003', Control: '\ue009', Shift: '\ue008',
  ArrowLeft: '\ue012', ArrowUp: '\ue013', ArrowRight: '\ue014', ArrowDown: '\ue015', Home: '\ue011', End: '\ue010' });
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

function miniBrowser() {
  if (process.env.WEBKIT) return process.env.WEBKIT;
  const multiarch = `/usr/lib/${spawnSync('gcc', ['-dumpmachine'], { encoding: 'utf8' }).stdout?.trim()}`;
  for (const version of ['webkitgtk-6.0', 'webkit2gtk-4.1', 'webkit2gtk-4.0']) {
    try {
      if (readdirSync(join(multiarch, version)).includes('MiniBrowser')) return join(multiarch, version, 'MiniBrowser');
    } catch { /* not this one */ }
  }
  return null;
}

const freePort = () => new Promise((done) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    server.close(() => done(port));
  });
});

/** @returns {import('./smoke.mjs').Engine | string} why there is none */
export function webkit() {
  const binary = miniBrowser();
  const lacks = ['WebKitWebDriver', 'Xvfb'].filter((program) => spawnSync('sh', ['-c', `command -v ${program}`]).status !== 0);
  if (!binary || lacks.length) return `${[...(binary ? [] : ['MiniBrowser']), ...lacks].join(', ')} not found (Debian: apt-get install webkit2gtk-driver xvfb)`;
  /** @type {(() => void)[]} */
  const ends = [];
  const close = () => ends.splice(0).forEach((end) => end());
  process.on('exit', close);
  /** @type {Promise<string> | null} */
  let address = null;

  /** The driver, on a display and with a profile of its own. @returns {Promise<string>} where it listens */
  async function start() {
    const home = mkdtempSync(join(tmpdir(), 'tidemark-webkit-'));
    const screen = spawn('Xvfb', ['-displayfd', '1', '-screen', '0', '1440x1000x24', '-nolisten', 'tcp'], { stdio: ['ignore', 'pipe', 'ignore'] });
    const display = await new Promise((done, fail) => {
      screen.stdout.once('data', (/** @type {Buffer} */ bytes) => done(String(bytes).trim()));
      screen.once('exit', () => fail(new Error('Xvfb ended')));
    });
    const port = await freePort();
    const driver = spawn('WebKitWebDriver', [`--port=${port}`], { stdio: 'ignore', env: { ...process.env, DISPLAY: `:${display}`, HOME: home, XDG_RUNTIME_DIR: home,
      GSETTINGS_BACKEND: 'memory', NO_AT_BRIDGE: '1', WEBKIT_DISABLE_DMABUF_RENDERER: '1', LIBGL_ALWAYS_SOFTWARE: '1' } });
    ends.push(() => driver.kill(), () => screen.kill(), () => rmSync(home, { recursive: true, force: true }));
    const at = `http://127.0.0.1:${port}`;
    for (const end = Date.now() + 30000;;) {
      if (await fetch(`${at}/status`).then((response) => response.ok, () => false)) return at;
      if (Date.now() > end || driver.exitCode !== null) throw new Error('WebKitWebDriver does not answer');
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** @param {string} method @param {string} path @param {object} [body] @param {number} [limitMs] @returns {Promise<any>} */
  async function call(method, path, body, limitMs = 150000) {
    const at = await (address ??= start());
    const response = await fetch(at + path, { method, body: body && JSON.stringify(body), signal: AbortSignal.timeout(limitMs) })
      .catch((error) => { throw new Error(`WebKitWebDriver, ${method} ${path}: ${error}`); });
    const { value } = /** @type {any} */ (await response.json());
    if (value?.error) throw new Error(`${value.error}: ${value.message}`);
    return value;
  }

  /** A driver that does not get its browser to answer is ended; the next one may. */
  async function session() {
    const wanted = { capabilities: { alwaysMatch: { 'webkitgtk:browserOptions': { binary, args: ['--automation'] } } } };
    return call('POST', '/session', wanted, 60000).catch(() => {
      close();
      address = null;
      return call('POST', '/session', wanted, 60000);
    });
  }

  return {
    name: 'webkit',
    async open() {
      const { sessionId } = await session();
      const at = `/session/${sessionId}`;
      await call('POST', `${at}/timeouts`, { script: 120000 });
      await call('POST', `${at}/window/rect`, { width: 1440, height: 1000 });
      /** @type {string[]} */
      const problems = [];
      /** @param {Function} act @param {any[]} args */
      const run = async (act, ...args) => {
        const { is, problem } = await call('POST', `${at}/execute/async`, { args, script: `const done = arguments[arguments.length - 1];
          const args = [...arguments].slice(0, -1);
          new Promise((resolve) => resolve((${act})(...args))).then((is) => done({ is }), (error) => done({ problem: String(error) }));` });
        if (problem !== undefined) throw new Error(problem);
        return is;
      };
      /* Every key goes down in order and comes up again. @param {string[]} keys */
      const strike = (/** @type {string[]} */ keys) => call('POST', `${at}/actions`, { actions: [{ type: 'key', id: 'keyboard', actions: [
        ...keys.map((value) => ({ type: 'keyDown', value })), ...keys.toReversed().map((value) => ({ type: 'keyUp', value }))] }] });
      return {
        problems, requests: null, run,
        go: (url) => call('POST', `${at}/url`, { url }),
        back: () => call('POST', `${at}/back`, {}),
        async type(text) { for (const letter of text) await strike([letter]); },
        press: (key) => strike(key.split('+').map((one) => KEYS[one] ?? one)),
        async choose(path) {
          const { [ELEMENT]: element } = await call('POST', `${at}/element`, { using: 'css selector', value: '#chooser' });
          await call('POST', `${at}/element/${element}/value`, { text: path });
        },
        close: () => call('DELETE', at, undefined, 30000).catch(() => { /* it hangs: another one for the next test */
          close();
          address = null;
        }),
      };
    },
    close,
  };
}
