// SPDX-License-Identifier: Apache-2.0
/* Small marks: icons, swatches, sizes. */
import { factor } from '../factors.js';
import { exact, headline, inUnit, natural } from '../format.js';
import { unit } from '../state.js';

const ICONS = {
  link: 'M6.5 9.5l3-3M7 4.5l1.2-1.2a2.8 2.8 0 014 4L11 8.5M9 11.5l-1.2 1.200a2.8 2.8 0 01-4-4L5 7.5',
  command: 'M3 4.500l3.5 3.500L3 11.500M8.5 12H13',
  check: 'M3 8.500l3.2 3.200L13 4.8',
  cross: 'M4 4l8 8M12 4l-8 8',
  warn: 'M8 2.500L14.2 13H1.800zM8 6.500v3M8 11.200v.1',
  info: 'M8 7.300v4M8 4.800v.1M8 1.800a6.2 6.2 0 100 12.400A6.2 6.2 0 008 1.800z',
  file: 'M4 1.800h5l3 3v9.400H4zM9 1.800v3h3',
  paste: 'M5.5 3H3.500v11h9V3h-2M5.5 1.800h5v2.400h-5z',
  sun: 'M8 5.200a2.8 2.8 0 100 5.6 2.8 2.8 0 000-5.600zM8 1v1.500M8 13.500V15M1 8h1.500M13.5 8H15M3 3l1.1 1.100M11.9 11.900L13 13M3 13l1.1-1.100M11.9 4.100L13 3',
  moon: 'M13.2 9.800A5.8 5.8 0 116.2 2.800a4.6 4.6 0 007 7z',
  system: 'M2 3h12v8H2zM5.5 14h5M8 11v3',
  down: 'M4 6.200l4 4 4-4',
  up: 'M12.5 8H4M7.5 4L3.5 8l4 4',
  undo: 'M3 3.500v3.500h3.500M3.3 7a5 5 0 111 4.3',
  pin: 'M6 2h4l-.6 4.500L11.500 9h-7l2.100-2.500zM8 9v5',
  download: 'M8 2v8M4.700 6.900L8 10.200l3.300-3.300M3 13.500h10',
  search: 'M7 2.500a4.500 4.500 0 100 9 4.500 4.500 0 000-9zM10.300 10.300l3.400 3.400',
  left: 'M10 3.500L5.500 8l4.500 4.500',
  right: 'M6 3.500L10.500 8 6 12.500',
  edit: 'M3 13l.7-2.800L11 2.900l2.100 2.100L5.800 12.300zM9.500 4.400l2.100 2.100',
  copy: 'M5.500 5.500h8v8h-8zM5.500 10.500h-3v-8h8v3',
  sliders: 'M2 5h7M13 5h1M11 3v4M2 11h1M7 11h7M5 9v4',
};

/** @typedef {keyof typeof ICONS} IconName */

/** @param {{name: IconName}} props */
export const Icon = ({ name }) => (
  <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d={ICONS[name]} /></svg>
);

export const Logo = () => (
  <svg class="logo" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
    <rect class="logo-well" x="1" y="1" width="22" height="22" rx="5.5" />
    <path class="logo-low" d="M1 15c2.8-1.8 5.6-1.8 8.2 0s5.6 1.8 8.2 0 3.8-1.8 5.6-.6V17.500A5.5 5.5 0 0117.5 23h-11A5.5 5.5 0 011 17.500z" />
    <path class="logo-mark" d="M5 8h14" />
  </svg>
);

/** The fill of a factor: its class, and the pattern where it has one.
 * @param {string} name */
export function fill(name) {
  const { pattern } = factor(name);
  return pattern ? { class: `mark f-${name}`, fill: `url(#${pattern})` } : { class: `mark f-${name}` };
}

/** @param {{name: string}} props */
export const Swatch = ({ name }) => (
  <svg class="swatch" width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2.5" {...fill(name)} /></svg>
);

/* The fills that are patterns. Grey never stands on colour alone. */
export const Patterns = () => (
  <svg class="patterns" width="0" height="0" aria-hidden="true">
    <defs>
      {[['hatch', 'f-inputs', 45, 2.4], ['cross', 'f-inputs', -45, 2.4], ['work', 'f-temporary', 45, 3], ['kv', 'f-activations', 45, 3],
        ['master', 'f-optimizer', 45, 3], ['gather', 'f-parameters', 45, 3]].map(
        ([id, kind, turn, line]) => (
          <pattern id={String(id)} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform={`rotate(${turn})`}>
            <rect class="pattern-ground" width="6" height="6" />
            <rect class={String(kind)} width={line} height="6" />
          </pattern>
        ))}
      <pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">
        <rect class="pattern-ground" width="4" height="4" /><circle class="f-inputs" cx="2" cy="2" r="1.2" />
      </pattern>
    </defs>
  </svg>
);

/** A size in the chosen unit; exact bytes on hover.
 * @param {{n: number, style?: 'table' | 'headline' | 'natural', named?: boolean}} props */
export function Bytes({ n, style = 'table', named = false }) {
  const shown = style === 'natural' ? natural(n, unit.value) : style === 'headline' ? headline(n, unit.value) : inUnit(n, unit.value);
  return <span class="bytes" data-tip={exact(n)}>{shown}{named && style !== 'natural' ? ` ${unit.value}` : ''}</span>;
}

/** Named sizes by factor under a chart: the same names wherever one points, so that nothing jumps.
 * @param {{names: string[], of: (name: string) => number | undefined}} props */
export const FactorValues = ({ names, of }) => (
  <span class="readout-factors">
    {names.map((name) => (
      <span key={name} data-tip={exact(of(name) ?? 0)}><Swatch name={name} />{factor(name).title} <b>{of(name) ? inUnit(of(name) ?? 0, unit.value) : '–'}</b></span>
    ))}
  </span>
);

/** A change of size: its sign is a word for those who hear it. @param {{n: number}} props */
export const Delta = ({ n }) => (n === 0 ? <span class="nothing">–</span>
  : <span class={`bytes ${n < 0 ? 'fell' : 'rose'}`} data-tip={`${exact(Math.abs(n))} ${n < 0 ? 'less' : 'more'}`}>{n < 0 ? '−' : '+'}{inUnit(Math.abs(n), unit.value)}</span>);
