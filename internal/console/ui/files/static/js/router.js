// SPDX-License-Identifier: Apache-2.0
// The page in the fragment of the address: #/buckets/models?prefix=a%2F. A server never sees the fragment.

import { observable } from './observable.js';

/** Returns the path segments and the query of a fragment. A fragment that cannot be decoded is the first page. */
export function parse(hash) {
  const [path, search = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  try {
    return {
      path: path.split('/').filter(Boolean).map(decodeURIComponent),
      query: Object.fromEntries(new URLSearchParams(search)),
    };
  } catch {
    return { path: [], query: {} };
  }
}

/** Returns the fragment of a page: link('buckets', 'models', {prefix: 'a/'}). */
export function link(...parts) {
  const query = typeof parts.at(-1) === 'object' ? parts.pop() : {};
  const search = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== '' && v !== undefined
    && v !== null));
  const text = search.toString();
  return '#/' + parts.map(encodeURIComponent).join('/') + (text ? '?' + text : '');
}

/** The current page. */
export const route = observable(parse(location.hash));

addEventListener('hashchange', () => route.set(parse(location.hash)));

/** Goes to a page; with replace, the current page leaves the history. */
export function go(to, { replace = false } = {}) {
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(null, '', to);
  route.set(parse(to));
}
