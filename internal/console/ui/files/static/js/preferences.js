// SPDX-License-Identifier: Apache-2.0
// What the user chose for this browser: the colour scheme, and whether single keys are commands. Nothing of it is
// secret.

import { observable } from './observable.js';

function read(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a browser without storage uses the defaults
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // without storage the choice lasts until the page is closed
  }
}

const schemes = ['system', 'light', 'dark'];

/** The colour scheme: that of the system, or light or dark by choice. */
export const theme = observable(schemes.includes(read('nebulaio-theme')) ? read('nebulaio-theme') : 'system');

/** Whether single keys are commands of the console. */
export const keysOn = observable(read('nebulaio-keys') !== 'off');

function paint() {
  if (theme.get() === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.get();
}

/** Switches to the next colour scheme. */
export function nextTheme() {
  theme.set(schemes[(schemes.indexOf(theme.get()) + 1) % schemes.length]);
  keep('nebulaio-theme', theme.get());
  paint();
}

/** Turns the commands of single keys on or off: they disturb people who speak their input. */
export function setKeys(on) {
  keysOn.set(on);
  keep('nebulaio-keys', on ? 'on' : 'off');
}

paint();
