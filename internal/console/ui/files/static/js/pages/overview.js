// SPDX-License-Identifier: Apache-2.0
// The overview: is the server well, how full is it, what moves now, and what should be mended.

import { html, useMemo } from '../html.js';
import { get, session } from '../api.js';
import { bytes, count, duration, percent, plural, rate, time } from '../format.js';
import { useLive } from '../live.js';
import { useObservable } from '../observable.js';
import { useResource } from '../resource.js';
import { link } from '../router.js';
import { describe, deviceName } from '../routes.js';
import { Block, Fact, Head, Loaded, Note, Tile } from '../parts/basics.js';
import { Bar, Chart } from '../parts/chart.js';
import { Phase } from './cluster.js';

const states = {
  ready: ['Ready', 'good'], full: ['Disk full', 'bad'], 'read-only': ['Read-only', 'warn'], failed: ['Failed', 'bad'],
  starting: ['Starting', 'warn'], draining: ['Stopping', 'warn'],
};
const levels = { fail: 'bad', warn: 'warn', info: '' };

/** Overview is the first page. */
export function Overview() {
  const overview = useResource((signal) => get('overview', {}, signal), [], { every: 5000 });
  const samples = useLive();
  const me = useObservable(session);
  return html`<${Head} title="Overview" under=${me.admin ? me.endpoint : `${me.endpoint}, your own traffic`} />
    <${Loaded} from=${overview} what="The overview could not be loaded.">${(o) => html`<div class="stack">
      <${Tiles} o=${o} now=${samples.at(-1)} />
      <${Warnings} list=${o.warnings ?? []} />
      <${Rates} samples=${samples} />
      <${Now} now=${samples.at(-1)} />
      <${Clients} o=${o} />
    </div>`}<//>`;
}

function Tiles({ o, now }) {
  const [state, kind] = states[o.health.state] ?? [o.health.state, ''];
  const c = o.capacity;
  const used = c?.total_bytes > 0 ? c.total_bytes - c.free_bytes : null;
  return html`<div class="tiles">
    <${Tile} name="Server" value=${state} kind=${kind} under=${o.health.reason
      || `up ${duration(o.uptime_seconds)}, version ${o.version}`} />
    ${c && html`<${Tile} name="Stored" value=${bytes(c.bytes)} under=${`${plural(c.objects,
      'object')}, ${plural(c.versions, 'version')} in ${plural(c.buckets, 'bucket')}`} />`}
    ${c && used !== null && html`<div class="tile"><div class="name">Free on disk</div><div class="value">
      ${bytes(c.free_bytes)}</div>
      <${Bar} label=${`${percent(used / c.total_bytes)} of the disk is used`} parts=${[{ name: 'used',
        kind: used / c.total_bytes > 0.95 ? 'bad' : 'storage', share: used / c.total_bytes }]} />
      <div class="under">of ${bytes(c.total_bytes)}</div></div>`}
    <${Tile} name="Reads" value=${rate(now?.s3?.read ?? null)}
      under=${`S3, ${count(Math.round(now?.s3?.requests ?? 0))} requests/s`} />
    <${Tile} name="Writes" value=${rate(now?.s3?.written ?? null)} under=${now?.s3?.errors ? html`<span class="bad">
      ${count(Math.round(now.s3.errors))} errors/s</span>` : 'no errors now'} />
    ${o.door && html`<${Tile} name="Door clients" value=${o.door.served ? count(o.door.connections) : 'Off'}
      under=${o.door.served ? `${plural(o.door.handles, 'handle')}, ${plural(o.door.drafts, 'draft')}`
        : o.door.reason} />`}
  </div>`;
}

function Warnings({ list }) {
  const me = useObservable(session);
  if (!list.length) return null;
  return html`<${Block} title="Warnings" under=${plural(list.length, 'finding')}>
    <ul class="plain stack tight">${list.map((w, i) => html`<li key=${w.title + i}>
      <${Note} kind=${levels[w.level] ?? ''}
      title=${w.title}>
      ${w.detail && html`<div>${w.detail}</div>`}
      ${w.fix && html`<div class="fix">Fix: ${w.fix}</div>`}
      ${w.page && me.pages.includes(w.page) && html`<a href=${link(w.page)}>Show more</a>`}
    <//></li>`)}</ul>
  <//>`;
}

