// SPDX-License-Identifier: Apache-2.0
// GPUs and disks: their state, and the doctor's verdict for each path and GPU with the script that mends it.

import { html, useState } from '../html.js';
import { call, get } from '../api.js';
import { ago, bytes, percent, plural, time } from '../format.js';
import { Icon } from '../icons.js';
import { useResource } from '../resource.js';
import { Block, CopyButton, Empty, Fact, Head, Loaded, Note, Problem } from '../parts/basics.js';
import { Dialog } from '../parts/dialog.js';
import { sayError } from '../parts/toasts.js';

const directs = { yes: ['Direct path', 'good'], no: ['No direct path', 'bad'], unproven: ['Not proven', 'warn'],
  none: ['No GPU', ''] };
const levels = { FAIL: 'bad', WARN: 'warn', UNKNOWN: 'warn', INFO: '', PASS: 'good', SKIP: '' };
const order = ['FAIL', 'WARN', 'UNKNOWN', 'INFO', 'PASS', 'SKIP'];

/** Machine shows what the server's machine has and what holds its data paths back. */
export function Machine() {
  const [running, setRunning] = useState(false);
  const machine = useResource((signal) => get('machine', {}, signal), [], { every: running ? 1500 : 15000 });
  const data = machine.data;
  if (data && data.running !== running) setRunning(data.running);
  const diagnose = async () => {
    try {
      await call('POST', 'machine/diagnose');
      setRunning(true);
      machine.reload();
    } catch (error) {
      sayError('The diagnosis could not be started', error);
    }
  };
  return html`<${Head} title="GPUs and disks" under=${data?.when ? `Diagnosed ${ago(data.when)}` : data
    ? 'Not diagnosed yet' : ''}>
      <button type="button" class="main" aria-disabled=${running} onClick=${() => !running && diagnose()}>
        <${Icon} name="refresh" />${running ? 'Diagnosing …' : 'Diagnose now'}</button><//>
    <${Loaded} from=${machine} what="The machine could not be read.">${(m) => html`<div>
      <${Block} title="Data paths" under="The doctor's verdict for each path and GPU">
        ${m.diagnoses?.length ? html`<div class="stack">${m.diagnoses.map((d) => html`<${Diagnosis}
          key=${d.path + d.gpu} d=${d} />`)}</div>`
          : html`<${Empty}>${running ? 'The doctor looks at the machine …'
            : 'The doctor has not looked at this machine yet. Start a diagnosis.'}<//>`}<//>
      <${Block} title="GPUs" under=${m.gpus?.length ? plural(m.gpus.length, 'GPU') : ''}>
        ${m.gpus?.length ? html`<div class="stack">${m.gpus.map((g) => html`<${Gpu} key=${g.index} g=${g} />`)}
          </div>` : html`<${Note}>${m.gpu_reason || 'No GPU was found.'}<//>`}<//>
      <${Block} title="Disks" under=${m.disks?.length ? plural(m.disks.length, 'disk') : ''}>
        <${Disks} disks=${m.disks ?? []} /><//>
    </div>`}<//>`;
}

function Gpu({ g }) {
  return html`<div><h3>GPU ${g.index}: ${g.name}</h3><dl class="facts">
    <${Fact} name="Memory">${bytes(g.memory_used)} of ${bytes(g.memory_total)}<//><${Fact} name="Busy">
      ${percent(g.busy)}<//>
    <${Fact} name="Temperature">${g.temperature === null || g.temperature === undefined ? '–' : `${g.temperature} °C`}
      <//><${Fact} name="Power">${g.power === null || g.power === undefined ? '–' : `${Math.round(g.power)} W`}<//>
    <${Fact} name="PCIe">${g.pcie_generation ? `generation ${g.pcie_generation}, ${g.pcie_width} lanes` : '–'} <code>
      ${g.pci}</code><//><${Fact} name="Driver">${g.driver || '–'}<//>
    ${g.reason && html`<${Fact} name="Not shown" full>${g.reason}<//>`}</dl></div>`;
}

