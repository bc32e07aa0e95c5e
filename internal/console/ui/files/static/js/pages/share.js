// SPDX-License-Identifier: Apache-2.0
// A link that lets anybody who has it download one object for a time.

import { html, useState } from '../html.js';
import { bucketPath, call } from '../api.js';
import { time } from '../format.js';
import { CopyButton, Note, Problem } from '../parts/basics.js';
import { Dialog, Field } from '../parts/dialog.js';

const spans = [['15 minutes', 900], ['1 hour', 3600], ['12 hours', 43200], ['1 day', 86400], ['7 days', 604800]];

/** ShareDialog makes a link to an object. */
export function ShareDialog({ bucket, object, version, onClose }) {
  const [seconds, setSeconds] = useState(3600);
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const make = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      setMade(await call('POST', bucketPath(bucket, 'share'), { json: { key: object, version: version || undefined,
        seconds } }));
    } catch (cause) {
      setError(cause);
    }
  };
  return html`<${Dialog} title="Share link" onClose=${onClose}>
    <form class="stack" onSubmit=${make}>
      <p class="anywhere"><code>${object}</code></p>
      <div class="row"><label for="share-span">Valid for</label>
        <select id="share-span" value=${seconds}
          onChange=${(e) => { setSeconds(Number(e.currentTarget.value)); setMade(null); }}>
          ${spans.map(([text, value]) => html`<option key=${value} value=${value}>${text}</option>`)}</select>
        <button type="submit" class="main">Make the link</button></div>
      <${Problem} error=${error} />
      ${made && html`<${Field} label="Link" id="share-link"
        hint=${`Valid until ${time(made.expires)}. It ends earlier if your key loses its rights.`}>
        ${(a) => html`<div class="copied"><input ...${a} readonly value=${made.url}
          onFocus=${(e) => e.currentTarget.select()} /><${CopyButton} text=${made.url} /></div>`}<//>`}
      <${Note} kind="warn">Anybody who has the link can download the object, without keys.<//>
    </form><//>`;
}
