#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares transfer clients; see `transfers.py --help` and bench/transfers/run.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from transfers.run import main

if __name__ == "__main__":
    sys.exit(main())
