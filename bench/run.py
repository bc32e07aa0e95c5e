#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks; see docs/benchmarks/README.md and `run.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from nbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
