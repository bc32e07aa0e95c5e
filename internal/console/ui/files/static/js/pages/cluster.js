// SPDX-License-Identifier: Apache-2.0
// The members of the cluster, and the cache of objects that other S3 servers keep.

import { html } from '../html.js';
import { get } from '../api.js';
import { ago, bytes, count, percent, plural } from '../format.js';
import { useResource } from '../resource.js';
import { link } from '../router.js';
import { Block, Empty, Fact, Head, Loaded, Note, Tile } from '../parts/basics.js';
import { Bar } from '../parts/chart.js';

const states = { self: 'accent', alive: 'good' };

/** Cluster shows the nodes and the cache where they are configured, and else how to configure them. */
export function Cluster() {
  const state = useResource((signal) => get('cluster', {}, signal), [], { every: 5000 });
  return html`<${Head} title="Cluster and cache" />
    <${Loaded} from=${state} what="The state of the cluster could not be read.">${({ cluster, cache }) => html`<div>
      <${Block} title="Cluster" under=${cluster.status ? `This node is ${cluster.status.name}` : ''}>
        ${cluster.enabled && cluster.status ? html`<${Nodes} c=${cluster.status} />` : html`<${Off} part=${cluster} />`}
          <//>
      <${Block} title="Cache" under="Objects of buckets that other S3 servers keep">
        ${cache.enabled ? html`<${Cache} c=${cache} />` : html`<${Off} part=${cache} />`}<//>
    </div>`}<//>`;
}

function Off({ part }) {
  return html`<${Note} title="Not configured">
    ${part.reason}${part.fix && html`<div class="fix">Fix: ${part.fix}</div>`}<//>`;
}

function Nodes({ c }) {
  const members = c.members ?? [];
  return html`<div class="stack">
    ${members.length ? html`<table class="cards">
      <thead><tr><th scope="col">Node</th><th scope="col">Address</th><th scope="col">Zone</th>
        <th scope="col">State</th>
        <th scope="col" class="num">Received from it</th></tr></thead>
      <tbody>${members.map((n) => html`<tr key=${n.name}><th scope="row" class="anywhere">${n.name}</th>
        <td data-label="Address" class="anywhere"><code>${n.address}</code></td>
        <td data-label="Zone">${n.zone || '–'}</td>
        <td data-label="State"><span class=${`tag ${states[n.state] ?? 'warn'}`}>${n.self ? 'this node' : n.state}
          </span>
          ${n.why && html`<br /><small>${n.why}${n.since ? `, ${ago(n.since)}` : ''}</small>`}</td>
        <td data-label="Received" class="num">${n.self ? '–' : bytes(n.fetched?.bytes)}</td></tr>`)}</tbody></table>`
    : html`<${Empty}>No node was found.<//>`}
    <dl class="facts">
      <${Fact} name="Given to other nodes">${bytes(c.served?.bytes)} in ${plural(c.served?.requests ?? 0, 'request')}
        <//>
      <${Fact} name="Refused while busy">${count(c.served?.busy)}<//>
      <${Fact} name="Received from other nodes">
        ${bytes(c.fetched?.bytes)} in ${plural(c.fetched?.requests ?? 0, 'request')}<//>
      <${Fact} name="Wrong replies">${count(c.fetched?.wrong)}<//>
      <${Fact} name="Strangers refused">${count(c.strangers)}<//>
    </dl></div>`;
}

function Cache({ c }) {
  const files = c.files ?? {};
  const buckets = c.buckets ?? [];
  const sum = (name) => buckets.reduce((n, b) => n + (b[name] ?? 0), 0);
  const [hits, misses, stale] = [sum('hits'), sum('misses'), sum('stale')];
  const asked = hits + misses + stale + sum('peers');
  const share = files.Capacity > 0 ? files.Bytes / files.Capacity : 0;
  return html`<div class="stack">
    <div class="tiles">
      <div class="tile"><div class="name">Used</div><div class="value">${bytes(files.Bytes)}</div>
        <${Bar} label=${`${percent(share)} of the cache is used`} parts=${[{ name: 'used', kind: 'storage', share }]} />
        <div class="under">of ${bytes(files.Capacity)}</div></div>
      <${Tile} name="Objects" value=${count(files.Entries)} under=${`${count(files.Whole)} whole`} />
      <${Tile} name="Hits" value=${asked ? percent(hits / asked) : '–'}
        under=${`${count(hits)} hits, ${count(misses)} misses`} />
      <${Tile} name="From upstreams" value=${bytes(sum('upstream_bytes'))} under=${`${count(c.fills)} fetches`} />
    </div>
    <dl class="facts"><${Fact} name="Pinned">${bytes(files.Pinned)}<//>
      <${Fact} name="Evicted">${plural(files.Evicted ?? 0, 'object')}, ${bytes(files.Freed)}<//>
      <${Fact} name="Not kept, the disk was slower">${plural(c.left_out ?? 0, 'block')}<//>
      <${Fact} name="Damaged and fetched again">${plural(c.damaged ?? 0, 'block')}<//>
      <${Fact} name="Wrong content of upstreams">${count(c.wrong)}<//></dl>
    ${buckets.length > 0 && html`<table class="cards"><thead><tr><th scope="col">Bucket</th><th scope="col">Kept by</th>
      <th scope="col">Upstream</th><th scope="col" class="num">Hits</th><th scope="col" class="num">Misses</th></tr>
        </thead>
      <tbody>${buckets.map((b) => html`<tr key=${b.name}>
        <th scope="row" class="anywhere"><a href=${link('buckets', b.name)}>${b.name}</a></th>
        <td data-label="Kept by" class="anywhere">${b.origin}</td>
        <td data-label="Upstream"><${Phase} state=${b.breaker ?? {}} /></td>
        <td data-label="Hits" class="num">${count(b.hits)}</td><td data-label="Misses" class="num">${count(b.misses)}
          </td>
      </tr>`)}</tbody></table>`}</div>`;
}

/** Phase says whether requests to an upstream are sent, and why not. */
export function Phase({ state }) {
  const good = state.phase === 'closed';
  return html`<span class=${`tag ${good ? 'good' : 'warn'}`}>${good ? 'answers' : 'does not answer'}</span>
    ${state.last_error && html` <small>${state.last_error}</small>`}`;
}
