// SPDX-License-Identifier: Apache-2.0
// Requests to the server's API, the session, and what is known about the connection to the server.

import { observable } from './observable.js';

export const API = '/console/api/';

/** The session as the server describes it; null while nobody is logged in, undefined until the first answer. */
export const session = observable(undefined);

/** Whether the server answers. epoch grows each time that it answers again, so that pages load anew. */
export const connection = observable({ up: true, epoch: 0, reason: '' });

/** ApiError is a refusal of the server: its code, its message and the fix that it proposes. */
export class ApiError extends Error {
  constructor(status, { code = '', message = '', fix = '' } = {}, retryAfter = 0) {
    super(message || `the server answered with status ${status}`);
    Object.assign(this, { name: 'ApiError', status, code, fix, retryAfter });
  }
}

/** GoneError means that no answer came: the server is gone or the connection was cut. */
export class GoneError extends Error {
  constructor(message = 'The server does not answer.') {
    super(message);
    this.name = 'GoneError';
    this.fix = 'The console tries again by itself and goes on when the server is back.';
  }
}

/** Returns the address of an API path with its query. Empty and undefined values are left out. */
export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') search.set(name, value);
  }
  const text = search.toString();
  return API + path + (text ? '?' + text : '');
}

/** Returns a bucket's API path. */
export const bucketPath = (bucket, rest = '') => `buckets/${encodeURIComponent(bucket)}${rest ? '/' + rest : ''}`;

/** Returns the headers that every request other than GET needs. */
export function writeHeaders() {
  return { 'X-CSRF-Token': session.get()?.csrf ?? '' };
}

/** Returns the error in a reply of the server. */
export function errorOf(status, text, retryAfter) {
  let error = {};
  try {
    error = JSON.parse(text).error ?? {};
  } catch {
    // a reply that is no JSON has no more to tell than its status
  }
  return new ApiError(status, error, Number(retryAfter) || 0);
}

/** Records what an error says about the session and the connection. */
export function learnFrom(error) {
  if (error instanceof GoneError) lost(error.message);
  else if (error.status === 401 && error.code !== 'BadKeys') session.set(null);
  else if (error.status === 503 && error.code === 'NotReady') lost(error.message);
}

/** Sends a request and returns the parsed reply, or undefined if it is empty. It throws ApiError or GoneError. */
export async function call(method, path, { query, json, signal } = {}) {
  const headers = method === 'GET' ? {} : writeHeaders();
  if (json !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  let text;
  try {
    response = await fetch(address(path, query), {
      method, headers, signal, body: json === undefined ? undefined : JSON.stringify(json), redirect: 'error',
    });
    text = await response.text();
  } catch (cause) {
    if (signal?.aborted) throw cause;
    const error = new GoneError();
    learnFrom(error);
    throw error;
  }
  if (!response.ok) {
    const error = errorOf(response.status, text, response.headers.get('Retry-After'));
    learnFrom(error);
    throw error;
  }
  return text ? JSON.parse(text) : undefined;
}

export const get = (path, query, signal) => call('GET', path, { query, signal });

let waiting = false;

/** Notes that the server does not answer, and asks again until it does. */
export function lost(reason) {
  if (waiting) return;
  waiting = true;
  connection.set({ ...connection.get(), up: false, reason });
  askAgain(500);
}

async function askAgain(pause) {
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, pause);
    addEventListener('online', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
  try {
    const response = await fetch(API + 'session', { signal: AbortSignal.timeout(10_000) });
    const text = await response.text();
    if (response.status >= 500) throw errorOf(response.status, text);
    session.set(response.ok ? JSON.parse(text) : null);
    waiting = false;
    const { epoch } = connection.get();
    connection.set({ up: true, epoch: epoch + 1, reason: '' });
  } catch (error) {
    if (error instanceof ApiError) connection.set({ ...connection.get(), reason: error.message });
    askAgain(Math.min(pause * 2, 8_000));
  }
}

/** Resolves when the server answers and a user is logged in. It rejects when the signal is aborted. */
export function whenUsable(signal) {
  const usable = () => connection.get().up && session.get();
  return new Promise((resolve, reject) => {
    const stops = [];
    const end = (settle, value) => {
      for (const stop of stops) stop();
      settle(value);
    };
    const look = () => usable() && end(resolve);
    stops.push(connection.subscribe(look), session.subscribe(look));
    const abort = () => end(reject, signal.reason);
    signal?.addEventListener('abort', abort, { once: true });
    stops.push(() => signal?.removeEventListener('abort', abort));
    if (signal?.aborted) abort();
    else look();
  });
}

// A browser that never logged in has no session to ask for. The hint is no secret: the cookie is what counts.
const hint = 'nebulaio-session';
const hinted = () => {
  try {
    return localStorage.getItem(hint) !== null;
  } catch {
    return true; // without storage the server is asked each time
  }
};
session.subscribe((now) => {
  try {
    if (now) localStorage.setItem(hint, '1');
    else localStorage.removeItem(hint);
  } catch {
    // the hint only saves a request
  }
});

/** Asks the server who is logged in. */
export async function askSession() {
  if (session.get() === undefined && !hinted()) {
    session.set(null);
    return;
  }
  try {
    session.set(await get('session'));
  } catch (error) {
    if (error instanceof ApiError && session.get() === undefined && error.status !== 503) session.set(null);
    if (error instanceof ApiError && error.status !== 401) throw error;
  }
}

/** Logs in. It throws ApiError if the server refuses the keys. */
export async function logIn(accessKey, secretKey) {
  session.set(await call('POST', 'session', { json: { access_key: accessKey, secret_key: secretKey } }));
}

/** Logs out. The page forgets the session even if the server does not answer. */
export async function logOut() {
  try {
    await call('DELETE', 'session');
  } finally {
    session.set(null);
  }
}
