/* The page's keys: combinations everywhere, single letters only where nothing is typed, and only if they are wanted. */
import { available } from './actions.js';
import { recording } from './recordings.js';
import { redo, undo } from './changes.js';
import { letterKeys, overlay, typedAhead } from './state.js';

const TYPED_IN = 'input:not([type="checkbox"], [type="radio"]), select, textarea, [contenteditable], dialog';

/** @param {KeyboardEvent} event */
export function onKey(event) {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const target = /** @type {Element} */ (event.target);
  const letter = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    if (letter === 'k' && !event.shiftKey) overlay.value = overlay.value === 'palette' ? '' : 'palette';
    else if (letter === 'z' && !recording.value && !target.closest?.('textarea, dialog')) (event.shiftKey ? redo : undo)();
    else return;
    return event.preventDefault();
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
