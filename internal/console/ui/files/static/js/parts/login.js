// SPDX-License-Identifier: Apache-2.0
// The page on which a user logs in with access keys. The keys stay in the form: they are never stored.

import { html, useEffect, useRef, useState } from '../html.js';
import { connection, logIn } from '../api.js';
import { Logo } from '../icons.js';
import { useObservable } from '../observable.js';
import { Problem } from './basics.js';
import { Field } from './dialog.js';

/** Login asks for the keys. problem is an error that keeps anybody from logging in. */
export function Login({ problem }) {
  const [error, setError] = useState(problem ?? null);
  const [busy, setBusy] = useState(false);
  const first = useRef(null);
  const { up } = useObservable(connection);
  useEffect(() => {
    document.title = 'Log in · NebulaIO';
    first.current.focus();
  }, []);
  useEffect(() => setError(problem ?? null), [problem]);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget;
    setBusy(true);
    setError(null);
    try {
      await logIn(form.elements.access.value.trim(), form.elements.secret.value);
      form.reset();
    } catch (cause) {
      setError(cause);
      setBusy(false);
      form.elements.secret.select();
    }
  };
  return html`<main class="login"><form onSubmit=${submit} aria-labelledby="login-title">
    <div class="brand"><${Logo} />NebulaIO</div>
    <h1 id="login-title">Log in</h1>
    <${Field} label="Access key" id="access">${(a) => html`<input ...${a} ref=${first} name="access"
      autocomplete="username" required spellcheck=${false} autocapitalize="none" />`}<//>
    <${Field} label="Secret key" id="secret">${(a) => html`<input ...${a} type="password" name="secret"
      autocomplete="current-password" required />`}<//>
    <${Problem} error=${error} />
    ${!up && !error && html`<p role="status">The server does not answer. The console tries again by itself.</p>`}
    <button type="submit" class="main" aria-disabled=${busy}>${busy ? 'Please wait …' : 'Log in'}</button>
    <p>The keys are those of S3 clients. An administrator makes them with <code>nebulaio user add</code> or in this
      console.</p>
  </form></main>`;
}
