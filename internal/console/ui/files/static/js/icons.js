// SPDX-License-Identifier: Apache-2.0
// Line icons of the console, drawn for it on a grid of 16. They are decoration: the text beside an icon carries the
// meaning.

import { html } from './html.js';

const paths = {
  overview: 'M2 12.5h12M4 10V7m4 3V3.5M12 10V5.5',
  buckets: 'M2.5 4.5c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2Z'
    + 'm0 0 1.2 7.6c.2.8 2 1.4 4.3 1.4s4.1-.6 4.3-1.4l1.2-7.6',
  users: 'M6 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Zm-4 6c0-2.2 1.8-4 4-4s4 1.8 4 4'
    + 'M10.5 2.8a2.5 2.5 0 0 1 0 4.4M12 9.9c1.2.6 2 1.9 2 3.6',
  machine: 'M4 4h8v8H4zM6.5 4V2m3 2V2m-3 12v-2m3 2v-2M4 6.5H2m2 3H2m12-3h-2m2 3h-2M6.5 6.5h3v3h-3z',
  transfers: 'M2.5 5.5h10m0 0L10 3m2.5 2.5L10 8m3.5 2.5h-10m0 0L6 8m-2.5 2.5L6 13',
  benchmarks: 'M2.5 12a5.5 5.5 0 1 1 11 0M8 12l2.6-3.8',
  cluster: 'M8 5.5a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5Z'
    + 'm-4.5 8a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5Z'
    + 'm9 0a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5ZM7.2 5.4l-2.8 4.8m4.4-4.8 2.8 4.8M5.3 11.8h5.4',
  config: 'M2.5 4.5h5m3 0h3m-11 7h2m3 0h6M9 3v3M6 10v3',
  folder: 'M2 12.5v-9h4l1.5 2H14v7z',
  file: 'M4 2h5l3 3v9H4zM9 2v3h3',
  search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Zm3.3-1.2L14 14',
  upload: 'M8 10.5v-8m0 0L5 5.5m3-3 3 3M2.5 10.5v3h11v-3',
  download: 'M8 2.5v8m0 0L5 7.5m3 3 3-3M2.5 10.5v3h11v-3',
  share: 'M6.5 9.5l3-3M7 4.5l1.2-1.2a2.5 2.5 0 0 1 3.6 3.6L10.6 8M9 11.5l-1.2 1.2a2.5 2.5 0 0 1-3.6-3.6L5.4 8',
  trash: 'M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9',
  plus: 'M8 3v10M3 8h10',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  close: 'M4 4l8 8m0-8-8 8',
  menu: 'M2.5 4.5h11m-11 3.5h11m-11 3.5h11',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  check: 'M3 8.5l3.2 3.2L13 5',
  undo: 'M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M3 6.5 5.5 4M3 6.5 5.5 9',
  pause: 'M5.5 3.5v9m5-9v9',
  play: 'M5 3.5v9l7-4.5z',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.6L13 5.8M13 2.5v3.3H9.7',
};

/** Icon draws one icon by its name. */
export function Icon({ name }) {
  return html`<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width=${name === 'more' ? 2.4 : 1.4}
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${paths[name]} />
      </svg>`;
}

/** Logo draws the sign of the product. */
export function Logo() {
  return html`<svg viewBox="0 0 32 32" aria-hidden="true" focusable="false">
    <rect width="32" height="32" rx="7" fill="#0b5cad" />
    <path d="M9 23V9l14 14V9" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"
      stroke-linejoin="round" /></svg>`;
}
