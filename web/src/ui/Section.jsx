// SPDX-License-Identifier: Apache-2.0
/** The frame of a panel: its section and heading. @param {{panel: import('../panels.js').Panel, r: import('../types.js').Report, note?: any, tools?: any, children?: any}} props
 *   note: in place of the row's; tools: behind the heading */
export const Section = ({ panel: { name, title, note }, r, note: said = typeof note === 'function' ? note(r) : note, tools, children }) => (
  <section class="card panel" id={name} aria-labelledby={`${name}-title`}>
    <h2 id={`${name}-title`}>{title}{said && <> <small>{said}</small></>}{tools}</h2>
    {children}
  </section>
);
