// SPDX-License-Identifier: Apache-2.0
/* A part of a curve over events: asked of the core, chosen with the pointer, and where it lies in the whole. */
import { area, curveStepAfter } from 'd3-shape';
import { useEffect, useState } from 'preact/hooks';
import { fixed } from '../format.js';

const ACROSS = 1000; /* units of the drawing, stretched to the width */
const FEWEST = 40; /* events that are zoomed to */

/** @typedef {{from: number, to: number}} Window  events */
/** @typedef {{events: number, columns: {from: number, allocated: number}[]}} Curve */

/** @template T @typedef {{curve: T, from: number, to: number, window: Window, zoom: (from: number, to: number) => void}} Part  curve: of what is seen, [from, to); window:
 *   of what is wanted, which may be on its way */

/** The part that is looked at, and its curve: the whole until the part has come.
 * @template {Curve} T @param {T} whole @param {(part: Window) => Promise<NoInfer<T> | null>} ask null: nobody waits for it any more
 * @returns {Part<T>} */
export function useWindow(whole, ask) {
  const { events } = whole;
  const [wanted, setWanted] = useState(/** @type {Window | null} */ (null));
  const [part, setPart] = useState(/** @type {(T & Partial<Window>) | null} */ (null));
  useEffect(() => {
    setWanted(null);
    setPart(null);
  }, [whole]);
  /** @param {number} from @param {number} to */
  async function zoom(from, to) {
    const wide = Math.max(FEWEST, Math.min(events, Math.round(to - from)));
    const start = Math.max(0, Math.min(events - wide, Math.round(from)));
    if (wide >= events) {
      setWanted(null);
      return setPart(null);
    }
    const next = { from: start, to: start + wide };
    setWanted(next);
    const came = await ask(next);
    if (came) setPart(came);
  }
  const seen = wanted ? part : null;
  return { curve: /** @type {T} */ (seen ?? whole), from: seen?.from ?? 0, to: seen?.to ?? events, window: wanted ?? { from: 0, to: events }, zoom };
}

const LEAST_DRAG = 8; /* pixels; less is a click */

/** A plot of the events [first, end) in which a part is dragged out and an event is pointed at.
 * @param {{first: number, end: number, zoom: (from: number, to: number) => void, hover: (event: number | null) => void, pick: (event: number) => void}} of */
export function useBrush({ first, end, zoom, hover, pick }) {
  const [drag, setDrag] = useState(/** @type {number[] | null} */ (null)); /* two shares of the width */
  const boxOf = (/** @type {PointerEvent} */ event) => /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
  const shareAt = (/** @type {PointerEvent} */ event) => Math.min(1, Math.max(0, (event.clientX - boxOf(event).left) / boxOf(event).width));
  const eventAt = (/** @type {number} */ share) => first + share * (end - first);
  /** @param {PointerEvent} event */
  function point(event) {
    const to = shareAt(event);
    hover(eventAt(to));
    if (drag) setDrag([drag[0], to]);
  }
  return {
    brush: drag && { x: `${100 * Math.min(...drag)}%`, width: `${100 * Math.abs(drag[1] - drag[0])}%` },
    handlers: {
      onPointerMove: point,
      onPointerLeave: () => hover(null),
      onPointerDown: (/** @type {PointerEvent} */ event) => {
        if (event.button !== 0) return;
        /** @type {HTMLElement} */ (event.currentTarget).setPointerCapture(event.pointerId);
        setDrag([shareAt(event), shareAt(event)]);
        hover(eventAt(shareAt(event)));
      },
      onPointerUp: (/** @type {PointerEvent} */ event) => {
        if (!drag) return;
        const [a, b] = [drag[0], shareAt(event)].sort((m, n) => m - n);
        setDrag(null);
        if ((b - a) * boxOf(event).width > LEAST_DRAG) zoom(eventAt(a), eventAt(b));
        else pick(eventAt(b));
      },
      onPointerCancel: () => setDrag(null),
    },
  };
}

/** Closer, farther and back to the whole. @param {{seen: Window, first: number, end: number, events: number, scale: (by: number) => void,
 *   zoom: (from: number, to: number) => void, children: any}} props children: what the whole is called */
export function Zoom({ seen, first, end, events, scale, zoom, children }) {
  const isWhole = seen.to - seen.from >= events;
  return (
    <>
      <button type="button" class="icon-button" onClick={() => scale(0.25)} disabled={seen.to - seen.from <= Math.min(FEWEST, events)} aria-label="Closer" data-tip="Closer  +">+</button>
      <button type="button" class="icon-button" onClick={() => scale(4)} disabled={isWhole} aria-label="Farther" data-tip="Farther  −">−</button>
      {!isWhole && <button type="button" class="button small" onClick={() => zoom(0, events)}>{children}</button>}
      {!isWhole && <span class="muted">events {fixed(first)} to {fixed(end - 1)}</span>}
    </>
  );
}

const LOW = 30;

/** The whole, small, with the part that is seen: drag to choose one, drag the part to move it.
 * @param {{t: Curve, top: number, seen: Window, zoom: (from: number, to: number) => void}} props */
export function Minimap({ t, top, seen, zoom }) {
  const [drag, setDrag] = useState(/** @type {{from: number, to: number, moves: boolean} | null} */ (null));
  const rows = [...t.columns, { ...t.columns[t.columns.length - 1], from: t.events }];
  const shape = area().curve(curveStepAfter).digits(1).x((_, i) => ACROSS * rows[i].from / t.events).y0(LOW).y1((_, i) => LOW * (1 - rows[i].allocated / top));
  const pc = (/** @type {number} */ event) => `${(100 * event / t.events).toFixed(3)}%`;
  const eventAt = (/** @type {PointerEvent} */ event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * t.events;
  };
  const isWhole = seen.to - seen.from >= t.events;
  const wide = seen.to - seen.from;
  const shown = !drag ? seen : drag.moves ? { from: Math.max(0, Math.min(t.events - wide, seen.from + drag.to - drag.from)), to: 0 }
    : { from: Math.min(drag.from, drag.to), to: Math.max(drag.from, drag.to) };
  if (drag?.moves) shown.to = shown.from + wide;
  return (
    <div class="minimap" onPointerDown={(event) => {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      const from = eventAt(event);
      setDrag({ from, to: from, moves: !isWhole && from >= seen.from && from <= seen.to });
    }} onPointerMove={(event) => { if (drag) setDrag({ ...drag, to: eventAt(event) }); }}
      onPointerUp={() => {
        if (!drag) return;
        setDrag(null);
        if (drag.moves || Math.abs(drag.to - drag.from) > t.events / 200) zoom(shown.from, shown.to);
        else if (!isWhole) zoom(drag.from - wide / 2, drag.from + wide / 2);
      }} onPointerCancel={() => setDrag(null)}>
      <svg width="100%" height={LOW} aria-hidden="true">
        <svg width="100%" height={LOW} viewBox={`0 0 ${ACROSS} ${LOW}`} preserveAspectRatio="none"><path class="minimap-area" d={shape(/** @type {any} */ (rows)) ?? ''} /></svg>
        <rect class={isWhole && !drag ? 'brush whole' : 'brush'} x={pc(shown.from)} width={pc(shown.to - shown.from)} y="0.5" height={LOW - 1} />
      </svg>
    </div>
  );
}
