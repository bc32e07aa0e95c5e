// SPDX-License-Identifier: Apache-2.0
// Dialogs by the browser's own element: it keeps the focus inside, closes with Escape and returns the focus.

import { html, useEffect, useRef, useState } from '../html.js';
import { Icon } from '../icons.js';
import { Problem } from './basics.js';

/** Dialog shows its children over the page until onClose is called. drawer places it at the right edge. */
export function Dialog({ title, onClose, children, wide, drawer }) {
  const element = useRef(null);
  const opener = useRef(document.activeElement);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    // A form begins at its first field, not at the button that closes it.
    if (!drawer) dialog.querySelector('form :is(input, select, textarea)')?.focus();
    return () => {
      dialog.close();
      // A dialog that leaves the page does not return the focus by itself.
      if (opener.current?.isConnected) opener.current.focus({ preventScroll: true });
    };
  }, []);
  return html`<dialog ref=${element} class=${drawer ? 'drawer' : wide ? 'wide' : ''} aria-labelledby="dialog-title"
    onCancel=${(e) => { e.preventDefault(); onClose(); }}
    onMouseDown=${(e) => { if (e.target === element.current && outside(e)) onClose(); }}>
    <div class="body">
      <div class="headline"><h2 id="dialog-title">${title}</h2>
        <button type="button" class="quiet icon" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
          </div>
      ${children}
    </div>
  </dialog>`;
}

function outside(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom;
}

/**
 * FormDialog asks for values and calls onSubmit, which may throw: the error then stands in the dialog. The dialog
 * closes when onSubmit has ended.
 */
export function FormDialog({ title, action, danger, onSubmit, onClose, children, wide, ready = true }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    if (busy || !ready) return;
    setBusy(true);
    setError(null);
    try {
      await onSubmit(new FormData(event.target));
      onClose();
    } catch (cause) {
      setError(cause);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose} wide=${wide}>
    <form class="stack" onSubmit=${submit} method="dialog" autocomplete="off">
      ${children}
      <${Problem} error=${error} />
      <div class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${danger ? 'danger' : 'main'} aria-disabled=${busy || !ready}>
          ${busy ? 'Please wait …' : action}</button>
      </div>
    </form>
  <//>`;
}

/** Field is a labelled input with a hint and the reason why a value is refused. control gets the ids to refer to. */
export function Field({ label, hint, wrong, id, children }) {
  const described = [hint && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(' ') || undefined;
  return html`<div class="field"><label for=${id}>${label}</label>
    ${children({ id, 'aria-describedby': described, 'aria-invalid': wrong ? 'true' : undefined })}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${wrong && html`<p class="wrong" id=${`${id}-wrong`} role="alert">${wrong}</p>`}</div>`;
}

/** Choice is a checkbox or a radio button with its text. */
export function Choice({ name, value, checked, onChange, children, type = 'checkbox', hint }) {
  return html`<label class="choice"><input type=${type} name=${name} value=${value} checked=${checked}
    onChange=${onChange} />
    <span>${children}${hint && html`<br /><small>${hint}</small>`}</span></label>`;
}
