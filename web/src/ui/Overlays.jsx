// SPDX-License-Identifier: Apache-2.0
/* What opens over the page: fetched when it is first wanted. */
import { details, editing, overlay } from '../state.js';
import { Lazy } from './lazy.jsx';

const PARTS = {
  palette: () => import('./Palette.jsx'),
  help: () => import('./Help.jsx'),
};

export function Overlays() {
  const load = PARTS[/** @type {keyof typeof PARTS} */ (overlay.value)];
  return (
    <>
      {load && <Lazy key={overlay.value} load={load} />}
      {editing.value && <Lazy load={() => import('./TextDialog.jsx')} />}
      {details.value && <Lazy load={() => import('./Drawer.jsx')} />}
    </>
  );
}
