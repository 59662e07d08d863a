// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from 'preact/hooks';

/** Width of an element in whole CSS pixels. At first that of its static twin, so that nothing is drawn twice; where there
 * is no document, `usual`.
 * @param {string} selector @param {number} usual @returns {[import('preact').RefObject<any>, number]} */
export function useWidth(selector, usual) {
  const ref = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(() => {
    const twin = globalThis.document?.querySelector(selector);
    return twin ? Math.round(twin.getBoundingClientRect().width) : usual;
  });
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    if (ref.current) observer.observe(ref.current); /* a part may have nothing to draw */
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}
