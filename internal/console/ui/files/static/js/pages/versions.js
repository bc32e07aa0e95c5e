// SPDX-License-Identifier: Apache-2.0
// The versions of objects: bring one back, download it, or delete it for good.

import { html, useEffect, useState } from '../html.js';
import { address, bucketPath, call, get } from '../api.js';
import { bytes, plural, time } from '../format.js';
import { useResource } from '../resource.js';
import { go, link } from '../router.js';
import { Empty, Loaded, Problem, Search } from '../parts/basics.js';
import { FormDialog } from '../parts/dialog.js';
import { Menu } from '../parts/menu.js';
import { say, sayError } from '../parts/toasts.js';

/** Runs one action and tells how it ended. */
async function act(what, done, run, onChange) {
  try {
    await run();
    say(done);
  } catch (error) {
    sayError(what, error);
  }
  onChange();
}

/** VersionTable lists versions with their actions. */
function VersionTable({ bucket, versions, onChange, keys }) {
  const [removing, setRemoving] = useState(null);
  const may = bucket.may ?? {};
  const { name } = bucket;
  const actions = (v) => [
    !v.marker && may.get && { text: 'Download', icon: 'download', href: address(bucketPath(name, 'content'),
      { key: v.key, version: v.version }), download: '' },
    v.marker && v.latest && may.delete && { text: 'Undo the deletion', icon: 'undo',
      onClick: () => act('The deletion could not be undone', 'The object is back.',
      () => call('POST', bucketPath(name, 'undelete'), { json: { key: v.key, version: v.version } }), onChange) },
    !v.marker && !v.latest && may.put && { text: 'Make it current', icon: 'undo',
      onClick: () => act('The version could not be restored', 'The version is current now.',
      () => call('POST', bucketPath(name, 'restore'), { json: { key: v.key, version: v.version } }), onChange) },
    may.delete && { text: 'Delete for good', icon: 'trash', danger: true, onClick: () => setRemoving(v) },
  ];
  return html`<table class="cards"><thead><tr>${keys && html`<th scope="col">Key</th>`}<th scope="col">Version</th>
    <th scope="col">Modified</th><th scope="col" class="num">Size</th><th><span class="unseen">Actions</span></th></tr>
      </thead>
    <tbody>${versions.map((v) => html`<tr key=${v.key + v.version}>
      ${keys && html`<th scope="row" class="anywhere"><a href=${link('buckets', name, { object: v.key,
        version: v.marker ? '' : v.version })}>${v.key}</a></th>`}
      <td class="anywhere"><code>${v.version}</code> ${v.latest && html`<span
        class="tag accent">current</span>`} ${v.marker && html`<span class="tag warn">deleted</span>`}</td>
      <td class="nowrap" data-label="Modified">${time(v.modified)}</td>
        <td class="num" data-label=${v.marker ? undefined : 'Size'}>${v.marker ? '' : bytes(v.size)}</td>
      <td class="tools"><${Menu} label=${`Actions for version ${v.version} of ${v.key}`} items=${actions(v)} /></td>
        </tr>`)}</tbody></table>
    ${removing && html`<${FormDialog} title="Delete this version for good" action="Delete for good" danger
      onClose=${() => setRemoving(null)} onSubmit=${async () => {
      await call('DELETE', bucketPath(name, 'object'), { query: { key: removing.key, version: removing.version } });
      say('The version is deleted.');
      onChange();
    }}><p class="anywhere"><code>${removing.key}</code>, version <code>${removing.version}
      </code>. This cannot be undone.</p><//>`}`;
}

/** ObjectVersions lists the versions of one object. */
export function ObjectVersions({ bucket, object, onChange }) {
  const list = useResource((signal) => get(bucketPath(bucket.name, 'versions'), { prefix: object, limit: 1000 },
    signal), [bucket.name, object]);
  return html`<${Loaded} from=${list} what="The versions could not be listed.">
    ${({ versions }) => html`<${VersionTable} bucket=${bucket}
    versions=${versions.filter((v) => v.key === object)} onChange=${() => { list.reload(); onChange(); }} />`}<//>`;
}

/** Versions lists the versions of all objects of a bucket below a prefix, page by page. */
export function Versions({ bucket, query }) {
  const prefix = query.prefix ?? '';
  const [typed, setTyped] = useState(prefix);
  const [markers, setMarkers] = useState([{}]); // where each page begins
  const at = markers.at(-1);
  const list = useResource((signal) => get(bucketPath(bucket.name, 'versions'), { prefix, limit: 200, ...at }, signal),
    [bucket.name, prefix, at]);
  useEffect(() => {
    if (typed === prefix) return undefined;
    const timer = setTimeout(() => {
      setMarkers([{}]);
      go(link('buckets', bucket.name, 'versions', { prefix: typed }), { replace: true });
    }, 350);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<div class="row apart"><p class="dim">Every version, deleted objects too. Search by the begin of the
    key.</p>
      <${Search} label="Begin of the key" value=${typed} onInput=${setTyped} /></div>
    ${list.error && list.data && html`<${Problem} error=${list.error} />`}
    <${Loaded} from=${list} what="The versions could not be listed.">${(data) => (data.versions.length
      ? html`<${VersionTable} bucket=${bucket} versions=${data.versions} onChange=${list.reload} keys />
        <div class="row"><button type="button" aria-disabled=${markers.length < 2} onClick=${() => markers.length > 1
          && setMarkers(markers.slice(0, -1))}>Back</button>
          <button type="button" aria-disabled=${!data.more} onClick=${() => data.more && setMarkers([...markers,
            { key_marker: data.next_key, version_marker: data.next_version }])}>Next</button>
          <span class="dim">Page ${markers.length}, ${plural(data.versions.length, 'version')}</span></div>`
      : html`<${Empty}>No versions${prefix ? ` whose key begins with "${prefix}"` : ''}.<//>`)}<//>`;
}
