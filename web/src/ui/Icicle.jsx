// SPDX-License-Identifier: Apache-2.0
/* Where the bytes are: parts, their layers, and in each layer the factors. Widths are bytes; within a layer the heights
 * are the factors' shares, so every area is in proportion. One tab stop: arrows move, Enter opens, Escape goes up. */
import { hierarchy, partition } from 'd3-hierarchy';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { factor, inOrder } from '../factors.js';
import { inUnit, percent } from '../format.js';
import { details, looking, unit, view } from '../state.js';
import { useWidth } from './hooks.js';
import { Lazy } from './lazy.jsx';
import { Bytes, FactorValues, fill, Icon } from './marks.jsx';
import { showTable, tables, Twin } from './Twin.jsx';
import { Section } from './Section.jsx';

/** @typedef {{key: string, title: string, bytes: number, factors: Record<string, number>, cell?: {part: string, layer?: string}, count?: number, children?: Datum[]}} Datum */
/** @typedef {import('d3-hierarchy').HierarchyRectangularNode<Datum>} Node */

const PART = 26;
const LAYER = 20;
const STACK = 190;
const GAP = 2;
const HEIGHT = PART + GAP + LAYER + STACK;

const ALIKE = 4; /* so many equal layers in a row are drawn as one */

/** Layers of a part; of those in a row that hold the same, one for all.
 * @param {import('../types.js').Part} part @param {boolean} isWhole each by itself @returns {Datum[]} */
function layersOf({ part, title, layers }, isWhole) {
  const held = layers.filter((layer) => layer.bytes > 0);
  const says = held.map((layer) => JSON.stringify(Object.entries(layer.factors).sort()));
  /** @type {Datum[]} */
  const rows = [];
  for (let i = 0, next; i < held.length; i = next) {
    next = i + 1;
    while (next < held.length && says[next] === says[i]) next++;
    if (isWhole || next - i < ALIKE) next = i + 1;
    const { name, bytes, factors } = held[i];
    const count = next - i;
    rows.push({
      key: `${part || title}/${name}${count > 1 ? `…${count}` : ''}`, count, bytes: count * bytes,
      title: count > 1 ? `${count} equal layers` : name || title,
      factors: Object.fromEntries(Object.entries(factors).map(([kind, each]) => [kind, count * each])), cell: { part, layer: name },
    });
  }
  return rows;
}

/** @param {import('../types.js').Report} r @param {string} zoom the part that is looked at, whose layers are drawn one by one @returns {Node} */
function layout(r, zoom) {
  /** @type {Datum} */
  const whole = {
    key: '', title: 'Everything', bytes: r.peak.allocated, factors: Object.fromEntries(r.factors.map((f) => [f.name, f.bytes])),
    children: r.breakdown.filter((part) => part.bytes > 0).map((part) => ({
      key: part.part || part.title, title: part.title, bytes: part.bytes, factors: part.factors, cell: { part: part.part },
      children: layersOf(part, zoom === (part.part || part.title)),
    })),
  };
  const root = hierarchy(whole).sum((d) => (d.children?.length ? 0 : d.bytes));
  return partition()(/** @type {any} */ (root));
}

/** The last number of a layer's name, or its last word: what fits on a narrow column.
 * @param {string} name */
function shortName(name) {
  const words = name.split('.');
  return words[words.length - 1];
}

const LETTER = 6.3; /* pixels, at the size of a layer's name */

/** The name a layer's column has room for. Numbered layers too narrow for all show every 2nd, 5th or 10th.
 * @param {Node} node @param {number} wide pixels */
function shown(node, wide) {
  const { title, count = 1 } = node.data;
  if (count > 1) return [title, `${count} ×`].find((words) => wide > words.length * LETTER + 4) ?? '';
  const name = shortName(title);
  if (!/^\d+$/.test(name)) return wide > name.length * LETTER + 4 ? name : '';
  const every = [1, 2, 5, 10, 20].find((step) => step * wide > 2 * LETTER + 6);
  return every && Number(name) % every === 0 && (every > 1 || wide > name.length * LETTER + 2) ? name : '';
}

