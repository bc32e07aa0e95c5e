#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares checkpoints of torch; see `checkpoint.py --help` and bench/checkpoints/run.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from checkpoints.run import main

if __name__ == "__main__":
    sys.exit(main())
