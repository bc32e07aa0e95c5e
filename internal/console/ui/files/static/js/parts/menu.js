// SPDX-License-Identifier: Apache-2.0
// A button that opens a list of actions, with the keys of a menu: arrows, Home, End and Escape.

import { html, useEffect, useRef, useState } from '../html.js';
import { Icon } from '../icons.js';

/**
 * Menu shows actions. Each item is {text, icon, onClick, danger} or {text, icon, href, download}. Empty items are left
 * out.
 */
export function Menu({ label, items, text }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  const button = useRef(null);

  useEffect(() => {
    if (!open) return undefined;
    box.current.querySelector('[role="menuitem"]')?.focus();
    const away = (e) => { if (!box.current?.contains(e.target)) setOpen(false); };
    document.addEventListener('pointerdown', away);
    return () => document.removeEventListener('pointerdown', away);
  }, [open]);

  const close = () => { setOpen(false); button.current?.focus(); };
  const keys = (e) => {
    const all = [...box.current.querySelectorAll('[role="menuitem"]')];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length, Home: 0,
      End: all.length - 1 }[e.key];
    if (e.key === 'Escape') close();
    else if (e.key === 'Tab') setOpen(false);
    else if (to !== undefined) all[to]?.focus();
    else return;
    if (e.key !== 'Tab') e.preventDefault();
    e.stopPropagation();
  };

  return html`<div class="menu" ref=${box} onKeyDown=${open ? keys : undefined}>
    <button type="button" ref=${button} class=${text ? '' : 'quiet icon'} aria-haspopup="menu" aria-expanded=${open}
      aria-label=${label}
      title=${text ? undefined : label} onClick=${() => setOpen(!open)}>${text ?? ''}<${Icon} name="more" /></button>
    ${open && html`<ul role="menu" aria-label=${label}>
      ${items.filter(Boolean).map((item) => html`<li role="none" key=${item.text}>${item.href
        ? html`<a class="button" role="menuitem" tabindex="-1" href=${item.href} download=${item.download}
          onClick=${close}><${Icon} name=${item.icon} />${item.text}</a>`
        : html`<button type="button" role="menuitem" tabindex="-1" class=${item.danger ? 'danger' : ''}
            onClick=${() => { close(); item.onClick(); }}><${Icon} name=${item.icon} />${item.text}</button>`}</li>`)}
    </ul>`}
  </div>`;
}
