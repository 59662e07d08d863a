// SPDX-License-Identifier: Apache-2.0
/* What would change the answer: a tab for each of the panels inside. What is shown is asked for by itself, in workers of its own. */
import { useEffect, useMemo, useState } from 'preact/hooks';
import { describe, view } from '../state.js';
import { Lazy } from './lazy.jsx';
import { Section } from './Section.jsx';
import './whatif.js';

/** @param {{panel: import('../panels.js').Panel, r: import('../types.js').Report, inside: import('../panels.js').Panel[]}} props */
export default function WhatIf({ panel, r, inside: all }) {
  const given = view.value.inside;
  const [chosen, setChosen] = useState(all[0].name);
  const tabs = all.filter(({ isOffered }) => !isOffered || isOffered(r));
  const at = Math.max(0, tabs.findIndex((tab) => tab.name === chosen));
  useEffect(() => { if (given) setChosen(given); }, [view.value]);
  const { name, title, load } = tabs[at];
  /* The panels hear of answers themselves. */
  const content = useMemo(() => <Lazy key={name} load={load} />, [name]);
  /** @param {KeyboardEvent} event */
  function key(event) {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    setChosen(tabs[next].name);
    document.getElementById(`tab-${tabs[next].name}`)?.focus();
  }
  return (
    <Section panel={panel} r={r}>
      <div class="tabs" role="tablist" aria-label={panel.title} onKeyDown={key}>
        {tabs.map((tab, i) => (
          <button key={tab.name} id={`tab-${tab.name}`} type="button" role="tab" aria-selected={i === at} aria-controls="whatif-panel" data-panel={tab.name}
            data-tip={tab.help} tabIndex={i === at ? 0 : -1} onClick={() => setChosen(tab.name)}>{tab.title}</button>
        ))}
      </div>
      <div id="whatif-panel" class="scroll whatif-panel" role="tabpanel" tabIndex={0} aria-labelledby={`tab-${name}`} data-title={title}>
        {describe.value && content}
      </div>
    </Section>
  );
}
