// SPDX-License-Identifier: Apache-2.0
// Deletion of objects: a question before, and an undo after it where the bucket keeps versions.

import { html } from '../html.js';
import { ApiError, bucketPath, call } from '../api.js';
import { plural } from '../format.js';
import { FormDialog } from '../parts/dialog.js';
import { say, sayError } from '../parts/toasts.js';

const most = 1000; // objects of one request

/** Deletes keys in steps of a thousand. It returns what was deleted, and the first failure for each key. */
async function deleteAll(bucket, keys) {
  const result = { deleted: [], errors: [] };
  for (let i = 0; i < keys.length; i += most) {
    const reply = await call('POST', bucketPath(bucket, 'delete'), { json: { objects: keys.slice(i,
      i + most).map((key) => ({ key })) } });
    result.deleted.push(...(reply.deleted ?? []));
    result.errors.push(...(reply.errors ?? []));
  }
  return result;
}

async function undo(bucket, markers, onRestored) {
  try {
    for (const m of markers) await call('POST', bucketPath(bucket, 'undelete'), { json: { key: m.key,
      version: m.version } });
    say(`${plural(markers.length, 'object')} brought back.`);
  } catch (error) {
    sayError('The deletion could not be undone', error);
  }
  onRestored();
}

/** DeleteDialog asks, deletes, and offers to undo. onDeleted gets the keys that are gone. */
export function DeleteDialog({ bucket, keys, onClose, onDeleted, onRestored }) {
  const keeps = bucket.versioning === 'enabled';
  const submit = async () => {
    const { deleted, errors } = await deleteAll(bucket.name, keys);
    onDeleted(deleted.map((d) => d.key));
    const markers = deleted.map((d) => d.undo).filter(Boolean);
    if (deleted.length) {
      say(`${plural(deleted.length, 'object')} deleted.`, { undo: markers.length ? () => undo(bucket.name, markers,
        onRestored) : undefined });
    }
    if (errors.length) {
      const [first] = errors;
      throw new ApiError(0, { code: first.code, message: `${plural(errors.length,
        'object')} not deleted. ${first.key}: ${first.message}` });
    }
  };
  return html`<${FormDialog} title=${`Delete ${keys.length === 1 ? 'the object' : plural(keys.length, 'object')}`}
    action="Delete" danger onSubmit=${submit} onClose=${onClose}>
    <ul class="plain stack tight">${keys.slice(0, 5).map((key) => html`<li key=${key} class="anywhere"><code>${key}
      </code></li>`)}
      ${keys.length > 5 && html`<li class="dim">and ${plural(keys.length - 5, 'more object')}</li>`}</ul>
    <p>${keeps ? 'The bucket keeps versions: the deletion can be undone.'
      : 'The bucket keeps no versions: the objects are gone for good.'}</p><//>`;
}
