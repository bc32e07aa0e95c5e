// SPDX-License-Identifier: Apache-2.0
// Users and what they may do: accounts, new keys, and grants on buckets.

import { html, useState } from '../html.js';
import { call, get } from '../api.js';
import { plural } from '../format.js';
import { Icon } from '../icons.js';
import { useResource } from '../resource.js';
import { go, link } from '../router.js';
import { CopyButton, Empty, Head, Loaded, Note, Search } from '../parts/basics.js';
import { Dialog, Field, FormDialog } from '../parts/dialog.js';
import { Menu } from '../parts/menu.js';
import { say } from '../parts/toasts.js';
import { Grants } from './grants.js';

const roles = {
  admin: 'everything, users and settings too',
  user: 'what buckets and policies grant',
  userplus: 'may also make buckets of its own',
};
const userPath = (key) => `users/${encodeURIComponent(key)}`;

/** Users lists the accounts, or shows one of them: #/users/KEY. */
export function Users({ path }) {
  return path[1] ? html`<${OneUser} name=${path[1]} />` : html`<${AllUsers} />`;
}

function AllUsers() {
  const list = useResource((signal) => get('users', {}, signal), []);
  const [filter, setFilter] = useState('');
  const [open, setOpen] = useState(null); // {kind: add | role | renew | remove, user}
  const [secret, setSecret] = useState(null);
  const close = () => setOpen(null);
  const done = (made) => {
    if (made?.secret_key) setSecret(made);
    list.reload();
  };
  return html`<${Head} title="Users and policies" under=${list.data ? plural(list.data.users.length, 'user') : ''}>
      <${Search} label="Search users" value=${filter} onInput=${setFilter} />
      <button type="button" class="main" onClick=${() => setOpen({ kind: 'add' })}>
        <${Icon} name="plus" />Add a user</button><//>
    <${Loaded} from=${list} what="The users could not be listed.">${({ users }) => {
      const shown = users.filter((u) => u.access_key.toLowerCase().includes(filter.toLowerCase()));
      if (!shown.length) return html`<${Empty}>No user's access key contains "${filter}".<//>`;
      return html`<table class="cards"><thead><tr><th scope="col">Access key</th><th scope="col">Role</th>
        <th scope="col">May do</th><th><span class="unseen">Actions</span></th></tr></thead>
        <tbody>${shown.map((u) => html`<tr key=${u.access_key}><th scope="row" class="anywhere">
          <a href=${link('users', u.access_key)}>${u.access_key}</a>
            ${u.you && html` <span class="tag accent">you</span>`} ${u.root && html` <span class="tag">root</span>`}
              </th>
          <td data-label="Role">${u.role}</td><td class="dim">${roles[u.role] ?? ''}</td>
          <td class="tools"><${Menu} label=${`Actions for ${u.access_key}`} items=${[
            { text: 'Show rights', icon: 'users', onClick: () => go(link('users', u.access_key)) },
            !u.root && { text: 'Change the role', icon: 'config', onClick: () => setOpen({ kind: 'role', user: u }) },
            !u.root && { text: 'New secret key', icon: 'refresh', onClick: () => setOpen({ kind: 'renew', user: u }) },
            !u.root && !u.you && { text: 'Delete', icon: 'trash', danger: true,
              onClick: () => setOpen({ kind: 'remove', user: u }) },
          ]} /></td></tr>`)}</tbody></table>`;
    }}<//>
    <p class="dim">Policies belong to buckets: open a bucket and its tab Policy. A grant is a statement in a bucket's
      policy that the console writes for you.</p>
    ${open?.kind === 'add' && html`<${AddUser} roles=${list.data?.roles ?? Object.keys(roles)} onClose=${close}
      onDone=${done} />`}
    ${open?.kind === 'role' && html`<${ChangeRole} user=${open.user} roles=${list.data.roles} onClose=${close}
      onDone=${done} />`}
    ${open?.kind === 'renew' && html`<${FormDialog} title="Make a new secret key" action="Make a new secret key"
      onClose=${close} onSubmit=${async () => {
      done(await call('PATCH', userPath(open.user.access_key), { json: { secret_key: '' } }));
    }}><p>The old secret key of <b>${open.user.access_key}</b> ends at once, with the sessions of this user.</p><//>`}
    ${open?.kind === 'remove' && html`<${FormDialog} title="Delete the user" action="Delete the user" danger
      onClose=${close} onSubmit=${async () => {
      await call('DELETE', userPath(open.user.access_key));
      say(`The user ${open.user.access_key} is deleted.`);
      done();
    }}><p>The keys of <b class="anywhere">${open.user.access_key}</b> end at once. Its buckets stay.</p><//>`}
    ${secret && html`<${Secret} made=${secret} onClose=${() => setSecret(null)} />`}`;
}

function RoleField({ roles: names, value, onChange }) {
  return html`<${Field} label="Role" id="user-role" hint=${roles[value]}>
    ${(a) => html`<select ...${a} value=${value} onChange=${(e) => onChange(e.currentTarget.value)}>
    ${names.map((r) => html`<option key=${r} value=${r}>${r}</option>`)}</select>`}<//>`;
}

function AddUser({ roles: names, onClose, onDone }) {
  const [key, setKey] = useState('');
  const [role, setRole] = useState('user');
  return html`<${FormDialog} title="Add a user" action="Add" ready=${key.trim().length > 0} onClose=${onClose}
    onSubmit=${async () => {
    onDone(await call('POST', 'users', { json: { access_key: key.trim(), role, secret_key: '' } }));
  }}>
    <${Field} label="Access key" id="user-key" hint="The name with which the user logs in and signs requests.">
      ${(a) => html`<input ...${a} value=${key} required
      onInput=${(e) => setKey(e.currentTarget.value)} spellcheck=${false} autocapitalize="none" />`}<//>
    <${RoleField} roles=${names} value=${role} onChange=${setRole} />
    <p class="dim">The server makes a secret key and shows it once.</p><//>`;
}

function ChangeRole({ user, roles: names, onClose, onDone }) {
  const [role, setRole] = useState(user.role);
  return html`<${FormDialog} title=${`Role of ${user.access_key}`} action="Change" ready=${role !== user.role}
    onClose=${onClose} onSubmit=${async () => {
    await call('PATCH', userPath(user.access_key), { json: { role } });
    say(`${user.access_key} has the role ${role} now.`);
    onDone();
  }}><${RoleField} roles=${names} value=${role} onChange=${setRole} /><//>`;
}

/** Secret shows a new secret key, once. */
function Secret({ made, onClose }) {
  return html`<${Dialog} title="The new keys" onClose=${onClose}><div class="stack">
    <${Note} kind="warn">The secret key is shown only now. Copy it before you close this window.<//>
    <${Field} label="Access key" id="new-access">${(a) => html`<div class="copied">
      <input ...${a} readonly value=${made.access_key} /><${CopyButton} text=${made.access_key} /></div>`}<//>
    <${Field} label="Secret key" id="new-secret">${(a) => html`<div class="copied">
      <input ...${a} readonly value=${made.secret_key} /><${CopyButton} text=${made.secret_key} /></div>`}<//>
    <div class="actions"><button type="button" class="main" onClick=${onClose}>Done</button></div></div><//>`;
}

function OneUser({ name }) {
  const user = useResource((signal) => get(userPath(name), {}, signal), [name]);
  return html`<${Head} title=${name} crumbs=${[['Users and policies', link('users')]]} />
    <${Loaded} from=${user} what="The user could not be loaded.">
      ${(u) => html`<${Grants} user=${u} reload=${user.reload} />`}<//>`;
}
