// SPDX-License-Identifier: Apache-2.0
// The one place that binds htm's templates to Preact. Values in a template are always text or properties, never HTML.

import { h, render, Fragment, createContext } from '../vendor/preact.js';
import {
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId, useErrorBoundary,
} from '../vendor/hooks.js';
import htm from '../vendor/htm.js';

export const html = htm.bind(h);
export {
  h, render, Fragment, createContext,
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId, useErrorBoundary,
};
