// SPDX-License-Identifier: Apache-2.0
// One object: its facts, its content if it can be shown, its versions and its tags.

import { html, useState } from '../html.js';
import { address, bucketPath, call, get } from '../api.js';
import { bytes, count, time } from '../format.js';
import { Icon } from '../icons.js';
import { useResource } from '../resource.js';
import { CopyButton, Fact, Loaded, Note } from '../parts/basics.js';
import { Dialog } from '../parts/dialog.js';
import { TagEditor } from '../parts/tags.js';
import { Preview } from './preview.js';
import { ObjectVersions } from './versions.js';

/** ObjectDrawer shows an object at the right edge of the window. */
export function ObjectDrawer({ bucket, object, version, onClose, onChange, onDelete, onShare }) {
  const where = { key: object, version };
  const info = useResource((signal) => get(bucketPath(bucket.name, 'object'), where, signal), [bucket.name, object,
    version ?? '']);
  const [tab, setTab] = useState('facts');
  const may = bucket.may ?? {};
  const kept = bucket.versioning && bucket.versioning !== 'off' && may.versions;
  const change = () => {
    info.reload();
    onChange();
  };
  return html`<${Dialog} title=${object} onClose=${onClose} drawer>
    <div class="row">
      ${may.get && html`<a class="button" href=${address(bucketPath(bucket.name, 'content'), where)} download>
        <${Icon} name="download" />Download</a>`}
      ${may.get && html`<button type="button" onClick=${() => onShare(version)}>
        <${Icon} name="share" />Share link</button>`}
      ${may.delete && !version && html`<button type="button" class="danger" onClick=${onDelete}>
        <${Icon} name="trash" />Delete</button>`}
    </div>
    <${Loaded} from=${info} what="The object could not be opened.">${(o) => {
      const tabs = [['facts', 'Facts'], o.preview !== 'none' && ['preview', { safetensors: 'Tensors',
        pack: 'Samples' }[o.preview] ?? 'Content'], kept && ['versions', 'Versions']].filter(Boolean);
      return html`<${TabRow} tabs=${tabs} current=${tab} onPick=${setTab} />
        <div role="tabpanel" id="object-panel" aria-labelledby=${`object-tab-${tab}`} tabindex="-1">
          ${tab === 'facts' && html`<${Facts} bucket=${bucket} o=${o} onChange=${change} />`}
          ${tab === 'preview' && html`<${Preview} bucket=${bucket.name} object=${object} version=${version} />`}
          ${tab === 'versions' && html`<${ObjectVersions} bucket=${bucket} object=${object} onChange=${change} />`}
        </div>`;
    }}<//>
  <//>`;
}

function TabRow({ tabs, current, onPick }) {
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex(([name]) => name === current);
    const [next] = tabs[(at + step + tabs.length) % tabs.length];
    onPick(next);
    document.getElementById(`object-tab-${next}`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label="Parts of the object" onKeyDown=${keys}>
    ${tabs.map(([name, text]) => html`<button type="button" role="tab" key=${name} id=${`object-tab-${name}`}
      aria-controls="object-panel"
      aria-selected=${current === name} tabindex=${current === name ? 0 : -1} onClick=${() => onPick(name)}>${text}
        </button>`)}</div>`;
}

function Facts({ bucket, o, onChange }) {
  const metadata = Object.entries(o.metadata ?? {});
  const may = bucket.may ?? {};
  const uri = `s3://${bucket.name}/${o.key}`;
  return html`<div class="stack"><dl class="facts">
    <${Fact} name="Address" full><span class="copied"><code>${uri}</code>
      <${CopyButton} quiet label="Copy the address" text=${uri} /></span><//>
    <${Fact} name="Size">${bytes(o.size)} <small>(${count(o.size)} bytes)</small><//>
    <${Fact} name="Modified">${time(o.modified)}<//>
    <${Fact} name="Type">${o.type || '–'}<//>
    <${Fact} name="Class">${o.class || 'STANDARD'}<//>
    ${o.parts > 0 && html`<${Fact} name="Parts">${count(o.parts)}<//>`}
    ${o.version && html`<${Fact} name="Version"><code>${o.version}</code><//>`}
    <${Fact} name="ETag"><code>${o.etag}</code><//>
    ${Object.entries(o.checksums ?? {}).map(([name, value]) => html`<${Fact} key=${name} name=${name.toUpperCase()}>
      <code>${value}</code><//>`)}
    ${o.lock && html`<${Fact} name="Lock">${o.lock.mode ? `${o.lock.mode} until ${time(o.lock.until)}`
      : 'none'}${o.lock.legal_hold ? ', legal hold' : ''}<//>`}
  </dl>
  ${metadata.length > 0 && html`<div><h3>Metadata</h3><table><tbody>
    ${metadata.map(([name, value]) => html`<tr key=${name}><th scope="row" class="anywhere">${name}</th>
      <td class="anywhere">${value}</td></tr>`)}</tbody></table></div>`}
  ${o.tags !== null && html`<${TagEditor} tags=${o.tags ?? {}} may=${may.put} onSave=${async (tags) => {
    await call('PUT', bucketPath(bucket.name, 'object/tags'), { query: { key: o.key, version: o.version },
      json: { tags } });
    onChange();
  }} />`}
  ${o.tags === null && html`<${Note}>Your policies do not let you read the tags.<//>`}</div>`;
}
