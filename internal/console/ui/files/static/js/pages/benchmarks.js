// SPDX-License-Identifier: Apache-2.0
// The history of benchmark results of this machine, one result in full, and two of them side by side.

import { html, useState } from '../html.js';
import { get } from '../api.js';
import { bytes, count, digits, duration, NONE, percent, plural, time } from '../format.js';
import { useResource } from '../resource.js';
import { go, link } from '../router.js';
import { Block, CopyButton, Empty, Fact, Head, Loaded, Note } from '../parts/basics.js';
import { Bar } from '../parts/chart.js';

const speed = (gbps) => (typeof gbps === 'number' ? `${digits(gbps)} GB/s` : NONE);
const command = (words) => (words ?? []).join(' ');

/** Benchmarks shows the list, one result (#/benchmarks/ID) or a comparison (#/benchmarks?a=ID&b=ID). */
export function Benchmarks({ path, query }) {
  if (query.a && query.b) return html`<${Compare} a=${query.a} b=${query.b} />`;
  return path[1] ? html`<${One} id=${path[1]} />` : html`<${History} />`;
}

function History() {
  const list = useResource((signal) => get('benchmarks', {}, signal), []);
  const [picked, setPicked] = useState([]);
  const pick = (id, on) => setPicked((old) => (on ? [...old, id].slice(-2) : old.filter((x) => x !== id)));
  const ready = picked.length === 2;
  return html`<${Head} title="Benchmarks" under=${list.data?.directory ? `Results in ${list.data.directory}` : ''}>
      <button type="button" class="main" aria-disabled=${!ready} onClick=${() => ready && go(link('benchmarks',
        { a: picked[0], b: picked[1] }))}>Compare two results</button><//>
    <${Loaded} from=${list} what="The results could not be listed.">${(data) => {
      const best = Math.max(0, ...data.files.flatMap((f) => (f.runs ?? []).map((r) => r.gbps ?? 0)));
      return html`<div class="stack">
        ${data.files.length ? html`<table class="cards"><thead><tr><th scope="col"><span class="unseen">Selection</span>
          </th><th scope="col">Result</th><th scope="col">Begun</th><th scope="col">Device</th><th scope="col">Runs</th>
            </tr></thead>
          <tbody>${data.files.map((f) => html`<tr key=${f.id}><td class="pick">
            <input type="checkbox" aria-label=${`Select ${f.name}`} checked=${picked.includes(f.id)}
              onChange=${(e) => pick(f.id, e.currentTarget.checked)} /></td>
            <th scope="row" class="anywhere"><a href=${link('benchmarks', f.id)}>${f.name}
              </a> ${f.interrupted && html`<span class="tag warn">stopped early</span>`}<br /><small>
                ${command(f.command)}</small></th>
            <td data-label="Begun" class="nowrap">${time(f.started)}<br /><small>${duration(f.seconds)}, ${f.version}
              </small></td><td data-label="Device" class="anywhere">${f.device}<br /><small>${f.cpu}</small></td>
            <td><${Runs} runs=${f.runs ?? []} best=${best} /></td></tr>`)}</tbody></table>
          ${data.truncated && html`<p class="dim">Only the newest results are shown.</p>`}`
          : html`<${Empty}>${data.reason || 'No results.'}<//>`}
        ${(data.problems ?? []).map((p) => html`<${Note} key=${p.name} kind="warn" title=${p.name}>${p.message}<//>`)}
        <p class="dim">Choose two results to compare them. <code>nebulaio bench</code> makes new ones.</p></div>`;
    }}<//>`;
}

function Runs({ runs, best }) {
  return html`<ul class="plain stack tight">${runs.slice(0, 6).map((r) => html`<li key=${r.name}>
    <div class="row apart keep">
    <span class="anywhere">${r.name}</span><b class="nowrap">${speed(r.gbps)}</b></div>
    <${Bar} label=${`${r.name}: ${speed(r.gbps)}`} parts=${[{ name: r.name, kind: 'storage', share: best
      ? (r.gbps ?? 0) / best : 0 }]} /></li>`)}
    ${runs.length > 6 && html`<li class="dim">and ${plural(runs.length - 6, 'more run')}</li>`}</ul>`;
}

