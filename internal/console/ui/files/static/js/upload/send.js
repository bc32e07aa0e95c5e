// SPDX-License-Identifier: Apache-2.0
// One request that carries the bytes of a file, with progress, and the rules for sending it again.

import { ApiError, errorOf, GoneError, learnFrom, whenUsable, writeHeaders } from '../api.js';

const silence = 60_000; // milliseconds without a byte after which a connection counts as cut
const tries = 8; // attempts at a request that the server answers with an error of its own

/** Sends a blob by PUT and returns the parsed reply. It throws ApiError, GoneError, or the reason of the signal. */
function put(url, blob, { headers, signal, onProgress }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    let watch = 0;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => request.abort(), silence);
    };
    const abort = () => request.abort();
    const end = (settle, value) => {
      clearTimeout(watch);
      signal.removeEventListener('abort', abort);
      settle(value);
    };
    request.upload.onprogress = (e) => {
      alive();
      onProgress(e.loaded);
    };
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) end(resolve, request.responseText
        ? JSON.parse(request.responseText) : {});
      else end(reject, errorOf(request.status, request.responseText, request.getResponseHeader('Retry-After')));
    };
    request.onerror = () => end(reject, new GoneError('The connection was cut.'));
    request.onabort = () => end(reject, signal.aborted ? signal.reason : new GoneError('No bytes moved for a minute.'));
    request.open('PUT', url);
    for (const [name, value] of Object.entries({ ...writeHeaders(), ...headers })) request.setRequestHeader(name,
      value);
    signal.addEventListener('abort', abort, { once: true });
    alive();
    request.send(blob);
  });
}

/** Throws if the browser can no longer read the file, for example because it was changed or removed. */
async function readable(blob) {
  try {
    await blob.slice(0, 1).arrayBuffer();
  } catch {
    throw new ApiError(0, { code: 'FileChanged', message: 'The browser can no longer read the file.',
      fix: 'Choose the file again.' });
  }
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

const worthIt = (error) => error instanceof GoneError || error.status === 401 || error.status === 429
  || error.status >= 500;

/**
 * Runs a step again until it succeeds, as long as its failure can pass: a cut connection, an ended session, a server
 * that is overloaded or not ready. It waits until the server answers and a user is logged in.
 */
export async function patiently(step, signal, onWait = () => {}) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await step();
    } catch (error) {
      if (signal.aborted || !worthIt(error)) throw error;
      const answered = error.status >= 500 || error.status === 429;
      if (answered && attempt >= tries) throw error;
      learnFrom(error);
      onWait(error);
      await pause(error.retryAfter * 1000 || Math.min(250 * 2 ** attempt, 8000), signal);
      await whenUsable(signal);
    }
  }
}

/** Sends a blob until it has arrived. onProgress gets the bytes of the current attempt. */
export function sendBlob(url, blob, { headers = {}, signal, onProgress, onWait }) {
  return patiently(async () => {
    await readable(blob);
    onProgress(0);
    return put(url, blob, { headers, signal, onProgress });
  }, signal, onWait);
}
