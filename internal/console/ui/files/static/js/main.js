// SPDX-License-Identifier: Apache-2.0
// The start of the console: it asks who is logged in, and shows the page of the address.

import { html, render, useEffect, useErrorBoundary, useState } from './html.js';
import { askSession, session } from './api.js';
import { useObservable } from './observable.js';
import './preferences.js';
import { link, route } from './router.js';
import { Note } from './parts/basics.js';
import { Login } from './parts/login.js';
import { Shell } from './parts/shell.js';
import { Benchmarks } from './pages/benchmarks.js';
import { Bucket } from './pages/bucket.js';
import { Buckets } from './pages/buckets.js';
import { Cluster } from './pages/cluster.js';
import { Configuration } from './pages/config.js';
import { Machine } from './pages/machine.js';
import { Overview } from './pages/overview.js';
import { Transfers } from './pages/transfers.js';
import { Users } from './pages/users.js';

const pages = {
  overview: Overview, buckets: Buckets, transfers: Transfers, users: Users, machine: Machine,
  benchmarks: Benchmarks, cluster: Cluster, config: Configuration,
};

/** Page shows one page. A page that fails says so, and the rest of the console goes on. */
function Page({ name, path, query }) {
  const [failed, forget] = useErrorBoundary((error) => console.error(error));
  if (failed) {
    return html`<${Note} kind="bad" role="alert" title="This page failed.">
      <p>${String(failed.message ?? failed)}</p><button type="button" onClick=${forget}>Show it again</button><//>`;
  }
  const View = name === 'buckets' && path[1] ? Bucket : pages[name];
  return html`<${View} path=${path} query=${query} />`;
}

function Console() {
  const me = useObservable(session);
  const { path, query } = useObservable(route);
  const [problem, setProblem] = useState(null);
  useEffect(() => { askSession().catch(setProblem); }, []);
  if (me === undefined && !problem) return html`<p class="bare" role="status">Connecting to the server …</p>`;
  if (!me) return html`<${Login} problem=${problem} />`;
  const name = path[0] ?? 'overview';
  const allowed = Object.hasOwn(pages, name) && me.pages.includes(name);
  return html`<${Shell} current=${name}>${allowed
    ? html`<${Page} key=${[name, path[1]].join('/')} name=${name} path=${path} query=${query} />`
    : html`<${Note} kind="warn" title="There is no such page for you."><p>
      <a href=${link('overview')}>Go to the overview</a></p><//>`}<//>`;
}

render(html`<${Console} />`, document.getElementById('app'));
