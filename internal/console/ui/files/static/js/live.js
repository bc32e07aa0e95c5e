// SPDX-License-Identifier: Apache-2.0
// Live rates of the server: one stream of events while a page shows them, and at most ten minutes of samples.

import { useEffect, useState } from './html.js';
import { API, askSession, connection, lost } from './api.js';
import { useObservable } from './observable.js';

const most = 600;

/** Returns the last samples, oldest first. The stream ends when the component leaves the page or the tab is hidden. */
export function useLive() {
  const { up, epoch } = useObservable(connection);
  const [samples, setSamples] = useState([]);
  const [visible, setVisible] = useState(document.visibilityState !== 'hidden');

  useEffect(() => {
    const change = () => setVisible(document.visibilityState !== 'hidden');
    document.addEventListener('visibilitychange', change);
    return () => document.removeEventListener('visibilitychange', change);
  }, []);

  useEffect(() => {
    if (!up || !visible) return undefined;
    const stream = new EventSource(API + 'live');
    stream.addEventListener('history', (e) => setSamples(JSON.parse(e.data).slice(-most)));
    stream.addEventListener('sample', (e) => {
      const sample = JSON.parse(e.data);
      setSamples((old) => [...old.slice(1 - most), sample]);
    });
    stream.addEventListener('end', () => {
      stream.close();
      askSession().catch(() => {});
    });
    // The event does not tell a refusal from a cut connection: the session is asked for, which finds out.
    stream.onerror = () => {
      if (stream.readyState === EventSource.OPEN) return;
      stream.close();
      askSession().then(() => lost('The stream of live rates ended.'), () => {});
    };
    return () => stream.close();
  }, [up, epoch, visible]);

  return samples;
}
