// SPDX-License-Identifier: Apache-2.0
/* One setting as a field, by what describe says of it. */
import { useState } from 'preact/hooks';
import { wantModels } from '../catalogue.js';
import { sentences } from '../format.js';
import { setWord } from '../changes.js';
import { describe, errorAt, helps, originOf, valueOf } from '../state.js';
import { Icon } from './marks.jsx';

/** @param {string} name */
export const titleOf = (name) => describe.value?.settings.find((setting) => setting.name === name)?.title ?? name;

const YES = new Set(['true', '1', 'yes', 'on']);

/** @param {import('../types.js').Setting} setting */
const isFlag = ({ type }) => /^(bool|flag)/i.test(type);
/** @param {import('../types.js').Setting} setting */
const isWhole = ({ type }) => /^int/i.test(type);

/* Fine step and coarse step of a whole number: arrows double and halve, Shift goes one fine step. */
const FINE = { seq: 64 };

/** @param {string} name @param {number} value @param {1 | -1} way @param {boolean} fine */
function stepped(name, value, way, fine) {
  const unit = FINE[/** @type {keyof typeof FINE} */ (name)] ?? 1;
  if (fine) return Math.max(1, value + way * unit);
  const power = 2 ** (way > 0 ? Math.floor(Math.log2(value)) + 1 : Math.ceil(Math.log2(value)) - 1);
  return Math.max(1, power);
}

/* Where a value is from, if it is neither a default nor the user's own. */
const FROM = { file: 'from file', recipe: 'recipe', link: 'from link' };

/** What hovering the label tells.
 * @param {import('../types.js').Setting} setting @param {string} origin */
function help({ name, unit }, origin) {
  const from = { user: 'Yours', default: 'Default', file: 'From the file', recipe: 'From the recipe', link: 'From the link' }[origin] ?? origin;
  return [helps.value[name], unit && `In ${unit}.`, `${from}: ${name}=${valueOf(name) || 'not set'}`].filter(Boolean).join(' ');
}

/** @param {{setting: import('../types.js').Setting}} props */
export function Field({ setting }) {
  const { name } = setting;
  const id = `set-${name}`;
  const error = errorAt(name);
  const origin = originOf(name);
  const described = error ? `${id}-error` : undefined;
  const parts = { setting, id, value: valueOf(name), invalid: !!error, described };

  return (<>
    <div class={isFlag(setting) ? 'field flag' : 'field'} data-origin={origin} data-setting={name}>
      <div class="label-row">
        <label for={id} data-tip={help(setting, origin)} onPointerEnter={wantModels}>{titleOf(name)}
          {setting.unit && <span class={setting.unit.length < 5 ? 'field-unit' : 'hidden'}> {setting.unit}</span>}</label>
        {(origin === 'user' || origin === 'link') && (
          <button type="button" class="undo" onClick={() => setWord(name, null)} aria-label={`${titleOf(name)}: back to the default`}
            data-tip="Back to the default"><Icon name="undo" /></button>
        )}
        {FROM[/** @type {keyof typeof FROM} */ (origin)] ? <span class="source" data-tip={help(setting, origin)}>{FROM[/** @type {keyof typeof FROM} */ (origin)]}</span>
          : name.replaceAll('_', ' ') !== titleOf(name).toLowerCase() && <code>{name}</code>}
      </div>
      {isFlag(setting) ? <Flag {...parts} />
        : setting.choices?.length ? <Select {...parts} />
          : isWhole(setting) ? <Whole {...parts} />
            : <Text {...parts} />}
    </div>
    {error && <p class="field-error" id={`${id}-error`}>{Object.values(sentences(error)).join(' ')}</p>}
  </>);
}

/** @typedef {{setting: import('../types.js').Setting, id: string, value: string, invalid: boolean, described?: string}} Parts */

/** @param {Parts} props */
function Flag({ setting, id, value, described }) {
  return <input id={id} type="checkbox" checked={YES.has(value)} aria-describedby={described}
    onChange={(event) => setWord(setting.name, String(event.currentTarget.checked))} />;
}

/** @param {Parts} props */
function Select({ setting, id, value, invalid, described }) {
  const choices = (setting.choices ?? []).map(String);
  const all = choices.includes(value) ? choices : [value, ...choices];
  return (
    <select id={id} value={value} aria-invalid={invalid} aria-describedby={described}
      onChange={(event) => setWord(setting.name, event.currentTarget.value)}>
      {all.map((choice) => <option key={choice} value={choice} selected={choice === value}>{choice === '' ? 'default' : choice}</option>)}
    </select>
  );
}

/** @param {Parts} props */
function Whole(props) {
  const { setting: { name }, value } = props;
  const number = /^\d+$/.test(value) && Number(value) > 0 ? Number(value) : null;
  const by = (/** @type {1 | -1} */ way, fine = false) => {
    if (number !== null) setWord(name, String(stepped(name, number, way, fine)));
  };
  return (
    <div class="stepper">
      <button type="button" tabIndex={-1} onClick={() => by(-1)} aria-label={`${titleOf(name)}: halve`}>−</button>
      <Text {...props} numeric onStep={by} />
      <button type="button" tabIndex={-1} onClick={() => by(1)} aria-label={`${titleOf(name)}: double`}>+</button>
    </div>
  );
}

/** @param {Parts & {numeric?: boolean, onStep?: (way: 1 | -1, fine: boolean) => void}} props */
function Text({ setting, id, value, invalid, described, numeric, onStep }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const isOwn = draft !== null && (draft.trim() === '' || draft.trim() === value); /* not undone, and no link came, since it was typed */
  return (
    <input id={id} type="text" autocomplete="off" spellcheck={false} placeholder="default" inputMode={numeric ? 'numeric' : undefined}
      value={isOwn ? draft : value} aria-invalid={invalid} aria-describedby={described}
      onInput={(event) => {
        const text = event.currentTarget.value;
        setDraft(text);
        setWord(setting.name, text.trim());
      }}
      onKeyDown={(event) => {
        if (!onStep || (event.key !== 'ArrowUp' && event.key !== 'ArrowDown')) return;
        event.preventDefault();
        setDraft(null);
        onStep(event.key === 'ArrowUp' ? 1 : -1, event.shiftKey);
      }}
      onBlur={() => setDraft(null)} />
  );
}