function One({ id }) {
  const result = useResource((signal) => get(`benchmarks/${encodeURIComponent(id)}`, {}, signal), [id]);
  return html`<${Head} title=${id} crumbs=${[['Benchmarks', link('benchmarks')]]} />
    <${Loaded} from=${result} what="The result could not be loaded.">${(f) => html`<div>
      <dl class="facts"><${Fact} name="Begun">${time(f.started)}<//><${Fact} name="Took">${duration(f.seconds)}
        <//><${Fact} name="Version">${f.version}<//><${Fact} name="Kernel">${f.machine?.kernel}<//>
        <${Fact} name="CPU">${f.machine?.cpu}, ${plural(f.machine?.cpus ?? 0, 'core')}<//><${Fact} name="Memory">
          ${bytes(f.machine?.memory)}<//><${Fact} name="Device">${f.machine?.device?.id} ${f.machine?.device?.model}<//>
        <${Fact} name="Command" full><span class="copied"><code>${command(f.command)}</code>
          <${CopyButton} quiet label="Copy the command" text=${command(f.command)} /></span><//></dl>
      <${Block} title="Runs"><table class="cards"><thead><tr><th scope="col">Run</th>
        <th scope="col" class="num">Rate</th><th scope="col" class="num">Operations</th>
          <th scope="col" class="num">Bytes</th><th scope="col" class="num">Time</th><th scope="col">Setting</th></tr>
            </thead>
        <tbody>${(f.runs ?? []).map((r, i) => html`<tr key=${r.name + i}><th scope="row" class="anywhere">${r.name}</th>
          <td data-label="Rate" class="num">${speed(r.gbps)}</td><td data-label="Operations" class="num">
            ${r.iops ? `${count(Math.round(r.iops))}/s` : NONE}</td>
          <td data-label="Bytes" class="num">${bytes(r.bytes)}</td><td data-label="Time" class="num">
            ${duration(r.seconds)}</td><td class="anywhere"><small>${setting(r.settings)}</small></td></tr>`)}</tbody>
              </table><//>
      ${f.notes?.length > 0 && html`<${Block} title="Notes"><ul>${f.notes.map((n) => html`<li key=${n}>${n}</li>`)}</ul>
        <//>`}
    </div>`}<//>`;
}

function setting(s = {}) {
  return [s.op, s.route, s.pattern, s.memory, s.block_size && `blocks of ${bytes(s.block_size)}`, s.workers
    && plural(s.workers, 'worker'), s.queue_depth > 1 && `depth ${s.queue_depth}`, s.cache].filter(Boolean).join(', ');
}

const verdicts = { faster: 'good', slower: 'bad' };

/** Formats a ratio of two figures as a change: +13.1 %. */
const change = (ratio) => (ratio > 0 ? `${ratio >= 1 ? '+' : ''}${percent(ratio - 1)}` : NONE);

function Compare({ a, b }) {
  const result = useResource((signal) => get('benchmarks-compare', { a, b }, signal), [a, b]);
  return html`<${Head} title="Two results" crumbs=${[['Benchmarks', link('benchmarks')]]}>
      <button type="button" onClick=${() => go(link('benchmarks', { a: b, b: a }), { replace: true })}>Swap</button><//>
    <${Loaded} from=${result} what="The results could not be compared.">${({ comparison: c, ...sides }) => html`<div>
      <dl class="facts"><${SideFact} name="Before" side=${sides.a} /><${SideFact} name="After" side=${sides.b} />
        ${c.geometric_mean > 0 && html`<${Fact} name="All together">${change(c.geometric_mean)}<//>`}
        ${c.worst_name && html`<${Fact} name="Worst">${c.worst_name}: ${c.worst_why}<//>`}</dl>
      <${Block} title="Runs"><${Pairs} pairs=${c.pairs ?? []} /><//>
      ${c.differences?.length > 0 && html`<${Block} title="What else differs"
        under="Circumstances that may explain a change"><table class="cards"><thead><tr><th scope="col">What</th>
        <th scope="col">Before</th><th scope="col">After</th><th scope="col">Meaning</th></tr></thead>
        <tbody>${c.differences.map((d, i) => html`<tr key=${i}><th scope="row" class="anywhere">${d.what}
          ${d.run && html`<br /><small>${d.run}</small>`}</th><td data-label="Before" class="anywhere">${d.a}</td>
          <td data-label="After" class="anywhere">${d.b}</td><td>${d.means}</td></tr>`)}</tbody></table><//>`}
      <${Alone} title="Only before" runs=${c.only_a ?? []} /><${Alone} title="Only after" runs=${c.only_b ?? []} />
    </div>`}<//>`;
}

function SideFact({ name, side }) {
  return html`<${Fact} name=${name}><a href=${link('benchmarks', side.id)}>${side.name}</a>, ${time(side.started)}<//>`;
}

function Pairs({ pairs }) {
  if (!pairs.length) return html`<${Empty}>The two results have no run in common.<//>`;
  return html`<table class="cards compare"><thead><tr><th scope="col">Run</th><th scope="col" class="num">Before</th>
    <th scope="col" class="num">After</th><th scope="col" class="num">Rate</th><th scope="col" class="num">p99</th>
    <th scope="col" class="num">Noise</th><th scope="col">Verdict</th></tr></thead>
    <tbody>${pairs.map((r) => html`<tr key=${r.name}><th scope="row" class="anywhere">${r.name}</th>
      <td data-label="Before" class="num">${speed(r.a_gbps)}</td><td data-label="After" class="num">${speed(r.b_gbps)}
        </td>
      <td data-label="Rate" class="num">${change(r.rate_ratio)}</td>
      <td data-label="p99" class="num">${change(r.p99_ratio)}</td>
      <td data-label="Noise" class="num">${percent(r.noise)}</td>
      <td><span class=${`tag ${verdicts[r.verdict] ?? ''}`}>${r.verdict}</span>
        ${r.why && html`<br /><small>${r.why}</small>`}</td></tr>`)}</tbody></table>`;
}

function Alone({ title, runs }) {
  if (!runs.length) return null;
  return html`<${Block} title=${title}><ul class="plain">${runs.map((r) => html`<li key=${r.name} class="anywhere">
    ${r.name}
    ${r.nearest && html` <small>nearest: ${r.nearest}, differs in ${(r.differs ?? []).join(', ')}</small>`}</li>`)}</ul>
      <//>`;
}
