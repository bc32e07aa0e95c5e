// SPDX-License-Identifier: Apache-2.0
// Small parts that every page uses: heads, sections, notes, empty and loading states, copy buttons.

import { html, useEffect, useRef, useState } from '../html.js';
import { Icon } from '../icons.js';
import { say } from './toasts.js';

let opened = false; // whether a page was shown before: the first one leaves the focus to the browser

/** Head is the head of a page: its title, a path to it, and its actions. The title gets the focus on a new page. */
export function Head({ title, under, crumbs, children }) {
  const heading = useRef(null);
  useEffect(() => { document.title = `${title} · NebulaIO`; }, [title]);
  useEffect(() => {
    if (opened) heading.current?.focus({ preventScroll: true });
    opened = true;
  }, []);
  return html`<div class="head">
    <div class="titles">
      ${crumbs && html`<nav class="crumbs" aria-label="Path"><ol>
        ${crumbs.map(([text, href]) => html`<li key=${text + href}><a href=${href}>${text}</a></li>`)}</ol></nav>`}
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      ${under && html`<p>${under}</p>`}
    </div>
    ${children && html`<div class="row">${children}</div>`}
  </div>`;
}

/** Block is a section with a heading. */
export function Block({ title, under, actions, children, id }) {
  return html`<section class="block" id=${id}>
    <div class="headline"><h2>${title}</h2>${under && html`<p>${under}</p>`}${actions && html`<div class="row">
      ${actions}</div>`}</div>
    ${children}
  </section>`;
}

/** Note is a message in the page. kind is good, warn, bad or empty. */
export function Note({ kind = '', title, children, role }) {
  return html`<div class=${`note ${kind}`} role=${role}>${title && html`<strong>${title}</strong>`}${children}</div>`;
}

/** Problem shows why something failed and what to do. */
export function Problem({ error, what }) {
  if (!error) return null;
  return html`<${Note} kind="bad" role="alert" title=${what}>
    <div>${error.message}</div>
    ${error.fix && html`<div class="fix">Fix: ${error.fix}</div>`}
  <//>`;
}

/** Empty fills the place of a list without entries. */
export function Empty({ children }) {
  return html`<div class="empty"><p>${children}</p></div>`;
}

/** Loading stands for data that is on its way. It appears late, so that fast replies do not flicker. */
export function Loading({ what = 'Loading' }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 250);
    return () => clearTimeout(timer);
  }, []);
  return html`<p class="loading" role="status">${late ? `${what} …` : ''}</p>`;
}

/** Loaded shows children of the loaded data, or why there is none. */
export function Loaded({ from, what, children }) {
  if (from.data !== undefined) return children(from.data);
  if (from.error) return html`<${Problem} error=${from.error} what=${what} />`;
  return html`<${Loading} />`;
}

/** Puts text on the clipboard. Where the browser forbids it, the user is told. */
export async function copyText(text, what = 'Copied.') {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    say('The browser does not let this page use the clipboard. Select the text and copy it by hand.', { bad: true });
  }
}

/** CopyButton copies a text. label says what is copied. */
export function CopyButton({ text, label = 'Copy', quiet }) {
  return html`<button type="button" class=${quiet ? 'quiet icon' : ''} aria-label=${quiet ? label : undefined}
    title=${quiet ? label : undefined}
    onClick=${() => copyText(text)}><${Icon} name="copy" />${quiet ? '' : label}</button>`;
}

/** Fact is one name and value of a list of facts. */
export function Fact({ name, children, full }) {
  return html`<div class=${full ? 'full' : ''}><dt>${name}</dt><dd>${children ?? '–'}</dd></div>`;
}

/** Tile shows one figure with its name. */
export function Tile({ name, value, under, kind = '' }) {
  return html`<div class="tile"><div class="name">${name}</div><div class=${`value ${kind}`}>${value}</div>
    ${under && html`<div class="under">${under}</div>`}</div>`;
}

/** Search is a field that filters a list. The key "/" moves the focus to it. */
export function Search({ label, value, onInput, onEnter }) {
  return html`<form class="search" role="search" onSubmit=${(e) => { e.preventDefault(); onEnter?.(); }}>
    <${Icon} name="search" />
    <input type="search" data-search autocomplete="off" spellcheck=${false} aria-label=${label} placeholder=${label}
      value=${value}
      onInput=${(e) => onInput(e.currentTarget.value)} /></form>`;
}

/** Tabs is a row of links to parts of a page. Each tab is [text, href, current]. */
export function Tabs({ label, tabs }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(([text, href, current]) => html`<a key=${href} href=${href} aria-current=${current ? 'page' : undefined}>
      ${text}</a>`)}
  </nav>`;
}
