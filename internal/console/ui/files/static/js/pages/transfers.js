// SPDX-License-Identifier: Apache-2.0
// Recent transfers, each with the picture of its route: bytes by route, stages, what limited it and why it was not
// faster.

import { html, useState } from '../html.js';
import { get, session } from '../api.js';
import { ago, bytes, count, duration, percent, plural, rate, time } from '../format.js';
import { useObservable } from '../observable.js';
import { useResource } from '../resource.js';
import { go, link } from '../router.js';
import { Empty, Fact, Head, Loaded, Note, Search } from '../parts/basics.js';
import { Bar } from '../parts/chart.js';
import { Dialog } from '../parts/dialog.js';
import { RouteBar, RoutePicture } from '../parts/route.js';

const failed = (t) => Boolean(t.error) || t.status >= 400;

/** Transfers lists what moved, newest first. */
export function Transfers({ query }) {
  const me = useObservable(session);
  const [filter, setFilter] = useState('');
  const [paused, setPaused] = useState(false);
  const source = query.source ?? '';
  const list = useResource((signal) => get('transfers', { source, limit: 200 }, signal), [source], { every: paused ? 0
    : 2000 });
  const text = filter.toLowerCase();
  const match = (t) => !text
    || `${t.bucket}/${t.key} ${t.operation} ${t.account} ${t.client}`.toLowerCase().includes(text);
  return html`<${Head} title="Transfers" under=${me.admin ? 'Of all users, newest first' : 'Your own, newest first'}>
      <${Search} label="Search transfers" value=${filter} onInput=${setFilter} />
      <label class="row tight"><span class="unseen">Source</span>
        <select value=${source} onChange=${(e) => go(link('transfers', { source: e.currentTarget.value }),
          { replace: true })}>
        <option value="">All sources</option><option value="s3">S3</option><option value="door">Door</option></select>
          </label>
      <button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? 'Go on' : 'Pause'}
        </button><//>
    <${Loaded} from=${list} what="The transfers could not be listed.">${(data) => {
      const shown = (data.transfers ?? []).filter(match);
      const open = query.id !== undefined && (data.transfers ?? []).find((t) => String(t.id) === query.id);
      return html`${data.note && html`<p class="dim">${data.note}</p>`}
        ${shown.length ? html`<${Table} list=${shown} source=${source} />` : html`<${Empty}>
          ${filter ? `No transfer matches "${filter}".` : 'Nothing was transferred since the server started.'}<//>`}
        <p class="dim">The last ${plural(data.kept ?? 0, 'transfer')} are kept${data.dropped
          ? `, ${count(data.dropped)} older ones were dropped` : ''}.</p>
        ${open && html`<${One} t=${open} onClose=${() => go(link('transfers', { source }))} />`}`;
    }}<//>`;
}

function Table({ list, source }) {
  return html`<table class="cards moves"><thead><tr><th scope="col">Operation</th><th scope="col">Object</th>
    <th scope="col" class="num">Bytes</th><th scope="col" class="num">Rate</th><th scope="col">Routes</th>
      <th scope="col">Limited by</th><th scope="col">When</th></tr></thead>
    <tbody>${list.map((t) => html`<tr key=${t.id}><th scope="row"><a href=${link('transfers', { source, id: t.id })}>
      ${t.operation}</a> ${failed(t) && html`<span class="tag bad">${t.status || 'failed'}</span>`}<br />
        <small class="anywhere">${t.source}${t.account ? `, ${t.account}` : ''}</small></th>
      <td class="anywhere">${t.bucket}/${t.key}</td><td data-label="Bytes" class="num">${bytes(t.bytes)}</td>
        <td data-label="Rate" class="num">${rate(t.rate)}<br /><small> ${duration(t.seconds)}</small></td>
      <td><${RouteBar} routes=${t.routes} /></td><td data-label="Limited by">
        ${t.limit ? `${t.limit.stage} ${percent(t.limit.share)}` : '–'}</td><td title=${time(t.at)}>${ago(t.at)}</td>
          </tr>`)}</tbody></table>`;
}

function One({ t, onClose }) {
  const slowest = Math.max(1e-9, ...(t.stages ?? []).map((s) => s.seconds));
  return html`<${Dialog} title=${`${t.operation} ${t.bucket}/${t.key}`} onClose=${onClose} drawer><div class="stack">
    ${failed(t) && html`<${Note} kind="bad" title=${`It failed${t.status ? ` with status ${t.status}` : ''}.`}>
      ${t.error}<//>`}
    <dl class="facts"><${Fact} name="Bytes">${bytes(t.bytes)}<//><${Fact} name="Rate">${rate(t.rate)}
      <//><${Fact} name="Time">${duration(t.seconds)}<//><${Fact} name="When">${time(t.at)}<//>
      <${Fact} name="User">${t.account || 'anonymous'}<//><${Fact} name="Client">${t.client || '–'}<//></dl>
    <section><h3>Route</h3><${RoutePicture} transfer=${t} /></section>
    ${t.limit && html`<${Note} title=${`Limited by: ${t.limit.stage} (${percent(t.limit.share)} of the time)`}>
      ${t.limit.text}<//>`}
    ${t.stages?.length > 0 && html`<section><h3>Stages</h3><div class="stages">
      ${t.stages.map((s) => html`<div key=${s.stage}><span>${s.stage.replaceAll('_', ' ')}</span>
      <${Bar} label=${`${s.stage}: ${duration(s.seconds)}`} parts=${[{ name: s.stage, kind: t.limit?.stage === s.stage
        ? 'memory' : 'storage', share: s.seconds / slowest }]} />
      <span class="num">${duration(s.seconds)}${s.share ? `, ${percent(s.share)}` : ''}</span></div>`)}</div>
        </section>`}
    ${t.why?.length > 0 && html`<section class="stack tight"><h3>Why not faster</h3>
      ${t.why.map((w, i) => html`<${Note} key=${i}>${w.text}${w.fix && html`<div class="fix">Fix: ${w.fix}</div>`}
        <//>`)}</section>`}
  </div><//>`;
}
