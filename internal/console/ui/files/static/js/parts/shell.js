// SPDX-License-Identifier: Apache-2.0
// The frame around every page: navigation, who is logged in, the state of the connection, and keys.

import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { connection, logOut, session } from '../api.js';
import { Icon, Logo } from '../icons.js';
import { useObservable } from '../observable.js';
import { keysOn, nextTheme, setKeys, theme } from '../preferences.js';
import { go, link } from '../router.js';
import { UploadPanel } from '../upload/panel.js';
import { Choice, Dialog } from './dialog.js';
import { sayError, Toasts } from './toasts.js';

/** The pages in the order of the navigation: name of the page, its text, and the key that opens it after "g". */
export const pages = [
  ['overview', 'Overview', 'o'], ['buckets', 'Buckets', 'b'], ['transfers', 'Transfers', 't'], ['users',
    'Users and policies', 'u'],
  ['machine', 'GPUs and disks', 'd'], ['benchmarks', 'Benchmarks', 'm'], ['cluster', 'Cluster and cache', 'c'],
    ['config', 'Configuration', 's'],
];

const mayTypeHere = (e) => e.target.closest?.('input, textarea, select, [contenteditable], dialog');

/** Listens to the keys of the whole console: "/" searches, "?" shows the keys, "g" and a letter opens a page. */
function useKeys(allowed, showKeys) {
  useLayoutEffect(() => { // before the page can be seen: a key that is pressed then must not be lost
    let pending = 0;
    const keys = (e) => {
      if (!keysOn.get() || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || mayTypeHere(e)) return;
      if (pending) {
        clearTimeout(pending);
        pending = 0;
        const page = allowed.find(([, , key]) => key === e.key);
        if (page) {
          e.preventDefault();
          go(link(page[0]));
        }
      } else if (e.key === 'g') {
        pending = setTimeout(() => { pending = 0; }, 1500);
      } else if (e.key === '/') {
        const field = document.querySelector('[data-search]');
        if (field) {
          e.preventDefault();
          field.focus();
        }
      } else if (e.key === '?') showKeys();
    };
    document.addEventListener('keydown', keys);
    return () => document.removeEventListener('keydown', keys);
  }, [allowed.length]);
}

function Keys({ allowed, onClose }) {
  const on = useObservable(keysOn);
  const rows = [
    ['/', 'Search in this page'], ['?', 'Show these keys'], ['Esc', 'Close a dialog or a menu'],
    ...allowed.map(([, text, key]) => [`g ${key}`, text]),
    ['↑ ↓', 'Move in a list of objects'], ['Space', 'Select the object'], ['Enter', 'Open the object or folder'],
      ['Delete', 'Delete what is selected'],
  ];
  return html`<${Dialog} title="Keys" onClose=${onClose}><table><tbody>
    ${rows.map(([key, text]) => html`<tr key=${key + text}><th scope="row" class="nowrap">
      ${key.split(' ').map((k) => html`<kbd key=${k}>${k}</kbd> `)}</th><td>${text}</td></tr>`)}
  </tbody></table>
    <${Choice} checked=${on} onChange=${(e) => setKeys(e.currentTarget.checked)}>Single keys are commands<//><//>`;
}

/** Banner says that the server does not answer, and for a moment that it is back. */
function Banner() {
  const state = useObservable(connection);
  const [back, setBack] = useState(false);
  const was = useRef(state.up);
  useEffect(() => {
    const returned = state.up && !was.current;
    was.current = state.up;
    setBack(returned);
    if (!returned) return undefined;
    const timer = setTimeout(() => setBack(false), 4000);
    return () => clearTimeout(timer);
  }, [state.up, state.epoch]);
  return html`<div role="status" aria-live="assertive">
    ${!state.up && html`<div class="banner"><strong>No connection to the server.</strong> ${state.reason} Trying again;
      what you see may be old.</div>`}
    ${state.up && back && html`<div class="banner back">The server answers again.</div>`}
  </div>`;
}

/** Shell draws the frame with the page of the route inside. */
export function Shell({ current, children }) {
  const me = useObservable(session);
  const colours = useObservable(theme);
  const [open, setOpen] = useState(false);
  const [keys, setKeys] = useState(false);
  const allowed = pages.filter(([name]) => me.pages.includes(name));
  useKeys(allowed, () => setKeys(true));
  useEffect(() => setOpen(false), [current]);
  const leave = () => logOut().catch((error) => sayError('Log out', error));

  return html`<a class="skip" href="#main"
    onClick=${(e) => { e.preventDefault(); document.getElementById('main').focus(); }}>Skip to the content</a>
    <div class="frame">
      <header class="top">
        <a class="brand" href=${link('overview')}><${Logo} />NebulaIO</a>
        <button type="button" class="quiet icon" aria-label="Navigation" aria-expanded=${open} aria-controls="side"
          onClick=${() => setOpen(!open)}
          ><${Icon} name=${open ? 'close' : 'menu'} /></button>
      </header>
      <aside class="side" id="side" aria-label="Console" data-open=${open ? '' : undefined}
        onKeyDown=${(e) => e.key === 'Escape' && setOpen(false)}>
        <a class="brand" href=${link('overview')}><${Logo} />NebulaIO</a>
        <nav aria-label="Pages"><ul>
          ${allowed.map(([name, text]) => html`<li key=${name}>
            <a href=${link(name)} aria-current=${current === name ? 'page' : undefined}
            onClick=${() => setOpen(false)}><${Icon} name=${name} />${text}</a></li>`)}
        </ul></nav>
        <div class="who">
          <div class="cut" title=${me.user}><span class="unseen">Logged in as </span><b>${me.user}</b><br />
            <span class="dim">${me.role}</span></div>
          <div class="row"><button type="button" onClick=${leave}>Log out</button>
            <button type="button" class="quiet" onClick=${nextTheme}><span class="unseen">Colours: </span>
              ${{ system: 'Auto', light: 'Light', dark: 'Dark' }[colours]}</button>
            <button type="button" class="quiet icon" aria-label="Keys" title="Keys"
              onClick=${() => setKeys(true)}>?</button></div>
          <small>Version ${me.version}</small>
        </div>
      </aside>
      <div><${Banner} /><main id="main" tabindex="-1">${children}</main></div>
    </div>
    <${UploadPanel} /><${Toasts} />
    ${keys && html`<${Keys} allowed=${allowed} onClose=${() => setKeys(false)} />`}`;
}
