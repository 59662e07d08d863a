// SPDX-License-Identifier: Apache-2.0
import { inGroup, togglePin } from '../actions.js';
import { recording } from '../recordings.js';
import { baseline, files, fragment, overlay, theme, unit } from '../state.js';
import { fixed, UNITS } from '../format.js';
import { LONG } from '../links.js';
import { Icon, Logo } from './marks.jsx';
import { Menu } from './Menu.jsx';

/** @type {{value: 'system' | 'light' | 'dark', icon: 'system' | 'sun' | 'moon'}[]} */
const THEMES = [{ value: 'system', icon: 'system' }, { value: 'light', icon: 'sun' }, { value: 'dark', icon: 'moon' }];

/** One of a few, as a row of buttons.
 * @param {{legend: string, name: string, options: {value: string, label: any, title: string}[], value: string,
 *   choose: (value: any) => void, isSaid?: boolean}} props isSaid: the titles are beside it, and need no card that would cover what is near */
export function Segmented({ legend, name, options, value, choose, isSaid }) {
  return (
    <fieldset class="segmented">
      <legend class="hidden">{legend}</legend>
      {options.map((option) => (
        <label key={option.value} data-tip={isSaid ? undefined : option.title}>
          <input type="radio" name={name} value={option.value} checked={option.value === value} aria-label={option.title}
            onChange={() => choose(option.value)} />
          <span>{option.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** How numbers and page look; kept in this browser. In a menu of the header, and on a phone in the settings.
 * @param {{where: string}} props */
export const Looks = ({ where }) => (
  <div class="looks">
    <Segmented legend="Unit" name={`unit-${where}`} value={unit.value} choose={(value) => { unit.value = value; }}
      options={Object.entries(UNITS).map(([value, { spoken: title }]) => ({ value, label: value, title }))} />
    <Segmented legend="Theme" name={`theme-${where}`} value={theme.value} choose={(value) => { theme.value = value; }}
      options={THEMES.map(({ value, icon }) => ({ value, label: <Icon name={icon} />, title: `${value} theme` }))} />
  </div>
);

/** What may happen to a long link. */
function lengthNote() {
  const { length } = fragment.value;
  if (files.value.some((file) => file.kind === 'model') && !/z=1|config=/.test(fragment.value)) return ' The model’s own file is too long for a link and is not in it: pass it on too.';
  return length > LONG ? ` It has ${fixed(length)} characters, and some mail and chat programs cut such.` : '';
}

/* What sticks below the header knows its height. */
const measured = globalThis.ResizeObserver && new ResizeObserver(([{ target }]) => {
  document.documentElement.style.setProperty('--top', `${/** @type {HTMLElement} */ (target).offsetHeight}px`);
});

export const Header = () => (
  <header class="top" ref={(header) => { if (header) measured?.observe(header); }}>
    <a class="brand" href="./" aria-label="tidemark, start again with the example">
      <Logo /><h1>tidemark</h1>
    </a>
    <p class="tagline">GPU memory of a training or inference job, before it runs</p>
    <div class="top-actions">
      <button type="button" class="button find" onClick={() => { overlay.value = 'palette'; }} data-tip="Any action or setting by its name">
        <Icon name="search" /><span class="button-long">Find</span><span class="hidden"> an action or a setting </span><kbd>Ctrl K</kbd></button>
      <button type="button" class="button compare-button" aria-pressed={baseline.value !== null} onClick={togglePin}
        data-tip={baseline.value ? 'Clear the baseline' : 'Keep this job to compare the next ones with'}>
        <Icon name="pin" /><span class="button-word">{baseline.value ? 'Unpin' : 'Compare'}</span></button>
      <div class="display-menu"><Menu title="Display" icon="sliders"><Looks where="top" /></Menu></div>
      <Menu title="Export" icon="download" items={inGroup('export')} />
      <Menu title="Share" icon="link" primary items={inGroup('share')}>
        <p class="menu-note">{recording.value ? 'A link cannot contain a recording: share the file, and the command that plays it.'
          : `The link holds the settings themselves. Whoever has the link sees them; no server does.${lengthNote()}`}</p>
      </Menu>
      <button type="button" class="icon-button" aria-label="Keys and help" data-tip="Keys and help" onClick={() => { overlay.value = 'help'; }}>?</button>
    </div>
  </header>
);
