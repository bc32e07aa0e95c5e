// SPDX-License-Identifier: Apache-2.0
// Files and folders that the user drops on a list of objects or chooses in a dialog.

import { html, useRef, useState } from '../html.js';
import { Icon } from '../icons.js';
import { say } from '../parts/toasts.js';
import { uploads } from './queue.js';

const most = 10_000; // files of one drop

const entries = (reader) => new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
const fileOf = (entry) => new Promise((resolve, reject) => { entry.file(resolve, reject); });

/** Collects the files below a dropped entry, each with its path. */
async function collect(entry, path, out) {
  if (out.length >= most) return;
  if (entry.isFile) {
    out.push({ file: await fileOf(entry), key: path + entry.name });
    return;
  }
  const reader = entry.createReader();
  for (let batch = await entries(reader); batch.length; batch = await entries(reader)) {
    for (const below of batch) await collect(below, `${path}${entry.name}/`, out);
  }
}

async function dropped(transfer, bucket, prefix) {
  // The list of items is gone after the first wait: it is read at once.
  const roots = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const files = [...transfer.files];
  const out = [];
  if (roots.length) for (const root of roots) await collect(root, prefix, out);
  else out.push(...files.map((file) => ({ file, key: prefix + file.name })));
  if (out.length >= most) say(`A drop has at most ${most} files; the rest was left out.`, { bad: true });
  uploads.add(bucket, out.slice(0, most));
}

/** DropArea uploads the files that are dropped on its children. */
export function DropArea({ bucket, prefix, off, children }) {
  const [over, setOver] = useState(0);
  if (off) return html`<div>${children}</div>`;
  const isFiles = (e) => e.dataTransfer?.types?.includes('Files');
  return html`<div class=${over > 0 ? 'drop over' : 'drop'}
    onDragEnter=${(e) => { if (isFiles(e)) { e.preventDefault(); setOver((n) => n + 1); } }}
    onDragOver=${(e) => { if (isFiles(e)) { e.preventDefault(); e.dataTransfer.dropEffect = 'copy'; } }}
    onDragLeave=${(e) => { if (isFiles(e)) setOver((n) => Math.max(0, n - 1)); }}
    onDrop=${(e) => {
      if (!isFiles(e)) return;
      e.preventDefault();
      setOver(0);
      dropped(e.dataTransfer, bucket, prefix).catch((error) => say(`The drop could not be read: ${error.message}`,
        { bad: true }));
    }}>${children}</div>`;
}

/** UploadButton lets the user choose files. */
export function UploadButton({ bucket, prefix }) {
  const input = useRef(null);
  return html`<button type="button" class="main" onClick=${() => input.current.click()}>
    <${Icon} name="upload" />Upload</button>
    <input type="file" multiple class="unseen" tabindex="-1" aria-hidden="true" data-upload ref=${input}
      onChange=${(e) => {
      uploads.add(bucket, [...e.currentTarget.files].map((file) => ({ file, key: prefix + file.name })));
      e.currentTarget.value = '';
    }} />`;
}
