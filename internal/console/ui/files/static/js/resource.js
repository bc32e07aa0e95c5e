// SPDX-License-Identifier: Apache-2.0
// What a page loads from the API: its data, its error, and when it is loaded anew.

import { useCallback, useEffect, useRef, useState } from './html.js';
import { connection, GoneError } from './api.js';
import { useObservable } from './observable.js';

/**
 * Loads data and loads it again when a value of deps changes, when the server is back, and every `every` milliseconds
 * while the page is in view. Data of other deps is dropped at once; data of the same deps stays while it is loaded
 * anew.
 */
export function useResource(load, deps, { every = 0 } = {}) {
  const { epoch } = useObservable(connection);
  const [round, setRound] = useState(0);
  const key = JSON.stringify(deps);
  const [state, setState] = useState({ key, data: undefined, error: null });
  const loader = useRef(load);
  loader.current = load;

  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const again = () => {
      if (every && !stop.signal.aborted) timer = setTimeout(tick, every);
    };
    const tick = () => (document.visibilityState === 'hidden' ? again() : run());
    const run = async () => {
      try {
        const data = await loader.current(stop.signal);
        if (!stop.signal.aborted) setState({ key, data, error: null });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((old) => ({ key, data: old.key === key ? old.data : undefined, error }));
        if (error instanceof GoneError) return; // the next epoch loads it again
      }
      again();
    };
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, epoch, round, every]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  const mine = state.key === key;
  return { data: mine ? state.data : undefined, error: mine ? state.error : null, reload, busy: !mine || (!state.data
    && !state.error) };
}
