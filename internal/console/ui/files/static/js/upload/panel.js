// SPDX-License-Identifier: Apache-2.0
// The panel at the corner of the window that shows the uploads of this page.

import { html, useEffect, useRef, useState } from '../html.js';
import { bytes, count, percent, plural, rate } from '../format.js';
import { Icon } from '../icons.js';
import { useObservable } from '../observable.js';
import { uploads } from './queue.js';

const shown = 50;

/** Returns the rate of the last seconds of a growing count. */
function useRate(total) {
  const marks = useRef([]);
  const now = performance.now();
  const last = marks.current.at(-1);
  if (!last || now - last[0] > 400) marks.current = [...marks.current, [now, total]].filter(([t]) => now - t < 5000);
  const [first] = marks.current;
  const seconds = (now - first[0]) / 1000;
  return seconds > 0.5 ? Math.max(0, (total - first[1]) / seconds) : null;
}

function describe(u) {
  const so = `${bytes(u.sent)} of ${bytes(u.file.size)}`;
  switch (u.state) {
    case 'waiting': return 'Waiting';
    case 'checking': return 'Comparing the parts that the server has with the file';
    case 'retrying': return `${so}. The connection was cut; going on when the server answers.`;
    case 'paused': return `${so}. Paused`;
    case 'done': return `${bytes(u.file.size)}. Done${u.resumed ? `, ${bytes(u.resumed)} were there already` : ''}`;
    case 'failed': return `${u.error.message}${u.error.fix ? ` Fix: ${u.error.fix}` : ''}`;
    default: return so;
  }
}

function Line({ u }) {
  const { name } = u.file;
  return html`<li>
    <div class="row"><span class="cut grow" title=${`${u.bucket}/${u.key}`}>${u.key}</span>
      ${u.active && html`<button type="button" class="quiet icon" aria-label=${`Pause the upload of ${name}`}
        title="Pause" onClick=${() => u.pause()}><${Icon} name="pause" /></button>`}
      ${(u.state === 'paused' || u.state === 'failed') && html`<button type="button" class="quiet icon"
        aria-label=${`Go on with the upload of ${name}`} title="Go on" onClick=${() => uploads.resume(u)}>
          <${Icon} name="play" /></button>`}
      ${u.state !== 'done' && html`<button type="button" class="quiet icon"
        aria-label=${`Cancel the upload of ${name}`} title="Cancel" onClick=${() => uploads.cancel(u)}>
          <${Icon} name="close" /></button>`}
      ${u.state === 'done' && html`<span class="good"><${Icon} name="check" /></span>`}</div>
    ${u.state !== 'done' && html`<progress max=${u.file.size || 1} value=${u.sent} aria-label=${`Upload of ${name}`}>
      </progress>`}
    <small class=${u.state === 'failed' ? 'bad' : ''} data-state=${u.state}>${describe(u)}</small></li>`;
}

/** UploadPanel shows what is on its way. It is not there as long as nothing was uploaded. */
export function UploadPanel() {
  const list = useObservable(uploads.list);
  const [small, setSmall] = useState(false);
  const total = list.reduce((n, u) => n + u.file.size, 0);
  const sent = list.reduce((n, u) => n + u.sent, 0);
  const speed = useRate(sent);
  const active = list.filter((u) => u.active).length;
  useEffect(() => { if (active) setSmall(false); }, [list.length]);
  if (!list.length) return null;
  const failed = list.filter((u) => u.state === 'failed').length;
  const title = active ? `Uploading ${plural(active, 'file')}, ${percent(total ? sent / total : 1)}` : failed
    ? `${plural(failed, 'upload')} failed` : 'Uploads done';
  return html`<section class="uploads" aria-label="Uploads">
    <header><h2>${title} ${active > 0 && speed !== null && html`<small>${rate(speed)}</small>`}</h2>
      <span class="unseen" role="status">${active ? '' : title}</span>
      <button type="button" class="quiet" aria-expanded=${!small} onClick=${() => setSmall(!small)}>
        ${small ? 'Show' : 'Hide'}</button>
      ${!active && html`<button type="button" class="quiet icon" aria-label="Close the list of uploads"
        onClick=${() => uploads.clear()}><${Icon} name="close" /></button>`}</header>
    ${!small && html`<ul>${list.slice(-shown).reverse().map((u) => html`<${Line}
      key=${u.bucket + u.key + u.file.lastModified} u=${u} />`)}
      ${list.length > shown && html`<li><small>and ${count(list.length - shown)} more</small></li>`}</ul>`}
  </section>`;
}
