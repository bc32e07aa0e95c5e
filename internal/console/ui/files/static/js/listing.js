// SPDX-License-Identifier: Apache-2.0
// A listing of objects that grows page by page as the user scrolls, with any number of objects.

import { useCallback, useEffect, useRef, useState } from './html.js';
import { bucketPath, connection, get } from './api.js';
import { useObservable } from './observable.js';

const page = 1000;
const patience = 20; // requests of a search that find nothing before the user is asked to go on

/** Returns the rows of a page of a listing: folders first, then objects. */
function rowsOf(reply) {
  return [
    ...(reply.prefixes ?? []).map((key) => ({ folder: true, key })),
    ...(reply.objects ?? []),
  ];
}

/**
 * Lists objects below a prefix, or those whose key contains a text. It returns the rows so far, whether there are more,
 * and more(), which loads the next page.
 */
export function useListing(bucket, prefix, search) {
  const { epoch } = useObservable(connection);
  const [round, setRound] = useState(0);
  const [state, setState] = useState({ rows: [], next: '', busy: true, error: null, scanned: 0 });
  const job = useRef(null);

  const fetchPage = useCallback(async (mine, token, rows, scanned) => {
    mine.busy = true;
    setState({ rows, next: token, busy: true, error: null, scanned });
    try {
      const query = search ? { prefix, search, token } : { prefix, delimiter: '/', token, limit: page };
      let reply;
      let all = rows;
      let seen = scanned;
      for (let tries = 0; tries < patience; tries++) {
        reply = await get(bucketPath(bucket, 'objects'), { ...query, token: reply?.next ?? token }, mine.stop.signal);
        all = all.concat(rowsOf(reply));
        seen += reply.scanned ?? 0;
        if (!reply.next || all.length > rows.length) break;
        setState({ rows: all, next: reply.next, busy: true, error: null, scanned: seen });
      }
      mine.busy = false;
      mine.latest = { rows: all, next: reply.next ?? '', busy: false, error: null, scanned: seen };
      setState(mine.latest);
    } catch (error) {
      mine.busy = false;
      if (!mine.stop.signal.aborted) setState((old) => ({ ...old, busy: false, error }));
    }
  }, [bucket, prefix, search]);

  useEffect(() => {
    const mine = { stop: new AbortController(), busy: false, latest: null };
    job.current = mine;
    fetchPage(mine, '', [], 0);
    return () => mine.stop.abort();
  }, [fetchPage, epoch, round]);

  const more = useCallback(() => {
    const mine = job.current;
    if (mine?.latest?.next && !mine.busy) fetchPage(mine, mine.latest.next, mine.latest.rows, mine.latest.scanned);
  }, [fetchPage]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  /** Takes keys out of the list without loading it anew, so that the place in a long list stays. */
  const drop = useCallback((keys) => {
    const gone = new Set(keys);
    const mine = job.current;
    if (mine?.latest) {
      mine.latest = { ...mine.latest, rows: mine.latest.rows.filter((r) => !gone.has(r.key)) };
      setState(mine.latest);
    }
  }, []);
  return { ...state, more, reload, drop };
}
