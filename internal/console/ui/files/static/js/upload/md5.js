// SPDX-License-Identifier: Apache-2.0
// MD5 by RFC 1321. It proves that a part which the server already has is the same as that of the file: the ETag of a
// part is its MD5, and browsers offer no MD5 of their own. MD5 protects against accidents here, not against attackers.

const shifts = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];
const sines = Int32Array.from({ length: 64 }, (_, i) => Math.floor(Math.abs(Math.sin(i + 1)) * 2 ** 32));

/** Adds the blocks of 64 bytes in words[0..] to the state. */
function blocks(state, words) {
  let [a0, b0, c0, d0] = state;
  for (let at = 0; at + 16 <= words.length; at += 16) {
    let a = a0;
    let b = b0;
    let c = c0;
    let d = d0;
    for (let i = 0; i < 64; i++) {
      let f;
      let g;
      if (i < 16) {
        f = (b & c) | (~b & d);
        g = i;
      } else if (i < 32) {
        f = (d & b) | (~d & c);
        g = (5 * i + 1) & 15;
      } else if (i < 48) {
        f = b ^ c ^ d;
        g = (3 * i + 5) & 15;
      } else {
        f = c ^ (b | ~d);
        g = (7 * i) & 15;
      }
      f = (f + a + sines[i] + words[at + g]) | 0;
      const s = shifts[((i >> 4) << 2) | (i & 3)];
      a = d;
      d = c;
      c = b;
      b = (b + ((f << s) | (f >>> (32 - s)))) | 0;
    }
    a0 = (a0 + a) | 0;
    b0 = (b0 + b) | 0;
    c0 = (c0 + c) | 0;
    d0 = (d0 + d) | 0;
  }
  return [a0, b0, c0, d0];
}

const slice = 1 << 20; // bytes between two pauses, so that the page stays responsive

/** Returns the MD5 of a blob in hexadecimal digits. */
export async function md5(blob) {
  let state = [0x67452301, 0xefcdab89 | 0, 0x98badcfe | 0, 0x10325476];
  const whole = blob.size - (blob.size % 64);
  for (let at = 0; at < whole; at += slice) {
    const buffer = await blob.slice(at, Math.min(at + slice, whole)).arrayBuffer();
    state = blocks(state, new Int32Array(buffer));
    await new Promise((resolve) => setTimeout(resolve));
  }
  const rest = new Uint8Array(await blob.slice(whole).arrayBuffer());
  const tail = new Uint8Array(rest.length < 56 ? 64 : 128);
  tail.set(rest);
  tail[rest.length] = 0x80;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, (blob.size * 8) >>> 0, true);
  view.setUint32(tail.length - 4, Math.floor(blob.size / 2 ** 29), true);
  state = blocks(state, new Int32Array(tail.buffer));
  const out = new DataView(new ArrayBuffer(16));
  state.forEach((word, i) => out.setInt32(i * 4, word, true));
  return [...new Uint8Array(out.buffer)].map((b) => b.toString(16).padStart(2, '0')).join('');
}
