import { useState } from 'preact/hooks';
import { command, shareLink, spoken, theme, unit } from '../state.js';
import { UNITS } from '../format.js';
import { Icon, Logo } from './marks.jsx';
import { showCopy } from './CopyDialog.jsx';

/** @param {{text: () => string | Promise<string>, label: string, short: string, icon: 'link' | 'command', primary?: boolean}} props */
function CopyButton({ text, label, short, icon, primary }) {
  const [done, setDone] = useState(false);
  async function copy() {
    const content = await text();
    try {
      await navigator.clipboard.writeText(content);
      setDone(true);
      spoken.value = `${label}: copied.`;
      setTimeout(() => setDone(false), 1600);
    } catch {
      showCopy(label, content);
    }
  }
  return (
    <button type="button" class={primary ? 'button primary' : 'button'} onClick={copy} aria-label={label}>
      <Icon name={done ? 'check' : icon} />
      <span class="button-long">{done ? 'Copied' : label}</span>
      <span class="button-short">{done ? 'Copied' : short}</span>
    </button>
  );
}

/** @type {{value: 'system' | 'light' | 'dark', icon: 'system' | 'sun' | 'moon'}[]} */
const THEMES = [{ value: 'system', icon: 'system' }, { value: 'light', icon: 'sun' }, { value: 'dark', icon: 'moon' }];

/** One of a few, as a row of buttons.
 * @param {{legend: string, name: string, options: {value: string, label: any, title: string}[], value: string,
 *   choose: (value: any) => void}} props */
function Segmented({ legend, name, options, value, choose }) {
  return (
    <fieldset class="segmented">
      <legend class="hidden">{legend}</legend>
      {options.map((option) => (
        <label key={option.value} data-tip={option.title}>
          <input type="radio" name={name} value={option.value} checked={option.value === value} aria-label={option.title}
            onChange={() => choose(option.value)} />
          <span>{option.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** How numbers and page look; kept in this browser. In the header, and on a phone in the settings.
 * @param {{where: string}} props */
export const Looks = ({ where }) => (
  <div class="looks">
    <Segmented legend="Unit" name={`unit-${where}`} value={unit.value} choose={(value) => { unit.value = value; }}
      options={Object.entries(UNITS).map(([value, { spoken: title }]) => ({ value, label: value, title }))} />
    <Segmented legend="Theme" name={`theme-${where}`} value={theme.value} choose={(value) => { theme.value = value; }}
      options={THEMES.map(({ value, icon }) => ({ value, label: <Icon name={icon} />, title: `${value} theme` }))} />
  </div>
);

export const Header = () => (
  <header class="top">
    <a class="brand" href="./" aria-label="tidemark, start again with the example">
      <Logo /><h1>tidemark</h1>
    </a>
    <p class="tagline">GPU memory of a training job, before it runs</p>
    <div class="top-actions">
      <Looks where="top" />
      <CopyButton icon="command" label="Copy command" short="Command" text={() => command.value} />
      <CopyButton icon="link" label="Copy link" short="Link" primary
        text={async () => `${location.href.split('#')[0]}#${await shareLink()}`} />
    </div>
  </header>
);
