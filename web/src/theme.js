// SPDX-License-Identifier: Apache-2.0
/* Before the first paint: the theme kept in this browser; and of a link what it says itself, in place of the example's numbers. */
const root = document.documentElement;
try {
  const kept = localStorage.getItem('tidemark.theme');
  if (kept === 'light' || kept === 'dark') root.dataset.theme = kept;
} catch { /* storage is off: the system's theme */ }
if (location.hash.includes('=')) {
  const linked = new URLSearchParams(location.hash.slice(1, 2000));
  const [was] = linked.get('was')?.split('_') ?? [];
  const job = [linked.get('model'), linked.get('gpu')].filter(Boolean).join(' on ');
  const said = `${job}${job && ': '}${was ? `${was} GiB when the link was made. ` : ''}Working it out…`;
  root.dataset.linked = '';
  root.style.setProperty('--linked', JSON.stringify(said.slice(0, 200)));
}
