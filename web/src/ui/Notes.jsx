// SPDX-License-Identifier: Apache-2.0
/* What was assumed, and what the core has to say about the job. */
import { batch } from '@preact/signals';
import { useState } from 'preact/hooks';
import { sentences } from '../format.js';
import { setWord } from '../changes.js';
import { recompute } from '../play.js';
import { command, editing, files, moreOpen, report, settingsOpen, valueOf } from '../state.js';
import { copy } from './CopyDialog.jsx';
import { Lazy } from './lazy.jsx';
import { Icon } from './marks.jsx';
import { Twin } from './Twin.jsx';
import { Section } from './Section.jsx';

const SHORT = 8; /* assumptions that are shown at once: the settings that come first move the most */

/** What a person may pass on when the core stopped; nothing is sent. @param {import('../types.js').Diagnostic} d */
const problemReport = (d) => `tidemark ${report.value?.tidemark ?? ''}\n${d.message}\n${command.value}\n${navigator.userAgent}\n`;

/** The open file that is no JSON, and where. @param {import('../types.js').Diagnostic} d */
function inText({ code, place, message }) {
  const file = files.value[Number(/^\/files\/(\d+)$/.exec(place ?? '')?.[1])];
  const [, line, column] = (code === 'ERR_JSON_SYNTAX' && /at line (\d+), column (\d+)/.exec(message)) || [];
  return file && line ? { ...file, place: { line: Number(line), column: Number(column) } } : null;
}

/** Shows a setting’s field and puts the focus there. @param {string} name */
export function show(name) {
  const find = () => /** @type {HTMLElement | null} */ (document.querySelector(`[data-setting="${CSS.escape(name)}"]`));
  batch(() => {
    if (matchMedia('(max-width: 900px)').matches) settingsOpen.value = true;
    if (!find()) moreOpen.value = true;
  });
  requestAnimationFrame(() => {
    const field = find();
    field?.scrollIntoView({ block: 'center' });
    /** @type {HTMLElement | null | undefined} */ (field?.querySelector('input, select'))?.focus();
  });
}

/** @param {{r: import('../types.js').Report, panel: import('../panels.js').Panel}} props */
export function Assumptions({ r, panel }) {
  const [all, setAll] = useState(false);
  const list = [...r.assumptions].sort((a, b) => Number(b.setting.startsWith('/')) - Number(a.setting.startsWith('/'))); /* what is not known of the model first */
  const count = list.length;
  return (
    <Section panel={panel} r={r}>
      <ul class={`assumptions${all ? '' : ' is-short'}`}>
        {list.map(({ setting, value, text }, i) => (
          <li key={i} class={i < SHORT ? undefined : 'is-more'}>
            {setting.startsWith('/') ? <code class="word">{setting.slice(1)}</code>
              : <button type="button" class="word" onClick={() => show(setting)} data-tip="Change it">{setting}{value !== '' && <>=<b>{value}</b></>}</button>}
            <span>{text}</span>
          </li>
        ))}
      </ul>
      {count > SHORT && <button type="button" class="button small more-rows" aria-expanded={all} onClick={() => setAll(!all)}>{all ? 'Show fewer' : `Show all ${count}`}</button>}
      <Twin title="How exact is this? Compare a measured run" noTable>{() => <Lazy load={() => import('./Measured.jsx')} />}</Twin>
    </Section>
  );
}

/** @param {{list: import('../types.js').Diagnostic[], title: string}} props */
export function Diagnostics({ list, title }) {
  if (list.length === 0) return null;
  return (
    <section class="diagnostics" aria-label={title}>
      {list.map((d, i) => {
        const { said, todo } = sentences(d);
        const setting = /^\/settings\/([^/]+)/.exec(d.place ?? '')?.[1];
        return (
          <div key={i} class={`diagnostic is-${d.severity}`} role={d.severity === 'error' ? 'alert' : undefined}>
            <Icon name={d.severity === 'error' ? 'cross' : d.severity === 'warning' ? 'warn' : 'info'} />
            <div><p><b>{said}</b> {todo}</p>
              {d.severity === 'error' && setting && <Lazy key={setting} load={() => import('./Nearest.jsx')} name={setting} message={d.message} />}
              {d.severity === 'error' && d.place === '/settings/quant' && d.code === 'ERR_CONFLICT' && valueOf('adapter') === 'none' && (
                <p class="nearest"><button type="button" class="button small" onClick={() => setWord('adapter', 'lora')}>Make it QLoRA</button></p>)}
              {inText(d) && <p class="nearest"><button type="button" class="button small" onClick={() => { editing.value = inText(d); }}>Show the place</button></p>}
              {d.code === 'ERR_STOPPED' && <p class="nearest"><button type="button" class="button small" onClick={() => recompute()}>Try again</button>
                <button type="button" class="button small" onClick={() => copy('Report', problemReport(d))}>Copy report</button></p>}
              {d.code === 'ERR_CORE' && <p class="nearest"><button type="button" class="button small" onClick={() => location.reload()}>Reload</button></p>}
            </div>
            <p class="diagnostic-place">
              {setting ? <button type="button" class="word" onClick={() => show(setting)}>{setting}</button> : d.place && <code>{d.place}</code>}
              <code class="muted">{d.code}</code>
            </p>
          </div>
        );
      })}
    </section>
  );
}

/** The core does not run here. @param {{problem: string}} props */
export const CoreLost = ({ problem }) => (
  <Diagnostics title="The calculator could not start" list={[{ severity: 'error', code: 'ERR_CORE', message: 'The calculator could not start.',
    remedy: `${problem} The page needs WebAssembly, and 'wasm-unsafe-eval' in its Content-Security-Policy. Reload, or use the tidemark command.` }]} />
);
