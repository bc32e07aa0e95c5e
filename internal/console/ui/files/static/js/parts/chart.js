// SPDX-License-Identifier: Apache-2.0
// Charts of values over time, drawn as SVG. A chart has a text for readers who do not see it.

import { html } from '../html.js';
import { clock } from '../format.js';

const W = 600;
const H = 100;

/** Rounds up to 1, 2 or 5 times a power of ten, so that the scale does not move with every sample. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

function path(values, top, slots) {
  let text = '';
  let pen = 'M';
  values.forEach((v, i) => {
    if (v === null || v === undefined) {
      pen = 'M';
      return;
    }
    const x = W - (values.length - 1 - i) * (W / Math.max(slots - 1, 1));
    text += `${pen}${x.toFixed(1)} ${(H - (v / top) * H).toFixed(1)}`;
    pen = 'L';
  });
  return text;
}

/**
 * Chart draws lines over the same times. Each line is {name, values, kind}; format turns a value into text. slots is
 * the number of samples, one each second, that the width holds: fewer samples begin further to the right.
 */
export function Chart({ title, lines, times, format, slots = 600, most }) {
  const all = lines.flatMap((l) => l.values).filter((v) => v !== null && v !== undefined);
  const highest = all.length ? Math.max(...all) : 0;
  const top = most ?? ceiling(highest);
  const now = (l) => (l.values.length ? format(l.values.at(-1)) : '–');
  const spoken = `${title}. ${lines.map((l) => `${l.name}: now ${now(l)}, highest ${format(Math.max(0,
    ...l.values.filter((v) => v !== null)))}.`).join(' ')}`;
  return html`<figure class="chart">
    <figcaption><b>${title}</b><span class="row">${lines.map((l) => html`<span class=${`nowrap c-${l.kind}`}
      key=${l.name}>
      <span class="swatch"></span> ${l.name} <b>${now(l)}</b></span>`)}</span></figcaption>
    <div class="plot"><svg viewBox=${`0 0 ${W} ${H}`} preserveAspectRatio="none" role="img" aria-label=${spoken}>
      ${[0, 0.5, 1].map((y) => html`<line class="grid" key=${y} x1="0" x2=${W} y1=${y * H} y2=${y * H} />`)}
      ${lines.map((l) => {
        const d = path(l.values, top, slots);
        const from = W - (l.values.length - 1) * (W / Math.max(slots - 1, 1));
        return html`<g class=${`c-${l.kind}`} key=${l.name}>
          ${lines.length === 1 && d && html`<path class="area" d=${`${d}L${W} ${H}L${from.toFixed(1)} ${H}Z`} />`}
          <path class="line" d=${d} /></g>`;
      })}
    </svg><span class="most" aria-hidden="true">${format(top)}</span></div>
    <div class="ends" aria-hidden="true"><span>${times.length
      ? clock(new Date(Date.parse(times.at(-1)) - (slots - 1) * 1000)) : ''}</span><span>
        ${times.length ? clock(new Date(times.at(-1))) : ''}</span></div>
  </figure>`;
}

/** Bar shows shares of a whole: each part is {share, kind, name}. */
export function Bar({ parts, label, tall }) {
  return html`<div class=${tall ? 'bar tall' : 'bar'} role="img" aria-label=${label}>
    ${parts.filter((p) => p.share > 0).map((p) => html`<i key=${p.name} class=${`c-${p.kind}`}
      style=${{ width: `${Math.min(1, p.share) * 100}%` }}></i>`)}
  </div>`;
}
