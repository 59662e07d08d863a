// SPDX-License-Identifier: Apache-2.0
/* The baseline's memory as a line over the present job's, phase by phase beside it; with its highest point named. */
import { curveStepAfter, line } from 'd3-shape';
import { inUnit } from '../format.js';
import { aligned, phases } from '../phases.js';
import { baselineReport, unit } from '../state.js';

const LINE = 15; /* pixels, a label's height */

/** @param {{spans: import('../phases.js').Phase[], x: (event: number) => number, y: (bytes: number) => number, across: number, high: number,
 *   width: number, first: number, end: number, peak: {x: number, y: number}}} props  across: units of x over the width in pixels; peak: where the
 *   present job's label stands, in shares of the width and pixels */
export default function BaselineCurve({ spans, x, y, across, high, width, first, end, peak }) {
  const then = baselineReport.value;
  if (!then) return null;
  const { columns, events, peak_column: highest } = then.timeline;
  const place = aligned(phases(then.timeline), spans);
  const rows = [...columns, { ...columns[columns.length - 1], from: events }];
  const d = line().curve(curveStepAfter).digits(1).x((_, i) => x(place(rows[i].from))).y((_, i) => y(rows[i].allocated))(/** @type {any} */ (rows)) ?? '';
  const top = place(columns[highest].peak);
  const at = (top - first) / (end - first);
  const label = `baseline ${inUnit(then.peak.allocated, unit.value)}`;
  const isLeft = at > 0.5;
  const near = Math.abs(at - peak.x) * width < 2 * 7 * label.length && Math.abs(y(then.peak.allocated) - peak.y) < LINE;
  return (
    <>
      <svg width="100%" height={high} viewBox={`0 0 ${across} ${high}`} preserveAspectRatio="none" class="baseline-box">
        <path class="baseline-casing" d={d} /><path class="baseline" d={d} />
      </svg>
      {at >= 0 && at <= 1 && (
        <text class="baseline-text" x={`${(100 * at).toFixed(3)}%`} dx={isLeft ? -9 : 9} text-anchor={isLeft ? 'end' : 'start'}
          y={Math.max(12, Math.min(high - 6, y(then.peak.allocated) + (near ? LINE + 2 : -6))).toFixed(1)}>{label}</text>
      )}
    </>
  );
}
