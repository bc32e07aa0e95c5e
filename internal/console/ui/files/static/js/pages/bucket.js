// SPDX-License-Identifier: Apache-2.0
// One bucket: its objects, its versions, its unfinished uploads, its policy and its settings.

import { html } from '../html.js';
import { bucketPath, get } from '../api.js';
import { useResource } from '../resource.js';
import { link } from '../router.js';
import { Head, Loading, Problem, Tabs } from '../parts/basics.js';
import { Objects } from './objects.js';
import { PolicyEditor } from './policy.js';
import { Settings } from './settings.js';
import { Uploads } from './uploads.js';
import { Versions } from './versions.js';

const parts = { objects: Objects, versions: Versions, uploads: Uploads, policy: PolicyEditor, settings: Settings };

/**
 * Bucket shows the part of a bucket that the address names: #/buckets/NAME/PART. The list of objects does not wait for
 * the settings of the bucket.
 */
export function Bucket({ path, query }) {
  const [, name, asked = 'objects'] = path;
  const part = Object.hasOwn(parts, asked) ? asked : 'objects';
  const bucket = useResource((signal) => get(bucketPath(name), {}, signal), [name]);
  const b = bucket.data ?? { name, may: {} };
  const may = b.may ?? {};
  const kept = b.versioning && b.versioning !== 'off';
  const tabs = [
    ['Objects', 'objects', true], ['Versions', 'versions', kept && may.versions], ['Uploads', 'uploads', may.put],
    ['Policy', 'policy', may.policy], ['Settings', 'settings', true],
  ].filter(([, to, shown]) => shown || to === part);
  const href = (to) => (to === 'objects' ? link('buckets', name) : link('buckets', name, to));
  const failed = bucket.error && !bucket.data;
  const View = parts[part];
  return html`<${Head} title=${name} crumbs=${[['Buckets', link('buckets')]]} />
    ${failed && html`<${Problem} error=${bucket.error} what=${`The bucket ${name} could not be opened.`} />`}
    ${!failed && html`<${Tabs} label=${`Parts of the bucket ${name}`}
      tabs=${tabs.map(([text, to]) => [text, href(to), part === to])} />`}
    ${!failed && !bucket.data && part !== 'objects' && html`<${Loading} />`}
    ${!failed && (bucket.data || part === 'objects') && html`<${View} key=${part} bucket=${b} query=${query}
      reload=${bucket.reload} />`}`;
}
