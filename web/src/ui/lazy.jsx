import { useEffect, useState } from 'preact/hooks';
import { notices } from '../state.js';

/** A part of the page that is fetched when it is first shown.
 * @param {{load: () => Promise<any>, [name: string]: any}} props load: of a module whose default is the component */
export function Lazy({ load, ...props }) {
  const [Part, setPart] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let wanted = true;
    load().then(
      (part) => { if (wanted) setPart(() => part.default); },
      () => { notices.value = ['A part of the page could not be loaded. Reload the page when you are online.']; });
    return () => { wanted = false; };
  }, []);
  return Part && <Part {...props} />;
}
