#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders results.md and plot.svg again from one or several results.json files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from nbench.report import main

if __name__ == "__main__":
    sys.exit(main())
