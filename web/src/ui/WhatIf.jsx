/* What would change the answer. Its content comes when it is scrolled to. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Lazy } from './lazy.jsx';

export function WhatIf() {
  const [near, setNear] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) setNear(true); }, { rootMargin: '200px' });
    observer.observe(/** @type {HTMLElement} */ (box.current));
    return () => observer.disconnect();
  }, []);
  return (
    <section ref={box} class="card whatif-card" id="whatif" aria-labelledby="whatif-title">
      <h2 id="whatif-title">What if <small>every line is played, not guessed</small></h2>
      {near && <Lazy load={() => import('./WhatIfTabs.jsx')} />}
    </section>
  );
}
