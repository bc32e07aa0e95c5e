// SPDX-License-Identifier: Apache-2.0
// What is inside an object: the tensors of a safetensors file, the samples of a pack, or the begin of a text.

import { html, useState } from '../html.js';
import { bucketPath, get } from '../api.js';
import { bytes, count, plural } from '../format.js';
import { useResource } from '../resource.js';
import { Fact, Loaded, Note, Search } from '../parts/basics.js';

const step = 200; // rows that are shown at once

/** Preview loads and shows the content of an object. */
export function Preview({ bucket, object, version }) {
  const preview = useResource((signal) => get(bucketPath(bucket, 'preview'), { key: object, version }, signal),
    [bucket, object, version ?? '']);
  return html`<${Loaded} from=${preview} what="The content could not be read.">${(p) => {
    if (p.kind === 'safetensors') return html`<${Tensors} p=${p} />`;
    if (p.kind === 'pack') return html`<${Samples} p=${p} />`;
    if (p.kind === 'text') {
      return html`<div class="stack tight"><pre tabindex="0" aria-label="Begin of the object as text">${p.text}</pre>
        ${p.truncated && html`<p class="dim">Only the begin is shown. Download the object for the rest.</p>`}</div>`;
    }
    return html`<${Note}>${p.why || 'The content cannot be shown.'}<//>`;
  }}<//>`;
}

/** Shape writes the sizes of a tensor: 4096 × 1024. */
const shape = (sizes) => (sizes?.length ? sizes.map(count).join(' × ') : 'scalar');

function Tensors({ p }) {
  const [filter, setFilter] = useState('');
  const [shown, setShown] = useState(step);
  const found = (p.tensors ?? []).filter((t) => t.name.includes(filter));
  const kinds = [...new Set((p.tensors ?? []).map((t) => t.dtype))].join(', ');
  const metadata = Object.entries(p.metadata ?? {});
  return html`<div class="stack"><dl class="facts"><${Fact} name="Tensors">${count(p.total)}
    <//><${Fact} name="Parameters">${count(p.parameters)}<//><${Fact} name="Types">${kinds}<//>
      ${metadata.map(([k, v]) => html`<${Fact} key=${k} name=${k}>${v}<//>`)}</dl>
    <${Search} label="Search tensors" value=${filter} onInput=${setFilter} />
    <div class="scroll" tabindex="0" role="group" aria-label="Tensors"><table><thead><tr><th scope="col">Name</th>
      <th scope="col">Type</th><th scope="col">Shape</th><th scope="col" class="num">Size</th></tr></thead>
      <tbody>${found.slice(0, shown).map((t) => html`<tr key=${t.name}><th scope="row" class="anywhere"><code>${t.name}
        </code></th><td>${t.dtype}</td><td class="nowrap">${shape(t.shape)}</td><td class="num">${bytes(t.bytes)}</td>
          </tr>`)}</tbody></table></div>
    <${Rest} found=${found.length} shown=${shown} onMore=${() => setShown(shown + step)} noun="tensor"
      truncated=${p.truncated && p.total > p.tensors.length
        ? `The first ${count(p.tensors.length)} of ${count(p.total)} tensors are listed.` : ''} /></div>`;
}

function Samples({ p }) {
  const [shown, setShown] = useState(step);
  const all = p.samples ?? [];
  return html`<div class="stack"><dl class="facts"><${Fact} name="Format">${p.format}<//><${Fact} name="Samples">
    ${p.total < 0 ? 'not known' : count(p.total)}<//></dl>
    <div class="scroll" tabindex="0" role="group" aria-label="Samples"><table><thead><tr><th scope="col">Sample</th>
      <th scope="col">Fields</th><th scope="col" class="num">Size</th></tr></thead>
      <tbody>${all.slice(0, shown).map((s, i) => html`<tr key=${i}><th scope="row" class="anywhere"><code>
        ${s.key || count(i)}</code></th>
        <td>${(s.fields ?? []).map((f) => html`<span class="tag wrap" key=${f.name}>${f.name} ${bytes(f.bytes)}
          </span> `)}</td><td class="num">${bytes((s.fields ?? []).reduce((n, f) => n + f.bytes, 0))}</td></tr>`)}
            </tbody></table></div>
    <${Rest} found=${all.length} shown=${shown} onMore=${() => setShown(shown + step)} noun="sample"
      truncated=${p.truncated ? `Only the first ${plural(all.length, 'sample')} were read.` : ''} /></div>`;
}

function Rest({ found, shown, onMore, noun, truncated }) {
  return html`<div class="row">${found > shown && html`<button type="button" onClick=${onMore}>Show more</button>`}
    <span class="dim">${plural(Math.min(found, shown), noun)} of ${count(found)} shown. ${truncated}</span></div>`;
}
