// SPDX-License-Identifier: Apache-2.0
/* The page's keys: combinations everywhere, single letters only where nothing is typed, and only if they are wanted. */
import { available } from './actions.js';
import { letterKeys, overlay, typedAhead } from './state.js';

/* A text being edited has them itself. */
const OF_TEXTS = /^Ctrl (Shift )?Z$/;
const TYPED_IN = 'input:not([type="checkbox"], [type="radio"]), select, textarea, [contenteditable], dialog';

/** @param {KeyboardEvent} event */
export function onKey(event) {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const target = /** @type {Element} */ (event.target);
  const letter = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    const keys = ['Ctrl', event.shiftKey && 'Shift', letter.toUpperCase()].filter(Boolean).join(' ');
    const action = available().find(({ combination }) => combination === keys);
    if (!action || (OF_TEXTS.test(keys) && target.closest?.('textarea, dialog'))) return;
    event.preventDefault();
    return action.run();
  }
  if (overlay.value === 'palette' && !document.querySelector('dialog[open]') && event.key.length === 1) {
    typedAhead.value += event.key;
    return event.preventDefault();
  }
  if (!letterKeys.value || target.closest?.(TYPED_IN) || document.querySelector('dialog[open]')) return;
  const action = available().find(({ key }) => key === letter);
  if (!action) return;
  event.preventDefault();
  action.run();
}
