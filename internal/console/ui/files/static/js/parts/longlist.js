// SPDX-License-Identifier: Apache-2.0
// A table with any number of rows of which only those in view are in the page. It scrolls with the window.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from '../html.js';

const beyond = 12; // rows above and below the view, so that fast scrolling shows no gap

/**
 * LongList draws rows as a table. row(item, index) returns the cells of a row; onNearEnd is called when the last rows
 * come into view; onKey receives keys that the list itself does not use, with the row they were pressed in.
 */
export function LongList({ label, head, rows, row, more, onNearEnd, onKey, selected }) {
  const body = useRef(null);
  const height = useRef(36);
  const wanted = useRef(-1); // the row that gets the focus once it is in the page
  const [range, setRange] = useState([0, 40]);

  const look = useCallback(() => {
    if (!body.current) return;
    const line = parseFloat(getComputedStyle(body.current.closest('table')).getPropertyValue('--line')) || 36;
    height.current = line;
    const top = -body.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / line) - beyond);
    const end = Math.ceil((top + innerHeight) / line) + beyond;
    setRange((old) => (old[0] === first && old[1] === end ? old : [first, end]));
  }, []);

  useEffect(() => {
    let frame = 0;
    const later = () => {
      if (!frame) frame = requestAnimationFrame(() => { frame = 0; look(); });
    };
    addEventListener('scroll', later, { passive: true });
    addEventListener('resize', later);
    look();
    return () => {
      removeEventListener('scroll', later);
      removeEventListener('resize', later);
      cancelAnimationFrame(frame);
    };
  }, []);
  useLayoutEffect(look, [rows.length]);
  useEffect(() => {
    if (more && range[1] > rows.length - 200) onNearEnd();
  }, [range, rows.length, more]);

  useLayoutEffect(() => {
    if (wanted.current < 0) return;
    const target = body.current.querySelector(`[data-row="${wanted.current}"] [data-main]`);
    if (target) {
      wanted.current = -1;
      target.focus({ preventScroll: true });
    }
  });

  const moveTo = (index) => {
    const to = Math.min(Math.max(index, 0), rows.length - 1);
    wanted.current = to;
    const line = height.current;
    const top = body.current.getBoundingClientRect().top + to * line;
    const edge = 120; // room for a sticky bar and the panel of uploads
    if (top < edge) scrollBy({ top: top - edge });
    else if (top + line > innerHeight - edge) scrollBy({ top: top + line - innerHeight + edge });
    setRange(([first, end]) => (to >= first && to < end ? [first, end] : [Math.max(0, to - 40), to + 40]));
  };
  const keys = (event) => {
    const index = Number(event.target.closest?.('[data-row]')?.dataset.row ?? -1);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(innerHeight / height.current) - 6);
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page, Home: 0,
      End: rows.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      moveTo(to);
    } else onKey?.(event, rows[index], index);
  };

  const first = Math.min(range[0], rows.length);
  const end = Math.min(range[1], rows.length);
  const space = (n) => n > 0 && html`<tr class="space" aria-hidden="true">
    <td style=${{ height: `${n * height.current}px` }}></td></tr>`;
  return html`<table class="long" aria-label=${label} aria-rowcount=${more ? -1 : rows.length + 1}>
    <thead><tr aria-rowindex="1">${head.map(([text, name]) => html`<th key=${name} class=${name} scope="col">${text}
      </th>`)}</tr></thead>
    <tbody ref=${body} onKeyDown=${keys}>
      ${space(first)}
      ${rows.slice(first, end).map((item, i) => html`<tr key=${first + i} data-row=${first + i}
        aria-rowindex=${first + i + 2}
        aria-selected=${selected ? (selected(item) ? 'true' : undefined) : undefined}>${row(item, first + i)}</tr>`)}
      ${space(rows.length - end)}
    </tbody>
  </table>`;
}
