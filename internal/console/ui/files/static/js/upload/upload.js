// SPDX-License-Identifier: Apache-2.0
// The upload of one file: small files in one request, larger ones in parts that are sent again one by one if the
// connection is cut.

import { ApiError, address, bucketPath, call } from '../api.js';
import { forget, guessPartSize, identity, partsOnServer, recall, remember, sizeOfPart } from './resume.js';
import { patiently, sendBlob } from './send.js';

const whole = 16 << 20; // up to this size a file is sent in one request
const lanes = 3; // parts of one file on their way at the same time

/** Upload sends one file. change is called whenever what it shows has changed. */
export class Upload {
  constructor(bucket, { file, key, upload }, change) {
    Object.assign(this, { bucket, file, key, change, given: upload });
    this.state = 'waiting'; // waiting, checking, sending, retrying, paused, done, failed, cancelled
    this.moving = new Map(); // bytes on their way, by part
    this.arrived = 0;
    this.resumed = 0; // bytes that the server had already
    this.error = null;
    this.stop = new AbortController();
  }

  get sent() {
    let sum = this.arrived;
    for (const n of this.moving.values()) sum += n;
    return Math.min(sum, this.file.size);
  }

  get active() { return ['waiting', 'checking', 'sending', 'retrying'].includes(this.state); }

  set(state) {
    this.state = state;
    this.change();
  }

  /** Sends the file. It returns when the upload is done, failed, paused or cancelled, and never throws. */
  async run() {
    this.stop = new AbortController();
    this.moving.clear();
    this.arrived = 0;
    this.error = null;
    try {
      this.set('sending');
      if (this.file.size <= whole && !this.given) await this.sendWhole();
      else await this.sendParts();
      this.arrived = this.file.size;
      this.moving.clear();
      this.set('done');
    } catch (error) {
      this.moving.clear();
      if (this.state === 'paused' || this.state === 'cancelled') return;
      this.error = error;
      this.set('failed');
    }
  }

  options(number) {
    return {
      signal: this.stop.signal,
      headers: { 'Content-Type': this.file.type || 'application/octet-stream' },
      onProgress: (n) => {
        this.moving.set(number, n);
        if (this.state === 'retrying') this.state = 'sending';
        this.change();
      },
      onWait: () => {
        this.moving.delete(number);
        this.set('retrying');
      },
    };
  }

  patiently(step) {
    return patiently(step, this.stop.signal, () => this.set('retrying'));
  }

  sendWhole() {
    return sendBlob(address(bucketPath(this.bucket, 'content'), { key: this.key }), this.file, this.options(1));
  }

  /** Finds the upload to go on with, or begins a new one. */
  async begin() {
    const id = identity(this.bucket, this.key, this.file);
    const known = recall(id);
    const upload = this.given ?? known?.upload;
    const { signal } = this.stop;
    if (upload) {
      try {
        const partSize = known?.upload === upload ? known.part_size
          : await this.patiently(() => guessPartSize(this.bucket, this.key, upload, signal));
        if (partSize > 0) {
          this.set('checking');
          const have = await this.patiently(() => partsOnServer({
            bucket: this.bucket, key: this.key, upload, partSize, file: this.file, ours: known?.upload === upload,
              signal,
          }));
          this.set('sending');
          this.upload = upload;
          return { partSize, have };
        }
      } catch (error) {
        if (error.status !== 404) throw error; // the upload is gone: a new one begins
      }
      this.given = undefined;
      forget(id);
    }
    const made = await this.patiently(() => call('POST', bucketPath(this.bucket, 'uploads'), {
      json: { key: this.key, size: this.file.size, type: this.file.type || 'application/octet-stream', metadata: {} },
        signal,
    }));
    this.upload = made.upload;
    remember(id, made.upload, made.part_size);
    return { partSize: made.part_size, have: new Map() };
  }

  async sendParts() {
    const { partSize, have } = await this.begin();
    const total = Math.max(1, Math.ceil(this.file.size / partSize));
    const missing = [];
    for (let n = 1; n <= total; n++) {
      if (have.has(n)) this.arrived += sizeOfPart(this.file.size, partSize, n);
      else missing.push(n);
    }
    this.resumed = this.arrived;
    this.change();
    const lane = async () => {
      for (let n = missing.shift(); n !== undefined; n = missing.shift()) {
        const from = (n - 1) * partSize;
        const blob = this.file.slice(from, from + sizeOfPart(this.file.size, partSize, n));
        const url = address(bucketPath(this.bucket, 'part'), { key: this.key, upload: this.upload, number: n });
        const reply = await sendBlob(url, blob, this.options(n));
        this.moving.delete(n);
        this.arrived += blob.size;
        have.set(n, reply.etag);
        this.change();
      }
    };
    try {
      await Promise.all(Array.from({ length: lanes }, lane));
    } catch (error) {
      if (!this.stop.signal.aborted) this.stop.abort(error); // the other lanes end, too
      throw error;
    }
    const parts = [...have].sort(([a], [b]) => a - b).map(([number, etag]) => ({ number, etag }));
    await this.patiently(() => this.complete(parts));
    forget(identity(this.bucket, this.key, this.file));
  }

  /** Completes the upload. If the reply to an earlier attempt was lost, the object is there and the upload is gone. */
  async complete(parts) {
    try {
      await call('POST', bucketPath(this.bucket, 'complete'), { json: { key: this.key, upload: this.upload, parts },
        signal: this.stop.signal });
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 'NoSuchUpload' || !this.asked) throw error;
      const object = await call('GET', bucketPath(this.bucket, 'object'), { query: { key: this.key },
        signal: this.stop.signal });
      if (object.size !== this.file.size) throw error;
    } finally {
      this.asked = true;
    }
  }

  /** Stops sending. run goes on with what is missing. */
  pause() {
    this.state = 'paused';
    this.stop.abort(new DOMException('paused', 'AbortError'));
    this.change();
  }

  /** Stops, and removes the parts that the server has. */
  async cancel() {
    const { upload } = this;
    this.state = 'cancelled';
    this.stop.abort(new DOMException('cancelled', 'AbortError'));
    this.change();
    forget(identity(this.bucket, this.key, this.file));
    if (upload) await call('DELETE', bucketPath(this.bucket, 'upload'), { query: { key: this.key, upload } });
  }
}
