// SPDX-License-Identifier: Apache-2.0
//
// Looks at a page as people will: takes pictures of an HTML file at several
// widths, light and dark, and on paper, and fails when a page scrolls sideways,
// breaks its own policy, asks for anything from the network, or has a plot whose
// labels lie on each other, on a limit's line or outside. Not part of CI: it
// needs a browser.
//
//   npm install playwright            (anywhere; NODE_PATH does not matter to
//                                      modules, so run it from that folder or
//                                      give PLAYWRIGHT=/path/node_modules/playwright)
//   node test/browser/shot.mjs page.html [out-folder] [widths: 375,1440,print]
//
// CHROMIUM=/usr/bin/chromium uses a browser that is there already.

import { basename, join, resolve } from 'node:path';
import { mkdirSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [file, out = '.', widths = '375,1440'] = process.argv.slice(2);
if (!file) {
  console.error('usage: node shot.mjs page.html [out-folder] [widths]');
  process.exit(2);
}
const where = process.env.PLAYWRIGHT;
const { chromium } = (await import(where ? pathToFileURL(join(resolve(where), 'index.mjs')).href : 'playwright'));

mkdirSync(out, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || undefined });
let bad = 0;
const complain = (text) => { bad++; console.error('BAD  ' + text); };

for (const size of widths.split(',')) {
  const paper = size === 'print';
  const width = paper ? 720 : Number(size); // A4 less its margins
  for (const colorScheme of paper ? ['light'] : ['light', 'dark']) {
    const name = `${basename(file, '.html')}-${size}-${colorScheme}`;
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme, deviceScaleFactor: width < 600 ? 2 : 1 });
    page.on('console', (m) => { if (m.type() === 'error') complain(`${name}: ${m.text()}`); });
    page.on('request', (r) => { if (!r.url().startsWith('file:')) complain(`${name}: asks for ${r.url()}`); });
    if (paper) await page.emulateMedia({ media: 'print' });
    await page.goto(pathToFileURL(resolve(file)).href);
    const scroll = await page.evaluate(() => ({ page: document.documentElement.scrollWidth, window: innerWidth, high: document.documentElement.scrollHeight }));
    if (scroll.page > scroll.window) complain(`${name}: ${scroll.page} px wide in a window of ${scroll.window}`);
    const clash = await page.evaluate(overlaps);
    for (const c of clash) complain(`${name}: ${c}`);
    await page.screenshot({ path: join(out, name + '.png'), fullPage: true });
    console.log(`${name}.png  ${scroll.page} px wide of ${scroll.window}, ${scroll.high} px high`);
    await page.close();
  }
}
await browser.close();
process.exit(bad ? 1 : 0);

// overlaps finds labels of a plot that lie on each other, on the line of a limit
// or outside of it.
function overlaps() {
  const found = [];
  for (const svg of document.querySelectorAll('svg.plot')) {
    const box = svg.getBoundingClientRect();
    if (box.width === 0) continue;
    const texts = [...svg.querySelectorAll('text')].map((t) => ({ t: t.textContent, r: t.getBoundingClientRect() })).filter((x) => x.r.width > 0);
    const lines = [...svg.querySelectorAll('line.limit')].map((l) => l.getBoundingClientRect());
    const title = svg.querySelector('title').textContent;
    texts.forEach((a, i) => {
      if (a.r.left < box.left - 2 || a.r.right > box.right + 2) found.push(`"${a.t}" leaves the plot "${title}"`);
      if (lines.some((l) => Math.min(a.r.right, l.right) - Math.max(a.r.left, l.left) >= 0 && Math.min(a.r.bottom, l.bottom) - Math.max(a.r.top, l.top) > 2)) {
        found.push(`a limit's line crosses "${a.t}" in "${title}"`);
      }
      for (const b of texts.slice(i + 1)) {
        const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
        const h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
        if (w > 1 && h > 3) found.push(`"${a.t}" lies on "${b.t}" in "${title}"`);
      }
    });
  }
  return found;
}
