// SPDX-License-Identifier: Apache-2.0
// A list of tags, and a form to change them.

import { html, useState } from '../html.js';
import { Icon } from '../icons.js';
import { Problem } from './basics.js';

/** TagEditor shows tags. If may is true, it can change them and calls onSave with all of them. */
export function TagEditor({ tags, may, onSave, bare }) {
  const [rows, setRows] = useState(null); // the rows in work; null while nothing is edited
  const [error, setError] = useState(null);
  const entries = Object.entries(tags);
  if (!rows) {
    return html`<div class="stack tight"><div class="row apart">${bare ? '' : html`<h3>Tags</h3>`}
      ${may && html`<button type="button" class="quiet" onClick=${() => setRows([...entries, ['',
        '']])}>Change</button>`}</div>
      ${entries.length ? html`<div class="row">${entries.map(([k, v]) => html`<span class="tag wrap" key=${k}>${k}: ${v}
        </span>`)}</div>` : html`<p class="dim">No tags.</p>`}</div>`;
  }
  const set = (i, at, value) => setRows(rows.map((r, n) => (n === i ? (at ? [r[0], value] : [value, r[1]]) : r)));
  const save = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      await onSave(Object.fromEntries(rows.filter(([k]) => k)));
      setRows(null);
    } catch (cause) {
      setError(cause);
    }
  };
  return html`<form class="stack tight" onSubmit=${save}>${bare ? '' : html`<h3>Tags</h3>`}
    ${rows.map(([k, v], i) => html`<div class="copied" key=${i}>
      <input aria-label=${`Name of tag ${i + 1}`} placeholder="name" maxlength="128" value=${k} onInput=${(e) => set(i,
        0, e.currentTarget.value)} />
      <input aria-label=${`Value of tag ${i + 1}`} placeholder="value" maxlength="256" value=${v}
        onInput=${(e) => set(i, 1, e.currentTarget.value)} />
      <button type="button" class="quiet icon" aria-label=${`Remove tag ${i + 1}`}
        onClick=${() => setRows(rows.filter((_, n) => n !== i))}><${Icon} name="close" /></button></div>`)}
    <${Problem} error=${error} />
    <div class="row"><button type="button" onClick=${() => setRows([...rows, ['', '']])}>
      <${Icon} name="plus" />Add a tag</button>
      <span class="grow"></span><button type="button"
        onClick=${() => { setRows(null); setError(null); }}>Cancel</button>
          <button type="submit" class="main">Save</button></div></form>`;
}
