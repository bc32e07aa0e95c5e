// SPDX-License-Identifier: Apache-2.0
// Every setting of the server with its value, and where the value came from.

import { html, useState } from '../html.js';
import { get } from '../api.js';
import { plural } from '../format.js';
import { useResource } from '../resource.js';
import { Choice } from '../parts/dialog.js';
import { Empty, Head, Loaded, Note, Search } from '../parts/basics.js';

const origins = { default: '', file: 'accent', environment: 'accent', flag: 'accent' };

/** Configuration lists the settings. */
export function Configuration() {
  const config = useResource((signal) => get('config', {}, signal), []);
  const [filter, setFilter] = useState('');
  const [changed, setChanged] = useState(false);
  const text = filter.toLowerCase();
  return html`<${Head} title="Configuration" under=${config.data ? (config.data.file
    ? `From ${config.data.file}, the environment and flags` : 'No file: from the environment and flags') : ''}>
      <${Search} label="Search settings" value=${filter} onInput=${setFilter} />
        <${Choice} checked=${changed} onChange=${(e) => setChanged(e.currentTarget.checked)}>Only changed ones<//><//>
    <${Loaded} from=${config} what="The configuration could not be read.">${(c) => {
      const shown = c.values.filter((v) => (!changed || v.source.origin !== 'default') && (!text
        || `${v.key} ${v.meaning} ${v.env} ${v.flag}`.toLowerCase().includes(text)));
      return html`<div class="stack">${(c.warnings ?? []).map((w, i) => html`<${Note} key=${i} kind="warn">
        ${w.message ?? w}<//>`)}
        ${(c.notes ?? []).map((n, i) => html`<${Note} key=${i}>${n}<//>`)}
        ${shown.length ? html`<table class="cards settings"><thead><tr><th scope="col">Setting</th>
          <th scope="col">Value</th><th scope="col">From</th><th scope="col">Meaning</th></tr></thead>
          <tbody>${shown.map((v) => html`<tr key=${v.key}><th scope="row"><code>${v.key}</code><br />
            <small class="anywhere">${v.env || ''}</small></th>
            <td class="anywhere">${v.value === '' || v.value === null ? html`<span class="dim">not set</span>`
              : html`<code>${show(v.value)}</code>`}${v.source.origin !== 'default' && !v.secret
                && show(v.default) !== '' ? html`<br /><small>default ${show(v.default)}</small>` : ''}</td>
            <td class="anywhere"><span class=${`tag ${origins[v.source.origin] ?? ''}`}>${v.source.origin}</span>
              ${v.source.where ? html`<br /><small>${v.source.where}</small>` : ''}</td><td class="meaning">${v.meaning}
                </td></tr>`)}</tbody></table>`
          : html`<${Empty}>No setting matches.<//>`}
        <p class="dim">${plural(shown.length, 'setting')} of ${c.values.length}. A change needs the file, the
          environment or a flag, and a restart.</p></div>`;
    }}<//>`;
}

const show = (value) => (value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value)
  : String(value));
