// SPDX-License-Identifier: Apache-2.0
// The editor of a bucket's policy. The server checks the text while it is typed, before anything is changed.

import { html, useEffect, useRef, useState } from '../html.js';
import { bucketPath, call } from '../api.js';
import { Note, Problem } from '../parts/basics.js';
import { FormDialog } from '../parts/dialog.js';
import { say } from '../parts/toasts.js';

const pretty = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // the server accepted it once: it is shown as it is
  }
};

/** Returns policies to begin with. */
const samples = (bucket) => [
  ['Anybody may read', {
    Version: '2012-10-17',
    Statement: [{ Sid: 'PublicRead', Effect: 'Allow', Principal: '*', Action: ['s3:GetObject'],
      Resource: [`arn:aws:s3:::${bucket}/*`] }],
  }],
  ['One user may read', {
    Version: '2012-10-17',
    Statement: [
      { Sid: 'List', Effect: 'Allow', Principal: { AWS: ['ACCESS-KEY'] }, Action: ['s3:ListBucket'],
        Resource: [`arn:aws:s3:::${bucket}`] },
      { Sid: 'Read', Effect: 'Allow', Principal: { AWS: ['ACCESS-KEY'] }, Action: ['s3:GetObject'],
        Resource: [`arn:aws:s3:::${bucket}/*`] },
    ],
  }],
  ['Nobody may delete', {
    Version: '2012-10-17',
    Statement: [{ Sid: 'Keep', Effect: 'Deny', Principal: '*', Action: ['s3:DeleteObject', 's3:DeleteObjectVersion'],
      Resource: [`arn:aws:s3:::${bucket}/*`] }],
  }],
];

/** PolicyEditor shows, checks and changes the policy of a bucket. */
export function PolicyEditor({ bucket, reload }) {
  const stored = bucket.policy ? pretty(bucket.policy) : '';
  const [text, setText] = useState(stored);
  const [check, setCheck] = useState(null); // what the server said about the text
  const [error, setError] = useState(null);
  const [removing, setRemoving] = useState(false);
  const area = useRef(null);
  const path = bucketPath(bucket.name, 'policy');

  useEffect(() => setText(stored), [stored]);
  useEffect(() => {
    setCheck(null);
    if (!text.trim() || text === stored) return undefined;
    const timer = setTimeout(async () => {
      try {
        setCheck(await call('POST', `${path}/validate`, { json: { policy: text } }));
      } catch (cause) {
        setCheck({ valid: false, problems: [{ message: cause.message }] });
      }
    }, 400);
    return () => clearTimeout(timer);
  }, [text, stored]);

  const save = async (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    setError(null);
    try {
      await call('PUT', path, { json: { policy: text } });
      say('The policy is in force.');
      reload();
    } catch (cause) {
      setError(cause);
    }
  };
  const show = (p) => {
    if (!p.line) return;
    const before = text.split('\n').slice(0, p.line - 1).join('\n').length + (p.line > 1 ? 1 : 0);
    const at = before + Math.max(0, (p.column || 1) - 1);
    area.current.focus();
    area.current.setSelectionRange(at, at + 1);
  };
  const problems = check?.valid === false ? check.problems ?? [] : [];

  return html`<form class="stack" onSubmit=${save}>
    <p class="dim">The policy says who may do what with this bucket, beside its owner and administrators. It is JSON in
      the form of S3.</p>
    <div class="row"><span class="dim">Begin with</span>${samples(bucket.name).map(([name, value]) => html`<button
      type="button" key=${name} onClick=${() => setText(JSON.stringify(value, null, 2))}>${name}</button>`)}</div>
    <div class="field"><label for="policy">Policy of ${bucket.name}</label>
      <textarea id="policy" ref=${area} rows="18" spellcheck=${false} autocapitalize="none"
        aria-describedby="policy-check" aria-invalid=${problems.length ? 'true' : undefined}
        value=${text} onInput=${(e) => setText(e.currentTarget.value)}
          placeholder="No policy: only the owner and administrators have access."></textarea></div>
    <div id="policy-check" role="status" aria-live="polite">
      ${check?.valid && html`<${Note} kind="good">The policy is valid.<//>`}
      ${problems.length > 0 && html`<${Note} kind="bad" title="The policy is not valid."><ul class="plain">
        ${problems.map((p, i) => html`<li key=${i}>
        ${p.line > 0 && html`<button type="button" class="link"
          onClick=${() => show(p)}>Line ${p.line}, column ${p.column}</button>: `}${p.message}</li>`)}</ul><//>`}
    </div>
    <${Problem} error=${error} what="The policy was not changed." />
    <div class="row"><button type="submit" class="main" aria-disabled=${!text.trim() || text === stored
      || problems.length > 0}>Save the policy</button>
      <button type="button" onClick=${() => setText(stored)} aria-disabled=${text === stored}>Discard changes</button>
      <button type="button" onClick=${() => setText(pretty(text))}>Format</button><span class="grow"></span>
      ${bucket.policy && html`<button type="button" class="danger"
        onClick=${() => setRemoving(true)}>Remove the policy</button>`}</div>
    ${removing && html`<${FormDialog} title="Remove the policy" action="Remove" danger
      onClose=${() => setRemoving(false)} onSubmit=${async () => {
      await call('DELETE', path);
      say('The policy is removed.');
      reload();
    }}><p>Only the owner and administrators keep access to ${bucket.name}.</p><//>`}
  </form>`;
}
