// SPDX-License-Identifier: Apache-2.0
// What one user may do: the buckets it owns, its grants, and the policies that name it.

import { html, useState } from '../html.js';
import { call, get } from '../api.js';
import { Icon } from '../icons.js';
import { useResource } from '../resource.js';
import { link } from '../router.js';
import { Block, Empty, Fact } from '../parts/basics.js';
import { Field, FormDialog } from '../parts/dialog.js';
import { say, sayError } from '../parts/toasts.js';

const kinds = { read: 'read', write: 'write', 'read-write': 'read and write' };

/** Grants shows the rights of a user and changes them. */
export function Grants({ user, reload }) {
  const [adding, setAdding] = useState(false);
  const grants = user.grants ?? [];
  const take = async (g) => {
    try {
      await call('POST', 'revoke', { json: { bucket: g.bucket, user: user.access_key, prefix: g.prefix ?? '' } });
      say(`${user.access_key} has lost the grant on ${g.bucket}.`);
    } catch (error) {
      sayError('The grant could not be taken back', error);
    }
    reload();
  };
  return html`<dl class="facts"><${Fact} name="Role">${user.role}<//><${Fact} name="Owns">
    ${user.owns?.length ? user.owns.map((b, i) => html`${i ? ', ' : ''}<a key=${b} href=${link('buckets', b)}>${b}
      </a>`) : 'no bucket'}<//>
      <${Fact} name="Named in the policies of">${user.policies?.length ? user.policies.map((b, i) => html`${i ? ', '
        : ''}<a key=${b} href=${link('buckets', b, 'policy')}>${b}</a>`) : 'no bucket'}<//></dl>
    <${Block} title="Grants" under="Access to buckets of others" actions=${html`<button type="button"
      onClick=${() => setAdding(true)}><${Icon} name="plus" />Grant access</button>`}>
      ${grants.length ? html`<table class="cards"><thead><tr><th scope="col">Bucket</th><th scope="col">Access</th>
        <th scope="col">Only keys that begin with</th><th><span class="unseen">Actions</span></th></tr></thead>
        <tbody>${grants.map((g) => html`<tr key=${g.bucket + g.prefix + g.access}><th scope="row" class="anywhere">
          <a href=${link('buckets', g.bucket)}>${g.bucket}</a></th>
          <td data-label="Access">${kinds[g.access] ?? g.access}</td><td class="anywhere" data-label="Keys">
            ${g.prefix ? html`<code>${g.prefix}</code>` : 'all keys'}</td>
          <td class="tools"><button type="button" class="danger" aria-label=${`Take back the grant on ${g.bucket}`}
            onClick=${() => take(g)}>Take back</button></td></tr>`)}</tbody></table>`
        : html`<${Empty}>${user.role === 'admin' ? 'An administrator needs no grants.' : 'No grants.'}<//>`}<//>
    ${adding && html`<${AddGrant} user=${user} onClose=${() => setAdding(false)} onDone=${reload} />`}`;
}

function AddGrant({ user, onClose, onDone }) {
  const buckets = useResource((signal) => get('buckets', {}, signal), []);
  const [bucket, setBucket] = useState('');
  const [access, setAccess] = useState('read');
  const [prefix, setPrefix] = useState('');
  return html`<${FormDialog} title=${`Grant access to ${user.access_key}`} action="Grant" ready=${bucket}
    onClose=${onClose} onSubmit=${async () => {
    await call('POST', 'grants', { json: { bucket, user: user.access_key, access, prefix } });
    say(`${user.access_key} may ${kinds[access]} ${bucket} now.`);
    onDone();
  }}>
    <${Field} label="Bucket" id="grant-bucket">${(a) => html`<select ...${a} value=${bucket}
      onChange=${(e) => setBucket(e.currentTarget.value)} required>
      <option value="">Choose a bucket</option>${(buckets.data?.buckets ?? []).map((b) => html`<option key=${b.name}
        value=${b.name}>${b.name}</option>`)}</select>`}<//>
    <${Field} label="Access" id="grant-access">${(a) => html`<select ...${a} value=${access}
      onChange=${(e) => setAccess(e.currentTarget.value)}>
      ${Object.entries(kinds).map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
        </select>`}<//>
    <${Field} label="Only keys that begin with" id="grant-prefix" hint="Empty: all keys of the bucket.">
      ${(a) => html`<input ...${a} value=${prefix} onInput=${(e) => setPrefix(e.currentTarget.value)}
        spellcheck=${false} />`}<//>
  <//>`;
}
