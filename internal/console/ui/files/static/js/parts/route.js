// SPDX-License-Identifier: Apache-2.0
// The picture of a transfer's route: boxes for the places that bytes pass, and lines as wide as the share of the bytes.

import { html } from '../html.js';
import { bytes, percent } from '../format.js';
import { describe, journey } from '../routes.js';
import { Bar } from './chart.js';

const sources = ['Disk', 'Store', 'Cache', 'Upstream', 'Other node'];
const widest = 22; // width of the line of all bytes

/**
 * Arranges the places of all routes in three columns: storage, memory on the way, device. A route past all memory on
 * the way gets a gap in the middle column, so that its line crosses no box.
 */
export function arrange(transfer) {
  const total = transfer.routes.reduce((sum, r) => sum + r.bytes, 0) || 1;
  const columns = [[], [], []];
  const lines = [];
  const write = transfer.direction === 'write';
  const spot = (name, column, kind) => {
    let at = name && columns[column].find((b) => b.name === name);
    if (!at) columns[column].push(at = { name, column, kind, into: 0, out: 0 });
    return at;
  };
  for (const r of transfer.routes) {
    if (!(r.bytes > 0)) continue;
    const { kind } = describe(r.route);
    const steps = journey(transfer, r);
    const device = write ? 0 : steps.length - 1;
    const ranks = steps.map((name, i) => (i === device ? 2 : sources.includes(name) ? 0 : 1));
    const stops = [];
    steps.forEach((name, i) => {
      const column = write ? 2 - ranks[i] : ranks[i];
      if (stops.length && column - stops.at(-1).column > 1) stops.push(spot('', 1, kind));
      stops.push(spot(name, column, kind));
    });
    const width = Math.max(2, (r.bytes / total) * widest);
    stops.slice(1).forEach((to, i) => {
      const from = stops[i];
      lines.push({ from, to, kind, width, leave: from.out + width / 2, enter: to.into + width / 2 });
      from.out += width;
      to.into += width;
    });
  }
  return { columns, lines };
}

function place(columns, upright) {
  const deep = Math.max(1, ...columns.map((c) => c.length));
  const [w, h] = upright ? [330, 212] : [720, deep * 56];
  columns.forEach((column, c) => column.forEach((box, i) => {
    const share = (i + 0.5) / column.length;
    if (upright) Object.assign(box, { w: Math.min(140, w / column.length - 10), x: w * share, y: 20 + c * 86 });
    else Object.assign(box, { w: 150, x: [76, 360, 644][c], y: h * share });
  }));
  return { w, h };
}

/** Returns the path of a line. Lines that share a box lie beside each other there. */
function curve({ from, to, leave, enter }, upright) {
  const [a, b] = [leave - from.out / 2, enter - to.into / 2];
  if (upright) {
    const [y1, y2] = [from.y + (from.name ? 18 : -19), to.y - 18];
    return `M${from.x + a} ${y1}C${from.x + a} ${(y1 + y2) / 2} ${to.x + b} ${(y1 + y2) / 2} ${to.x + b} ${y2}`;
  }
  const [x1, x2] = [from.x + (from.name ? from.w / 2 : -from.w / 2 - 1), to.x - to.w / 2];
  return `M${x1} ${from.y + a}C${(x1 + x2) / 2} ${from.y + a} ${(x1 + x2) / 2} ${to.y + b} ${x2} ${to.y + b}`;
}

function Drawing({ transfer, upright }) {
  const { columns, lines } = arrange(transfer);
  const { w, h } = place(columns, upright);
  return html`<svg class=${upright ? 'tall' : 'flat'} viewBox=${`0 0 ${w} ${h}`} aria-hidden="true">
    ${lines.map((l, i) => html`<path key=${i} class=${`way c-${l.kind}`} d=${curve(l, upright)}
      stroke-width=${l.width} />`)}
    ${columns.flat().filter((b) => b.name).map((b) => html`<g key=${b.name + b.column} class=${`c-${b.kind}`}>
      <rect class="box on" x=${b.x - b.w / 2} y=${b.y - 18} width=${b.w} height="36" rx="6" />
      <text x=${b.x} y=${b.y + 4} text-anchor="middle" font-size=${b.w < 120 ? 11 : 12}>${b.name}</text></g>`)}
  </svg>`;
}

/** RoutePicture draws the route of a transfer, with a list of its bytes by route. */
export function RoutePicture({ transfer }) {
  const routes = transfer.routes ?? [];
  const total = routes.reduce((sum, r) => sum + r.bytes, 0);
  if (!total) return html`<p class="dim">No bytes were moved.</p>`;
  return html`<figure class="route">
    <${Drawing} transfer=${transfer} /><${Drawing} transfer=${transfer} upright />
    <ul class="legend">${routes.map((r) => html`<li key=${r.route + r.device} class=${`c-${describe(r.route).kind}`}>
      <span class="swatch"></span><span><b>${bytes(r.bytes)}</b> (${percent(r.bytes / total)})
      ${' '}${describe(r.route).text} <code>${r.route}</code></span></li>`)}</ul>
  </figure>`;
}

/** RouteBar shows the shares of the routes in one line. */
export function RouteBar({ routes }) {
  const total = (routes ?? []).reduce((sum, r) => sum + r.bytes, 0);
  if (!total) return html`<span class="dim">–</span>`;
  const label = routes.map((r) => `${percent(r.bytes / total)} ${describe(r.route).text}`).join(', ');
  const parts = routes.map((r) => ({ name: r.route + r.device, kind: describe(r.route).kind, share: r.bytes / total }));
  return html`<span title=${label}><${Bar} label=${label} parts=${parts} /></span>`;
}
