// SPDX-License-Identifier: Apache-2.0
// The list of buckets, and how to make a new one.

import { html, useState } from '../html.js';
import { bucketPath, call, get } from '../api.js';
import { plural, time } from '../format.js';
import { useResource } from '../resource.js';
import { go, link } from '../router.js';
import { Icon } from '../icons.js';
import { Empty, Head, Loaded, Search } from '../parts/basics.js';
import { Choice, Field, FormDialog } from '../parts/dialog.js';
import { Menu } from '../parts/menu.js';
import { say } from '../parts/toasts.js';

/** Returns why a name is no valid name of a bucket, or an empty text. The server decides in the end. */
export function nameProblem(name) {
  if (!name) return '';
  if (name.length < 3 || name.length > 63) return `"${name}" has ${plural(name.length,
    'character')}, expected 3 to 63.`;
  const wrong = /[^a-z0-9.-]/.exec(name);
  if (wrong) return `"${wrong[0]}" is not allowed, expected small letters, digits, dots and hyphens.`;
  if (!/^[a-z0-9].*[a-z0-9]$/.test(name)) return 'The name begins and ends with a letter or a digit.';
  return '';
}

/** Buckets lists the buckets that the user may see. */
export function Buckets() {
  const list = useResource((signal) => get('buckets', {}, signal), []);
  const [filter, setFilter] = useState('');
  const [making, setMaking] = useState(false);
  const [removing, setRemoving] = useState(null);
  const add = html`<button type="button" class="main" onClick=${() => setMaking(true)}>
    <${Icon} name="plus" />Create a bucket</button>`;
  const may = list.data?.may?.create;
  return html`<${Head} title="Buckets" under=${list.data ? plural(list.data.buckets.length, 'bucket') : ''}>
      <${Search} label="Search buckets" value=${filter} onInput=${setFilter} />${may && add}<//>
    <${Loaded} from=${list} what="The buckets could not be listed.">${({ buckets }) => {
      const shown = buckets.filter((b) => b.name.includes(filter.toLowerCase()));
      if (!buckets.length) return html`<${Empty}>There is no bucket that you may see.<//>`;
      if (!shown.length) return html`<${Empty}>No bucket's name contains "${filter}".<//>`;
      return html`<table class="cards"><thead><tr><th scope="col">Name</th><th scope="col">Owner</th>
        <th scope="col">Created</th><th scope="col">Kind</th><th><span class="unseen">Actions</span></th></tr></thead>
        <tbody>${shown.map((b) => html`<tr key=${b.name}><th scope="row" class="anywhere">
          <a href=${link('buckets', b.name)}>${b.name}</a></th>
          <td data-label="Owner" class="anywhere">${b.owner}${b.owned ? html` <span class="tag">yours</span>` : ''}</td>
            <td data-label="Created" class="nowrap">${time(b.created)}</td>
          <td data-label="Kind">${b.upstream ? 'upstream' : b.directory ? 'directory' : 'ordinary'}</td>
          <td class="tools"><${Menu} label=${`Actions for the bucket ${b.name}`} items=${[
            { text: 'Objects', icon: 'folder', onClick: () => go(link('buckets', b.name)) },
            { text: 'Settings', icon: 'config', onClick: () => go(link('buckets', b.name, 'settings')) },
            { text: 'Delete', icon: 'trash', danger: true, onClick: () => setRemoving(b.name) },
          ]} /></td></tr>`)}</tbody></table>`;
    }}<//>
    ${making && html`<${Create} onClose=${() => setMaking(false)} onDone=${list.reload} />`}
    ${removing && html`<${Remove} bucket=${removing} onClose=${() => setRemoving(null)} onDone=${list.reload} />`}`;
}

function Create({ onClose, onDone }) {
  const [name, setName] = useState('');
  const [lock, setLock] = useState(false);
  const [versions, setVersions] = useState(false);
  const wrong = nameProblem(name);
  const submit = async () => {
    await call('POST', 'buckets', { json: { name, versioning: versions || lock, object_lock: lock } });
    say(`The bucket ${name} is there.`);
    onDone();
  };
  return html`<${FormDialog} title="Create a bucket" action="Create" onSubmit=${submit} onClose=${onClose} ready=${name
    && !wrong}>
    <${Field} label="Name" id="bucket-name" hint="3 to 63 small letters, digits, dots and hyphens." wrong=${wrong}>
      ${(a) => html`<input ...${a} value=${name} onInput=${(e) => setName(e.currentTarget.value)} required
        spellcheck=${false} autocapitalize="none" />`}<//>
    <${Choice} checked=${versions || lock} onChange=${(e) => setVersions(e.currentTarget.checked)}
      hint="A deleted or replaced object can be brought back.">Keep versions<//>
    <${Choice} checked=${lock} onChange=${(e) => setLock(e.currentTarget.checked)}
      hint="Objects can be protected against deletion for a time. This cannot be switched on later.">Object lock<//>
  <//>`;
}

/** Remove asks before an empty bucket is deleted. */
export function Remove({ bucket, onClose, onDone }) {
  const submit = async () => {
    await call('DELETE', bucketPath(bucket));
    say(`The bucket ${bucket} is deleted.`);
    onDone();
  };
  return html`<${FormDialog} title="Delete the bucket" action="Delete the bucket" danger onSubmit=${submit}
    onClose=${onClose}>
    <p>The bucket <b class="anywhere">${bucket}</b> is deleted for good. Only an empty bucket can be deleted.</p><//>`;
}
