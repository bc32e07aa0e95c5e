// SPDX-License-Identifier: Apache-2.0
// What this browser remembers of unfinished uploads, so that they go on after the page was closed. Only names, sizes
// and the upload's id are kept: none of them gives access to anything.

import { bucketPath, get } from '../api.js';
import { md5 } from './md5.js';

const shelf = 'nebulaio-uploads';
const most = 200;

function all() {
  try {
    const list = JSON.parse(localStorage.getItem(shelf) ?? '[]');
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

function keep(list) {
  try {
    localStorage.setItem(shelf, JSON.stringify(list.slice(-most)));
  } catch {
    // without storage an upload goes on as long as the page is open
  }
}

const same = (a, b) => a.bucket === b.bucket && a.key === b.key && a.size === b.size && a.modified === b.modified;

/** Returns what identifies an upload of a file. */
export const identity = (bucket, key, file) => ({ bucket, key, size: file.size, modified: file.lastModified });

/** Remembers an upload. */
export const remember = (id, upload, partSize) => keep([...all().filter((x) => !same(x, id)), { ...id, upload,
  part_size: partSize }]);

/** Returns the remembered upload of the same file to the same key, or undefined. */
export const recall = (id) => all().find((x) => same(x, id));

/** Forgets an upload that ended. */
export const forget = (id) => keep(all().filter((x) => !same(x, id)));

/** Returns the expected size of a part. */
export const sizeOfPart = (size, partSize, number) => Math.min(partSize, size - (number - 1) * partSize);

/**
 * Returns the parts that the server has and that are those of this file: a map from number to ETag. A part whose ETag
 * is an MD5 is compared with the file. If the ETag is of another kind, the part counts only if this browser sent it.
 */
export async function partsOnServer({ bucket, key, upload, partSize, file, ours, signal, onCheck }) {
  const { parts } = await get(bucketPath(bucket, 'parts'), { key, upload }, signal);
  const good = new Map();
  for (const [i, part] of (parts ?? []).entries()) {
    onCheck?.(i + 1, parts.length);
    if (part.size !== sizeOfPart(file.size, partSize, part.number)) continue;
    const etag = String(part.etag).replaceAll('"', '');
    const from = (part.number - 1) * partSize;
    if (/^[0-9a-f]{32}$/.test(etag) ? await md5(file.slice(from, from + part.size)) === etag
      : ours) good.set(part.number, part.etag);
    signal.throwIfAborted();
  }
  return good;
}

/** Returns the part size of an upload that another browser began: that of its largest part. */
export async function guessPartSize(bucket, key, upload, signal) {
  const { parts } = await get(bucketPath(bucket, 'parts'), { key, upload }, signal);
  return Math.max(0, ...(parts ?? []).map((p) => p.size));
}
