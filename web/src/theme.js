// SPDX-License-Identifier: Apache-2.0
/* Before the first paint: the theme kept in this browser; and of a link what it says itself, in place of the example's numbers. */
import { SEVERAL, unpack, unpackSeveral } from './links.js';

const root = document.documentElement;
try {
  const kept = localStorage.getItem('tidemark.theme');
  if (kept === 'light' || kept === 'dark') root.dataset.theme = kept;
} catch { /* storage is off: the system's theme */ }

const MOST_SHOWN = 160;
const SHARED = /(^|&)(parallel\.[dtpce]p|tensor_parallel_size)=([2-9]|1\d)/;

/** @param {string} readable @param {string} [name] of a scenario */
function say(readable, name) {
  const linked = new URLSearchParams(readable);
  const [was] = linked.get('was')?.split('_') ?? [];
  const job = name ?? [linked.get('title') ?? linked.get('model') ?? (linked.get('config') && 'config.json'), linked.get('gpu')].filter(Boolean).join(' on ');
  const number = was ? `${was} GiB${SHARED.test(readable) ? ' per GPU' : ''} when the link was made. ` : '';
  root.style.setProperty('--linked', JSON.stringify(`${job.slice(0, MOST_SHOWN)}${job && ': '}${number}Working it out…`));
}

const text = location.hash.slice(1);
if (text.includes('=')) {
  root.dataset.linked = '';
  say(/^\w+=1\./.test(text) ? '' : text);
  if (text.startsWith(SEVERAL)) unpackSeveral(text).then(([[name, link]]) => say(link, name)).catch(() => {}); /* the page says what is wrong */
  else if (text.startsWith('z=')) unpack(text).then((link) => say(link)).catch(() => {});
}
