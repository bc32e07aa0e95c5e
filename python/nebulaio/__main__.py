# SPDX-License-Identifier: Apache-2.0
"""``python -m nebulaio`` prints what is installed and which devices it finds."""

from __future__ import annotations

import argparse
import json
import sys

import nebulaio


def main(arguments: list[str] | None = None) -> int:
    """Print the version, the library's path and the devices. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nebulaio",
        description="Print what is installed and which devices this machine has.",
        epilog="To compare loaders: python -m nebulaio.compare --help",
    )
    parser.parse_args(arguments)
    print(f"package  {nebulaio.__version__}")
    try:
        print(f"library  {nebulaio.version()}  {nebulaio.library_path()}")
        print(f"devices  {json.dumps(nebulaio.devices(), indent=2)}")
    except nebulaio.errors.NebulaioError as error:
        print(f"nebulaio: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
