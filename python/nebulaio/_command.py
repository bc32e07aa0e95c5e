# SPDX-License-Identifier: Apache-2.0
"""The command `nebulaio` of an installed package, which runs the program inside the package."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Replace this process by the bundled program. Returns 1 if that fails."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "nebulaio")
    try:
        os.execv(program, ["nebulaio", *sys.argv[1:]])
    except OSError as cause:
        print(
            f"nebulaio: run {program}: {cause.strerror} (fix: reinstall the package from a wheel for this machine)",
            file=sys.stderr,
        )
    return 1
