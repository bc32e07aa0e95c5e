# SPDX-License-Identifier: Apache-2.0
"""Fails where auditwheel finds that a wheel needs more than its tag says: audit.py WHEEL PLATFORM"""

from __future__ import annotations

import re
import subprocess
import sys


def glibc(platform: str) -> tuple[int, int]:
    """The glibc version in a tag such as manylinux_2_17_x86_64."""
    found = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    if found is None:
        raise SystemExit(f"release: {platform} is no manylinux tag with a glibc version")
    return int(found[1]), int(found[2])


def main(wheel: str, platform: str) -> None:
    """Compare the tag that auditwheel finds with the tag of the wheel."""
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    found = re.search(r'following platform tag:\s+"(manylinux_\w+)"', shown.stdout)
    if shown.returncode != 0 or found is None:
        raise SystemExit(f"release: auditwheel finds no manylinux tag for {wheel}:\n{shown.stdout}")
    if glibc(found[1]) > glibc(platform):
        raise SystemExit(f"release: {wheel} needs {found[1]}, more than its tag {platform} says:\n{shown.stdout}")
    print(f"release: {wheel}: auditwheel finds {found[1]}, the tag is {platform}")


main(sys.argv[1], sys.argv[2])
