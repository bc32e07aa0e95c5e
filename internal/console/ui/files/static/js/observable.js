// SPDX-License-Identifier: Apache-2.0
// A value that components and plain code share, with notifications of changes.

import { useEffect, useState } from './html.js';

/** Returns a shared value. set notifies each subscriber, unless the value is the same. */
export function observable(value) {
  const subscribers = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const notify of [...subscribers]) notify(value);
    },
    subscribe(notify) {
      subscribers.add(notify);
      return () => subscribers.delete(notify);
    },
  };
}

/** Returns the current value of an observable and renders the component again when it changes. */
export function useObservable(source) {
  const [value, set] = useState(() => ({ now: source.get() }));
  useEffect(() => {
    const update = () => set({ now: source.get() });
    update(); // the value may have changed between the first rendering and this effect
    return source.subscribe(update);
  }, [source]);
  return value.now;
}
