// SPDX-License-Identifier: Apache-2.0
import { useEffect, useState } from 'preact/hooks';
import { notices } from '../state.js';
import { Section } from './Section.jsx';

/** A part of the page that is fetched when it is first shown.
 * @param {{load?: () => Promise<any>, before?: any, [name: string]: any}} props load: of a module whose default is the component; before: what stands there until then */
export function Lazy({ load, before = null, ...props }) {
  const [Part, setPart] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let wanted = true;
    load?.().then(
      (part) => { if (wanted) setPart(() => part.default); },
      () => { notices.value = ['A part of the page could not be loaded. Reload the page when you are online.']; });
    return () => { wanted = false; };
  }, []);
  return Part ? <Part {...props} /> : before;
}

/** A panel that is fetched when it is scrolled to, with what is inside of it.
 * @param {{panel: import('../panels.js').Panel, r: import('../types.js').Report, inside: import('../panels.js').Panel[]}} props */
export function Near(props) {
  const { panel, inside } = props;
  const [isNear, setNear] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) setNear(true); }, { rootMargin: '200px' });
    observer.observe(/** @type {HTMLElement} */ (document.getElementById(panel.name)));
    return () => observer.disconnect();
  }, []);
  const frame = <Section {...props} />;
  const load = () => {
    for (const one of inside) one.load?.().catch(() => {}); /* it is said where it is shown */
    return /** @type {NonNullable<typeof panel.load>} */ (panel.load)();
  };
  return isNear ? <Lazy load={load} before={frame} {...props} /> : frame;
}
