// SPDX-License-Identifier: Apache-2.0
// Numbers, sizes, rates and times as text. Sizes have binary units and rates decimal ones, as the command prints them.

export const NONE = '–';
const known = (n) => typeof n === 'number' && Number.isFinite(n);

/** Formats a count with separators: 12,345. */
export const count = (n) => (known(n) ? n.toLocaleString('en-US') : NONE);

/** Formats a size: 1.40 GiB. */
export function bytes(n) {
  if (!known(n)) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = 0;
  let value = n;
  while (Math.abs(value) >= 1024 && i < units.length - 1) {
    value /= 1024;
    i++;
  }
  return i === 0 ? `${value} B` : `${digits(value)} ${units[i]}`;
}

/** Formats a rate in bytes per second: 52.1 GB/s. */
export function rate(n) {
  if (!known(n)) return NONE;
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
  let i = 0;
  let value = n;
  while (value >= 1000 && i < units.length - 1) {
    value /= 1000;
    i++;
  }
  return `${i === 0 ? Math.round(value) : digits(value)} ${units[i]}`;
}

/** Formats a number with three significant digits. */
export function digits(value) {
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(size >= 10 ? 1 : 2);
}

/** Formats a share of 1: 12.5 %. */
export const percent = (share) => (known(share) ? `${digits(share * 100).replace(/\.0+$/, '')} %` : NONE);

/** Formats a duration in seconds: 27.4 ms, 3 min 20 s, 4 h 5 min, 12 days. */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds === 0) return '0 s';
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 60) return `${digits(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} days`;
}

const two = (n) => String(n).padStart(2, '0');

/** Formats a time of the server in the zone of the browser: 2026-11-17 11:09:32. */
export function time(text) {
  const t = new Date(text);
  if (!text || Number.isNaN(t.getTime())) return NONE;
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${clock(t)}`;
}

/** Formats the time of day. */
export const clock = (t) => `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;

/** Formats how long ago a time was: 5 min ago. */
export function ago(text, now = Date.now()) {
  const t = Date.parse(text);
  if (Number.isNaN(t)) return NONE;
  const seconds = Math.max(0, (now - t) / 1000);
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

/** Returns "1 object" or "2 objects". */
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;
