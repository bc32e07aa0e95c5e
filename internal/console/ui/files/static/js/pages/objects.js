// SPDX-License-Identifier: Apache-2.0
// The objects of a bucket: folders, search, selection, upload by drag and drop, download and deletion.

import { html, useEffect, useMemo, useState } from '../html.js';
import { address, bucketPath } from '../api.js';
import { bytes, count, plural, time } from '../format.js';
import { Icon } from '../icons.js';
import { useListing } from '../listing.js';
import { go, link } from '../router.js';
import { uploads } from '../upload/queue.js';
import { DropArea, UploadButton } from '../upload/drop.js';
import { Empty, Problem, Search } from '../parts/basics.js';
import { LongList } from '../parts/longlist.js';
import { Menu } from '../parts/menu.js';
import { DeleteDialog } from './deletion.js';
import { ObjectDrawer } from './object.js';
import { ShareDialog } from './share.js';

/** Returns the last part of a key, as a folder shows it. */
export const shortName = (key, prefix) => key.slice(prefix.length) || key;

/** Objects shows one folder of a bucket, or what a search finds below it. */
export function Objects({ bucket, query }) {
  const { name } = bucket;
  const prefix = query.prefix ?? '';
  const [typed, setTyped] = useState(query.search ?? '');
  const search = query.search ?? '';
  const list = useListing(name, prefix, search);
  const [picked, setPicked] = useState(() => new Set());
  const [removing, setRemoving] = useState(null);
  const [sharing, setSharing] = useState(null);
  const may = bucket.may ?? {};

  useEffect(() => {
    setPicked(new Set());
    setTyped(search);
  }, [name, prefix, search]);
  useEffect(() => uploads.onDone((b, key) => { if (b === name && key.startsWith(prefix)) list.reload(); }), [name,
    prefix, list.reload]);
  // The search begins when typing pauses.
  useEffect(() => {
    if (typed === search) return undefined;
    const timer = setTimeout(() => go(link('buckets', name, { prefix, search: typed }), { replace: true }), 350);
    return () => clearTimeout(timer);
  }, [typed]);

  const open = (key) => go(link('buckets', name, { prefix, search, object: key }));
  const pick = (key, on) => setPicked((old) => {
    const next = new Set(old);
    if (on) next.add(key);
    else next.delete(key);
    return next;
  });
  const chosen = [...picked];
  const keys = (event, item) => {
    if (event.target.matches('input') && event.key === ' ') return;
    if (event.key === ' ' && !item.folder) {
      event.preventDefault();
      pick(item.key, !picked.has(item.key));
    } else if (event.key === 'Delete' && may.delete && (chosen.length || !item.folder)) {
      setRemoving(chosen.length ? chosen : [item.key]);
    }
  };

  const up = prefix.slice(0, prefix.slice(0, -1).lastIndexOf('/') + 1);
  const rows = useMemo(() => (prefix && !search ? [{ folder: true, up: true, key: up }, ...list.rows] : list.rows),
    [list.rows, prefix, search]);
  const head = [[html`<span class="unseen">Selection</span>`, 'pick'], ['Name', 'what'], ['Size', 'size num'],
    ['Modified', 'when'], [html`<span class="unseen">Actions</span>`, 'act']];
  const view = { name, prefix, search, picked, pick, open, may, setRemoving, setSharing };
  const upload = may.put && html`<${UploadButton} bucket=${name} prefix=${prefix} />`;

  return html`<div class="row apart">
      ${prefix && html`<${Folder} bucket=${name} prefix=${prefix} />`}
      <div class="row grow tools"><${Search} label=${prefix ? 'Search in this folder' : 'Search objects'}
        value=${typed} onInput=${setTyped} />
        <button type="button" class="quiet icon" aria-label="Load anew" title="Load anew" onClick=${list.reload}>
          <${Icon} name="refresh" /></button>
        ${upload}</div></div>
    <p class="dim" role="status" aria-live="polite"><${State} list=${list} search=${search} picked=${chosen.length} />
      ${chosen.length > 0 && html` <button type="button" class="link"
        onClick=${() => setPicked(new Set())}>Clear the selection</button>`}</p>
    ${chosen.length > 0 && may.delete && html`<div class="row">
      <button type="button" class="danger" onClick=${() => setRemoving(chosen)}>
        <${Icon} name="trash" />Delete ${plural(chosen.length, 'object')}</button></div>`}
    <${Problem} error=${list.error} what="The objects could not be listed." />
    <${DropArea} bucket=${name} prefix=${prefix} off=${!may.put}>
      ${list.rows.length === 0 && !list.busy && !list.error
        ? html`<${Empty}>${search ? `No key contains "${search}".` : may.put
          ? 'No objects here. Drop files into this area to upload them.' : 'No objects here.'}<//>`
        : html`<${LongList} label=${`Objects of ${name}`} head=${head} rows=${rows} more=${Boolean(list.next)}
          onNearEnd=${list.more} onKey=${keys}
            selected=${(item) => picked.has(item.key)} row=${(item) => html`<${Row} item=${item} ...${view} />`} />`}
    <//>
    ${list.next && !list.busy && html`<p class="row"><button type="button" onClick=${list.more}>Load more</button></p>`}
    ${query.object !== undefined && html`<${ObjectDrawer} key=${query.object} bucket=${bucket} object=${query.object}
      version=${query.version}
      onClose=${() => go(link('buckets', name, { prefix, search }))} onChange=${list.reload}
      onDelete=${() => setRemoving([query.object])} onShare=${(version) => setSharing({ key: query.object,
        version })} />`}
    ${sharing && html`<${ShareDialog} bucket=${name} object=${sharing.key} version=${sharing.version}
      onClose=${() => setSharing(null)} />`}
    ${removing && html`<${DeleteDialog} bucket=${bucket} keys=${removing} onClose=${() => setRemoving(null)}
      onRestored=${list.reload}
      onDeleted=${(gone) => {
        list.drop(gone);
        setPicked(new Set());
        if (query.object !== undefined) go(link('buckets', name, { prefix, search }));
      }} />`}`;
}

function State({ list, search, picked }) {
  const n = list.rows.length;
  if (list.busy && !n) return search ? `Searching … ${count(list.scanned)} keys read` : 'Loading …';
  const so = list.next || list.busy ? 'so far' : '';
  return [search ? `${plural(n, 'key')} found ${so}, ${count(list.scanned)} keys read` : `${plural(n, 'entry',
    'entries')} ${so}`,
    picked ? `${count(picked)} selected` : ''].filter(Boolean).join(', ').trim() + '.';
}

/** Folder shows the path to the current folder, each part a link. */
function Folder({ bucket, prefix }) {
  const parts = prefix.split('/').slice(0, -1);
  return html`<nav class="crumbs" aria-label="Folder"><ol><li><a href=${link('buckets', bucket)}>${bucket}</a></li>
    ${parts.map((p, i) => html`<li key=${i}><a href=${link('buckets', bucket, { prefix: parts.slice(0,
      i + 1).join('/') + '/' })}
      aria-current=${i === parts.length - 1 ? 'page' : undefined}>${p || '(empty name)'}</a></li>`)}</ol></nav>`;
}

/** Row draws the cells of one folder or object. */
function Row({ item, name, prefix, search, picked, pick, open, may, setRemoving, setSharing }) {
  if (item.folder) {
    const text = item.up ? 'Up' : shortName(item.key, prefix);
    return html`<td class="pick"></td><th scope="row"><span class="name"><${Icon} name=${item.up ? 'undo' : 'folder'} />
      <a data-main href=${link('buckets', name, { prefix: item.key })} title=${item.up ? 'The folder above' : item.key}>
        ${text}</a></span></th>
      <td class="size num"></td><td class="when"></td><td class="act"></td>`;
  }
  const label = search ? item.key : shortName(item.key, prefix);
  return html`<td class="pick"><input type="checkbox" aria-label=${`Select ${label}`} checked=${picked.has(item.key)}
      onChange=${(e) => pick(item.key, e.currentTarget.checked)} /></td>
    <th scope="row"><span class="name"><${Icon} name="file" />
      <a data-main href=${link('buckets', name, { prefix, search, object: item.key })} title=${item.key}>${label}</a>
        </span></th>
    <td class="size num">${bytes(item.size)}</td><td class="when">${time(item.modified)}</td>
    <td class="act tools"><${Menu} label=${`Actions for ${label}`} items=${[
      { text: 'Details', icon: 'file', onClick: () => open(item.key) },
      may.get && { text: 'Download', icon: 'download', href: address(bucketPath(name, 'content'), { key: item.key }),
        download: '' },
      may.get && { text: 'Share link', icon: 'share', onClick: () => setSharing({ key: item.key }) },
      may.delete && { text: 'Delete', icon: 'trash', danger: true, onClick: () => setRemoving([item.key]) },
    ]} /></td>`;
}
