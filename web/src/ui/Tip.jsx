// SPDX-License-Identifier: Apache-2.0
/* One hover card for everything that has data-tip. Escape or leaving hides it; it can be reached with the pointer. */
import { useEffect, useRef, useState } from 'preact/hooks';

const LEAVE_MS = 120;

export function Tip() {
  const [tip, setTip] = useState(/** @type {{text: string, source: Element} | null} */ (null));
  const card = useRef(/** @type {HTMLDivElement | null} */ (null));

  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let leaving;
    const show = (/** @type {Event} */ event) => {
      const target = /** @type {Element} */ (event.target);
      if (target.closest?.('.tip')) return clearTimeout(leaving);
      const source = target.closest?.('[data-tip]');
      const text = source?.getAttribute('data-tip');
      clearTimeout(leaving);
      if (source && text) setTip({ text, source });
      else leaving = setTimeout(() => setTip(null), LEAVE_MS);
    };
    const hide = () => setTip(null);
    const escape = (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Escape') hide(); };
    document.addEventListener('pointerover', show);
    document.addEventListener('focusin', show);
    document.addEventListener('focusout', hide);
    document.addEventListener('scroll', hide, true);
    document.addEventListener('keydown', escape);
    return () => {
      document.removeEventListener('pointerover', show);
      document.removeEventListener('focusin', show);
      document.removeEventListener('focusout', hide);
      document.removeEventListener('scroll', hide, true);
      document.removeEventListener('keydown', escape);
    };
  }, []);

  useEffect(() => {
    const own = card.current;
    if (!tip || !own) return;
    const box = tip.source.getBoundingClientRect();
    const { width, height } = own.getBoundingClientRect();
    const left = Math.min(innerWidth - width - 8, Math.max(8, box.left + box.width / 2 - width / 2));
    const above = box.top - height - 6;
    own.style.left = `${left}px`;
    own.style.top = `${above > 4 ? above : box.bottom + 6}px`;
    const observer = new MutationObserver(() => setTip({ ...tip, text: tip.source.getAttribute('data-tip') ?? '' })); /* more is known meanwhile */
    observer.observe(tip.source, { attributeFilter: ['data-tip'] });
    return () => observer.disconnect();
  }, [tip]);

  return <div ref={card} class="tip" role="tooltip" hidden={!tip}>{tip?.text}</div>;
}
