// SPDX-License-Identifier: Apache-2.0
// All uploads of this page. They go on while the user looks at other pages of the console.

import { observable } from '../observable.js';
import { sayError } from '../parts/toasts.js';
import { Upload } from './upload.js';

const atOnce = 2; // files on their way at the same time

function makeQueue() {
  const list = observable([]);
  const done = new Set();
  let frame = 0;

  // Progress arrives far more often than the screen is drawn.
  const change = () => {
    if (!frame) {
      frame = setTimeout(() => {
        frame = 0;
        list.set([...list.get()]);
      }, 100);
    }
  };
  const fill = () => {
    const all = list.get();
    let free = atOnce - all.filter((u) => u.active && u.state !== 'waiting').length;
    for (const u of all) {
      if (free <= 0) break;
      if (u.state !== 'waiting') continue;
      free--;
      u.run().then(() => {
        if (u.state === 'done') for (const notify of done) notify(u.bucket, u.key);
        fill();
      });
    }
  };
  return {
    list,
    /** Adds files to upload: each is {file, key} and the id of an unfinished upload to go on with. */
    add(bucket, files) {
      list.set([...list.get(), ...files.map((f) => new Upload(bucket, f, change))]);
      fill();
    },
    /** Sends an upload that was paused or failed. */
    resume(u) {
      u.state = 'waiting';
      change();
      fill();
    },
    cancel(u) {
      u.cancel().catch((error) => sayError('The parts could not be removed', error));
      list.set(list.get().filter((x) => x !== u));
      fill();
    },
    /** Removes the uploads that ended from the list. */
    clear() { list.set(list.get().filter((u) => u.active || u.state === 'paused')); },
    /** Calls notify(bucket, key) after each upload that is done. It returns a function that ends this. */
    onDone(notify) {
      done.add(notify);
      return () => done.delete(notify);
    },
  };
}

export const uploads = makeQueue();

addEventListener('beforeunload', (event) => {
  if (uploads.list.get().some((u) => u.active)) event.preventDefault();
});