/** @param {{r: import('../types.js').Report, panel: import('../panels.js').Panel}} props */
export function Icicle({ r, panel }) {
  const [ref, width] = useWidth('.icicle', 470);
  const svg = useRef(/** @type {SVGSVGElement | null} */ (null));
  const [zoom, setZoom] = useState('');
  const [cursor, setCursor] = useState('');
  const [hover, setHover] = useState('');
  const given = view.value;
  useEffect(() => setZoom(given.zoom ?? ''), [given]);
  looking.zoom = zoom;

  const root = layout(r, zoom);
  const nodes = root.descendants();
  const find = (/** @type {string} */ key) => nodes.find((node) => node.data.key === key);
  const zoomed = find(zoom) ?? root;
  const at = (cursor && find(cursor)) || zoomed.children?.[0] || root;
  const read = (hover && find(hover)) || (cursor ? at : zoomed);

  const span = zoomed.x1 - zoomed.x0 || 1;
  const left = (/** @type {Node} */ node) => (Math.max(node.x0, zoomed.x0) - zoomed.x0) / span;
  const size = (/** @type {Node} */ node) => (Math.min(node.x1, zoomed.x1) - Math.max(node.x0, zoomed.x0)) / span;
  const pc = (/** @type {number} */ share) => `${(100 * share).toFixed(3)}%`;
  const seen = nodes.filter((node) => node.depth > 0 && node.x1 > zoomed.x0 && node.x0 < zoomed.x1);
  const parts = seen.filter((node) => node.depth === 1);
  const layers = seen.filter((node) => node.depth === 2);

  const isMoving = useRef(false); /* by a key or into a part: the focus follows */
  const refocus = () => { isMoving.current = true; };
  useLayoutEffect(() => {
    if (isMoving.current) /** @type {SVGElement | null | undefined} */ (svg.current?.querySelector('[tabindex="0"]'))?.focus();
    isMoving.current = false;
  });
  function go(/** @type {Node | undefined} */ node) {
    if (!node) return;
    if (node.data.key === cursor) return;
    setCursor(node.data.key);
    refocus();
  }
  /* A part is zoomed into, a layer taken apart. */
  function open(/** @type {Node} */ node) {
    const isMany = (/** @type {Node} */ one) => (one.children?.length ?? 0) > 1 || (one.children?.[0]?.data.count ?? 1) > 1 || one.data.key === zoom;
    if ((node.data.count ?? 1) > 1) {
      setZoom(node.parent?.data.key ?? '');
      setCursor(node.data.key.replace(/…\d+$/, ''));
      refocus();
    } else if (node.depth === 1 && isMany(node)) setZoom(node.data.key === zoom ? '' : node.data.key);
    else details.value = { title: node.depth === 2 ? `${node.parent?.data.title}, ${node.data.title}` : node.data.title, ...node.data.cell };
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    const row = at.depth === 1 ? parts : layers;
    const index = row.indexOf(at);
    const target = {
      ArrowRight: row[index + 1], ArrowLeft: row[index - 1], Home: row[0], End: row[row.length - 1],
      ArrowDown: at.children?.[0], ArrowUp: at.depth > 1 ? at.parent : undefined,
    }[event.key];
    if (event.key === 'Enter' || event.key === ' ') open(at);
    else if (event.key === 'Escape' && zoom) setZoom('');
    else if (event.key === 't') showTable(event);
    else if (event.key === 'p') go([...parts, ...layers].filter((node) => node.depth === (layers.length ? 2 : 1)).sort((a, b) => b.data.bytes - a.data.bytes)[0]);
    else if (/^(Arrow|Home|End)/.test(event.key)) go(/** @type {Node | undefined} */ (target ?? undefined));
    else return;
    event.preventDefault();
  }
  /** @param {Node} node */
  const words = (node) => `${node.depth === 2 ? `${node.parent?.data.title}, ` : ''}${node.data.title}: ${inUnit(node.data.bytes, unit.value)} ${unit.value}, ${percent(node.data.bytes, root.data.bytes)}`;
  /** @param {Node} node */
  const handles = (node) => ({
    tabindex: node === at ? 0 : -1, role: /** @type {const} */ ('img'), 'aria-label': words(node),
    onFocus: () => setCursor(node.data.key), onClick: () => { setCursor(node.data.key); open(node); },
    onPointerEnter: () => setHover(node.data.key),
  });

  return (
    <Section panel={panel} r={r} tools={zoom && <button type="button" class="button small" onClick={() => setZoom('')}><Icon name="up" />Everything</button>}>
      <div ref={ref} class="icicle" role="group" aria-label={`${r.breakdown.length} parts. Arrows move, Enter opens a part, Escape goes back.`}
        onKeyDown={key} onPointerLeave={() => setHover('')}>
        <svg ref={svg} width="100%" height={HEIGHT}>
          {parts.map((node) => {
            const wide = size(node) * width;
            const title = wide > node.data.title.length * 6.7 + 12 ? node.data.title : '';
            return (
              <g key={node.data.key} class="part" {...handles(node)}>
                <rect x={pc(left(node))} y="0" width={pc(size(node))} height={PART} />
                {title && <text x={pc(left(node) + size(node) / 2)} y={PART / 2} dy="0.35em" text-anchor="middle">{title}</text>}
              </g>
            );
          })}
          {layers.map((node) => {
            let low = HEIGHT;
            return (
              <g key={node.data.key} class="layer" {...handles(node)}>
                <rect class="layer-ground" x={pc(left(node))} y={PART + GAP} width={pc(size(node))} height={LAYER + STACK} />
                {inOrder(Object.keys(node.data.factors)).map((kind) => {
                  const high = (STACK * node.data.factors[kind]) / node.data.bytes;
                  low -= high;
                  return high >= 0.25 && <rect key={kind} x={pc(left(node))} y={low.toFixed(2)} width={pc(size(node))} height={high.toFixed(2)} {...fill(kind)} />;
                })}
              </g>
            );
          })}
          {layers.map((node) => {
            const name = shown(node, size(node) * width);
            const middle = (left(node) + size(node) / 2) * width;
            const half = (name.length * LETTER) / 2;
            return name && middle > half && middle < width - half && <text key={node.data.key} class="layer-name" x={pc(left(node) + size(node) / 2)} y={PART + GAP + LAYER / 2} dy="0.35em" text-anchor="middle">{name}</text>;
          })}
          {seen.map((node) => node.depth === 2 && size(node) * width > 3
            && <line key={node.data.key} class="gap thin" x1={pc(left(node))} x2={pc(left(node))} y1={PART + GAP + LAYER} y2={HEIGHT} />)}
          {parts.map((node) => <line key={node.data.key} class="gap" x1={pc(left(node))} x2={pc(left(node))} y1="0" y2={HEIGHT} />)}
          {read.depth > 0 && <rect class="outline" x={pc(left(read))} width={pc(size(read))} y={read.depth === 1 ? 0 : PART + GAP} height={read.depth === 1 ? HEIGHT : LAYER + STACK} />}
        </svg>
      </div>
      <p class="readout">
        <b>{read.depth === 2 && `${read.parent?.data.title} › `}{read.data.title}</b>{' '}
        <Bytes n={read.data.bytes} named /> <span class="muted">{percent(read.data.bytes, root.data.bytes)}</span>
        <FactorValues names={inOrder(Object.keys(root.data.factors).filter((kind) => root.data.factors[kind]))} of={(kind) => read.data.factors[kind]} />
      </p>
      <Twin title="Table of layers" tall>{() => <Lazy load={async () => ({ default: (await tables()).Layers })} r={r} />}</Twin>
    </Section>
  );
}