function Rates({ samples }) {
  const times = samples.map((s) => s.at);
  const pick = (read) => samples.map(read);
  const lines = useMemo(() => ({
    traffic: [{ name: 'read', kind: 'storage', values: pick((s) => s.s3?.read ?? 0) }, { name: 'written',
      kind: 'memory', values: pick((s) => s.s3?.written ?? 0) }],
    requests: [{ name: 'requests', kind: 'network', values: pick((s) => s.s3?.requests ?? 0) }, { name: 'errors',
      kind: 'bad', values: pick((s) => s.s3?.errors ?? 0) }],
    disks: [{ name: 'read', kind: 'storage', values: pick((s) => (s.disks ?? []).reduce((n, d) => n + d.read, 0)) },
      { name: 'written', kind: 'memory', values: pick((s) => (s.disks ?? []).reduce((n, d) => n + d.written, 0)) }],
    cpu: [{ name: 'cores', kind: 'both', values: pick((s) => s.cpu ?? null) }],
  }), [samples]);
  const admin = samples.some((s) => s.disks?.length);
  return html`<${Block} title="Rates" under="The last ten minutes, one sample each second">
    <div class="charts">
      <${Chart} title="S3 traffic" lines=${lines.traffic} times=${times} format=${rate} />
      <${Chart} title="S3 requests" lines=${lines.requests} times=${times} format=${(v) => `${v === null ? '–' : v < 10
        ? Math.round(v * 10) / 10 : count(Math.round(v))}/s`} />
      ${admin && html`<${Chart} title="Disks" lines=${lines.disks} times=${times} format=${rate} />
      <${Chart} title="CPU of the server" lines=${lines.cpu} times=${times} format=${(v) => (v === null ? '–'
        : v.toFixed(2))} />`}
    </div>
  <//>`;
}

/** Now lists what moves at this moment: routes by device, disks and GPUs. */
function Now({ now }) {
  if (!now) return null;
  const routes = now.routes ?? [];
  const disks = now.disks ?? [];
  const gpus = now.gpus ?? [];
  return html`<div class="columns">
    <${Block} title="By route and device" under="Now">
      ${routes.length ? html`<table><thead><tr><th scope="col">Route</th><th scope="col">Device</th>
        <th scope="col" class="num">Rate</th></tr></thead><tbody>
        ${routes.map((r) => html`<tr key=${r.direction + r.route + r.device} class=${`c-${describe(r.route).kind}`}><td>
          <span class="swatch"></span> ${r.direction === 'write' ? 'write' : 'read'} <code>${r.route}</code></td>
          <td>${deviceName(r.device)}</td><td class="num">${rate(r.rate)}</td></tr>`)}
      </tbody></table>` : html`<p class="dim">No bytes move through the door now.</p>`}<//>
    ${disks.length > 0 && html`<${Block} title="Disks" under="Now"><table><thead><tr><th scope="col">Disk</th>
      <th scope="col" class="num">Read</th><th scope="col" class="num">Written</th><th scope="col" class="num">Busy</th>
        </tr></thead><tbody>
      ${disks.map((d) => html`<tr key=${d.name}><th scope="row">${d.name}</th><td class="num">${rate(d.read)}</td>
        <td class="num">${rate(d.written)}</td><td class="num">${percent(d.busy)}</td></tr>`)}</tbody></table><//>`}
    ${gpus.length > 0 && html`<${Block} title="GPUs" under="Now"><table><thead><tr><th scope="col">GPU</th>
      <th scope="col" class="num">Busy</th><th scope="col" class="num">Memory</th>
        <th scope="col" class="num">PCIe in</th><th scope="col" class="num">PCIe out</th></tr></thead><tbody>
      ${gpus.map((g) => html`<tr key=${g.index}><th scope="row">${g.index}</th><td class="num">${percent(g.busy)}</td>
        <td class="num">${bytes(g.memory_used)}</td><td class="num">${rate(g.pcie_rx)}</td><td class="num">
          ${rate(g.pcie_tx)}</td></tr>`)}</tbody></table><//>`}
  </div>`;
}

function Clients({ o }) {
  if (!o.s3 && !o.door && !o.upstreams?.length) return null;
  return html`<${Block} title="Clients and upstreams"><dl class="facts">
    ${o.s3 && html`<${Fact} name="S3 address"><code>${o.s3.endpoint}</code><//><${Fact} name="S3 connections">
      ${count(o.s3.connections)}, ${plural(o.s3.in_flight, 'request')} in progress<//>`}
    ${o.door?.served && html`<${Fact} name="Door"><code>${o.door.socket}</code><//><${Fact} name="Door writes">
      ${o.door.writes ? 'allowed' : 'not allowed'}<//>`}
    ${o.door && !o.door.served && html`<${Fact} name="Door" full>
      ${o.door.reason}${o.door.fix ? ` Fix: ${o.door.fix}` : ''}<//>`}
    <${Fact} name="Started">${time(o.started)}<//>
    ${(o.upstreams ?? []).map((u) => html`<${Fact} key=${u.bucket} name=${`Upstream of ${u.bucket}`}>
      <${Phase} state=${u} /><//>`)}
  </dl><//>`;
}