function Disks({ disks }) {
  if (!disks.length) return html`<${Empty}>No disk was found.<//>`;
  return html`<table class="cards"><thead><tr><th scope="col">Disk</th><th scope="col">Model</th>
    <th scope="col">Kind</th><th scope="col" class="num">Size</th><th scope="col">Mounted at</th>
      <th scope="col">Firmware</th><th scope="col" class="num">Temperature</th></tr></thead>
    <tbody>${disks.map((d) => html`<tr key=${d.name}><th scope="row">
      ${d.name} ${d.read_only && html`<span class="tag warn">read-only</span>`}</th>
        <td data-label="Model" class="anywhere">${d.model || '–'}</td>
      <td data-label="Kind">${[d.kind, d.transport !== d.kind && d.transport].filter(Boolean).join(', ')
        || '–'}${d.numa >= 0 ? `, node ${d.numa}` : ''}</td><td data-label="Size" class="num">${bytes(d.size)}</td>
      <td data-label="Mounted at" class="anywhere">${d.mounts?.join(', ') || '–'}</td><td data-label="Firmware">
        ${d.firmware || '–'}</td><td data-label="Temperature" class="num">
          ${d.temperature === null || d.temperature === undefined ? '–' : `${Math.round(d.temperature)} °C`}</td>
            </tr>`)}</tbody></table>`;
}

function Diagnosis({ d }) {
  const [open, setOpen] = useState(false);
  const [fix, setFix] = useState(false);
  const { verdict = {}, findings = [] } = d.result ?? {};
  const [text, kind] = directs[verdict.direct] ?? [verdict.direct ?? 'no verdict', ''];
  const counts = order.map((level) => [level, findings.filter((f) => f.level === level).length]).filter(([, n]) => n);
  const sorted = findings.filter((f) => open || ['FAIL', 'WARN', 'UNKNOWN'].includes(f.level)).sort((a,
    b) => order.indexOf(a.level) - order.indexOf(b.level));
  return html`<article class="stack tight">
    <div class="row apart"><h3 class="anywhere">${d.path}${d.gpu >= 0 ? ` to GPU ${d.gpu}` : ''}</h3>
      <span class=${`tag ${kind}`}>${text}</span></div>
    <p>${verdict.summary}</p>
    ${verdict.cause && html`<${Note} kind=${levels[verdict.cause.level] ?? ''} title=${`First: ${verdict.cause.title}`}>
      <div>${verdict.cause.observed}</div>
      ${verdict.cause.fix_now && html`<div class="fix">Fix: ${verdict.cause.fix_now}</div>`}<//>`}
    <div class="row">${(verdict.routes ?? []).map((r) => html`<span key=${r.name} class=${`tag ${{ open: 'good',
      unproven: 'warn', blocked: 'bad' }[r.state] ?? ''}`}>${r.name}: ${r.state}</span>`)}
      ${verdict.loader && html`<span class="dim anywhere">Loads here: ${verdict.loader}</span>`}</div>
    <div class="row"><button type="button" onClick=${() => setFix(true)}>Fix script</button>
      <button type="button" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        ${open ? 'Show problems only' : 'Show every finding'}</button>
      <span class="dim">${counts.map(([level, n]) => `${n} ${level}`).join(', ')}</span></div>
    ${sorted.length > 0 && html`<table class="cards"><thead><tr><th scope="col">Level</th><th scope="col">Finding</th>
      <th scope="col">Observed</th><th scope="col">Fix</th></tr></thead>
      <tbody>${sorted.map((f, i) => html`<tr key=${f.id + f.subject + i}><td>
        <span class=${`tag ${levels[f.level] ?? ''}`}>${f.level}</span></td><th scope="row" class="anywhere">${f.title}
          <br /><small>${f.id} ${f.subject}</small></th>
        <td class="anywhere">${f.observed}${f.level !== 'PASS' && f.expected ? html`<br /><small>expected: ${f.expected}
          </small>` : ''}</td><td class="anywhere">${f.fix_now ?? ''}</td></tr>`)}</tbody></table>`}
    ${fix && html`<${FixScript} d=${d} onClose=${() => setFix(false)} />`}
  </article>`;
}

function FixScript({ d, onClose }) {
  const script = useResource((signal) => get('machine/fix', { path: d.path, gpu: d.gpu }, signal), [d.path, d.gpu]);
  return html`<${Dialog} title="Fix script" onClose=${onClose} wide>
    <p>The console changes nothing on the machine. Read the script, then run it as root.</p>
    <${Problem} error=${script.error} />
    ${script.data && html`<pre tabindex="0" aria-label="Fix script">${script.data.script}</pre><div class="actions">
      <${CopyButton} text=${script.data.script} label="Copy the script" /></div>`}
  <//>`;
}
