// SPDX-License-Identifier: Apache-2.0
// Short messages at the edge of the window, some with a button to undo what happened.

import { html } from '../html.js';
import { Icon } from '../icons.js';
import { observable, useObservable } from '../observable.js';

const toasts = observable([]);
const most = 4;
let last = 0;

/** Shows a message. undo is a function that the button "Undo" calls; such a message stays longer. */
export function say(text, { undo, bad = false } = {}) {
  const id = ++last;
  toasts.set([...toasts.get(), { id, text, undo, bad }].slice(-most));
  setTimeout(() => drop(id), undo || bad ? 20_000 : 5_000);
}

function drop(id) {
  toasts.set(toasts.get().filter((t) => t.id !== id));
}

/** Shows why something failed, with the fix. */
export const sayError = (what, error) => say(`${what}: ${error.message}${error.fix ? ` Fix: ${error.fix}` : ''}`,
  { bad: true });

/** Toasts draws the messages. Screen readers read each of them when it appears. */
export function Toasts() {
  const list = useObservable(toasts);
  return html`<div class="toasts" role="region" aria-label="Messages" aria-live="polite">
    ${list.map((t) => html`<div class="toast" key=${t.id}>
      <div>${t.text}</div>
      ${t.undo && html`<button type="button" onClick=${() => { drop(t.id); t.undo(); }}>Undo</button>`}
      <button type="button" class="icon" aria-label="Close this message" onClick=${() => drop(t.id)}>
        <${Icon} name="close" /></button>
    </div>`)}
  </div>`;
}
