// SPDX-License-Identifier: Apache-2.0
// Unfinished uploads of a bucket: go on with one by choosing its file again, or remove it.

import { html, useRef, useState } from '../html.js';
import { bucketPath, call, get } from '../api.js';
import { time } from '../format.js';
import { useResource } from '../resource.js';
import { uploads } from '../upload/queue.js';
import { Empty, Loaded, Note } from '../parts/basics.js';
import { say, sayError } from '../parts/toasts.js';

/** Uploads lists the multipart uploads that were begun and not completed. */
export function Uploads({ bucket }) {
  const list = useResource((signal) => get(bucketPath(bucket.name, 'uploads'), {}, signal), [bucket.name]);
  const input = useRef(null);
  const [chosen, setChosen] = useState(null);
  const goOn = (upload) => {
    setChosen(upload);
    input.current.click();
  };
  const picked = (event) => {
    const [file] = event.currentTarget.files;
    event.currentTarget.value = '';
    if (file && chosen) uploads.add(bucket.name, [{ file, key: chosen.key, upload: chosen.upload }]);
  };
  const remove = async (upload) => {
    try {
      await call('DELETE', bucketPath(bucket.name, 'upload'), { query: { key: upload.key, upload: upload.upload } });
      say('The unfinished upload and its parts are removed.');
    } catch (error) {
      sayError('The upload could not be removed', error);
    }
    list.reload();
  };
  return html`<div class="stack"><p class="dim">An upload that was cut keeps its parts on the server. Choose the same
    file again, and only what is missing is sent.</p>
    <input type="file" class="unseen" tabindex="-1" aria-hidden="true" ref=${input} onChange=${picked} />
    <${Loaded} from=${list} what="The uploads could not be listed.">${(data) => (data.uploads.length
      ? html`<table class="cards"><thead><tr><th scope="col">Key</th><th scope="col">Begun</th><th>
        <span class="unseen">Actions</span></th></tr></thead>
          <tbody>${data.uploads.map((u) => html`<tr key=${u.upload}><th scope="row" class="anywhere">${u.key}</th>
            <td class="nowrap" data-label="Begun">${time(u.started)}</td>
            <td class="tools"><div class="row"><button type="button" onClick=${() => goOn(u)}>Choose the file</button>
              <button type="button" class="danger" onClick=${() => remove(u)}>Remove</button></div></td></tr>`)}</tbody>
                </table>
        ${data.more && html`<${Note}>There are more unfinished uploads than are shown.<//>`}`
      : html`<${Empty}>No unfinished uploads.<//>`)}<//></div>`;
}
