// SPDX-License-Identifier: Apache-2.0
// The settings of a bucket: versions, tags, lifecycle and where its objects are kept.

import { html, useState } from '../html.js';
import { bucketPath, call } from '../api.js';
import { time } from '../format.js';
import { go, link } from '../router.js';
import { Block, Fact, Note } from '../parts/basics.js';
import { TagEditor } from '../parts/tags.js';
import { say, sayError } from '../parts/toasts.js';
import { Remove } from './buckets.js';

/** Settings shows and changes the settings of a bucket. */
export function Settings({ bucket, reload }) {
  const [removing, setRemoving] = useState(false);
  const may = bucket.may ?? {};
  const lock = bucket.object_lock;
  const rules = bucket.lifecycle?.rules ?? [];
  const setVersions = async (status) => {
    try {
      await call('PUT', bucketPath(bucket.name, 'versioning'), { json: { status } });
      say(status === 'enabled' ? 'The bucket keeps versions now.' : 'New versions are no longer kept.');
    } catch (error) {
      sayError('The versions could not be switched', error);
    }
    reload();
  };
  return html`<div>
    <${Block} title="Facts"><dl class="facts"><${Fact} name="Owner">${bucket.owner}<//><${Fact} name="Created">
      ${time(bucket.created)}<//>
      <${Fact} name="ETag">${bucket.etag ?? 'not shown'}<//>
      <${Fact} name="Object lock">${lock?.enabled ? `on${lock.mode ? `, ${lock.mode} for ${lock.days
        ? `${lock.days} days` : `${lock.years} years`}` : ''}` : lock === null ? 'not shown' : 'off'}<//></dl><//>
    <${Block} title="Versions" under="What happens to an object that is replaced or deleted">
      ${bucket.versioning === null ? html`<p class="dim">Your policies do not show this setting.</p>` : html`<div
        class="row">
        <span>${{ enabled: 'Versions are kept.',
          suspended: 'Switched off: older versions are still there, new ones are not kept.',
            off: 'No versions are kept.' }[bucket.versioning]}</span>
        ${may.settings && bucket.versioning !== 'enabled' && html`<button type="button" class="main"
          onClick=${() => setVersions('enabled')}>Keep versions</button>`}
        ${may.settings && bucket.versioning === 'enabled' && html`<button type="button"
          onClick=${() => setVersions('suspended')}>Stop keeping versions</button>`}</div>`}<//>
    <${Block} title="Tags">
      ${bucket.tags === null ? html`<p class="dim">Your policies do not show the tags.</p>` : html`<${TagEditor} bare
        tags=${bucket.tags ?? {}} may=${may.settings} onSave=${async (tags) => {
        await call('PUT', bucketPath(bucket.name, 'tags'), { json: { tags } });
        reload();
      }} />`}<//>
    <${Block} title="Lifecycle">
      ${bucket.lifecycle?.supported ? html`<${Rules} rules=${rules} />` : html`<${Note}>
        ${bucket.lifecycle?.why || 'This server has no lifecycle rules.'}<//>`}<//>
    ${bucket.upstream && html`<${Block} title="Upstream" under="Another S3 server keeps the objects of this bucket">
      <dl class="facts">
      ${Object.entries(bucket.upstream).map(([name, value]) => html`<${Fact} key=${name} name=${name.replaceAll('_',
        ' ')}>${String(value)}<//>`)}</dl><//>`}
    ${may.remove && html`<${Block} title="Delete the bucket"><div class="row">
      <span>Only an empty bucket can be deleted.</span>
      <button type="button" class="danger" onClick=${() => setRemoving(true)}>Delete the bucket</button></div><//>`}
    ${removing && html`<${Remove} bucket=${bucket.name} onClose=${() => setRemoving(false)}
      onDone=${() => go(link('buckets'))} />`}
  </div>`;
}

function Rules({ rules }) {
  if (!rules.length) return html`<p class="dim">No rules.</p>`;
  return html`<pre tabindex="0" aria-label="Rules of the lifecycle">${JSON.stringify(rules, null, 2)}</pre>`;
}
