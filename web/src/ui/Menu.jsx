// SPDX-License-Identifier: Apache-2.0
/* A button with a list of actions under it, or with a few choices. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './marks.jsx';

/** @param {{title: string, icon: import('./marks.jsx').IconName, items?: import('../actions.js').Action[], primary?: boolean, children?: any}} props */
export function Menu({ title, icon, items = [], primary, children }) {
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const list = () => /** @type {HTMLElement[]} */ ([...box.current?.querySelectorAll('.menu-list button') ?? []]);
  useEffect(() => {
    if (!open) return;
    const first = list()[0] ?? /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('.menu-list input:checked'));
    first?.focus({ preventScroll: true }); /* it is below a header that stays */
    const outside = (/** @type {Event} */ event) => { if (!box.current?.contains(/** @type {Node} */ (event.target))) setOpen(false); };
    document.addEventListener('pointerdown', outside);
    document.addEventListener('focusin', outside);
    return () => {
      document.removeEventListener('pointerdown', outside);
      document.removeEventListener('focusin', outside);
    };
  }, [open]);
  function close() {
    setOpen(false);
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('.button'))?.focus({ preventScroll: true });
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    if (!open) return;
    const all = list();
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === 'Escape') close();
    else if (to !== undefined && all.length) all[(to + all.length) % all.length].focus({ preventScroll: true });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  return (
    <div ref={box} class="menu" onKeyDown={key}>
      <button type="button" class={primary ? 'button primary' : 'button'} aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={icon} /><span>{title}</span></button>
      {open && (
        <div class="menu-list" role="group" aria-label={title}>
          {items.map((action) => (
            <button key={action.name} type="button" onClick={() => { close(); action.run(); }}>
              <span>{action.title}</span>{action.key && <kbd>{action.key}</kbd>}
            </button>
          ))}
          {children}
        </div>
      )}
    </div>
  );
}
