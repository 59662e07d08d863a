import { useEffect, useRef, useState } from 'preact/hooks';

/** Width of an element in CSS pixels; `first` until it is known (and in the page's static form).
 * @param {number} first @returns {[import('preact').RefObject<any>, number]} */
export function useWidth(first) {
  const ref = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(first);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}
