#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs the benchmarks on a GPU machine: bench/run.sh [options of run.py].
#
# cuFile, which the method torch_gds uses, refuses files on a disk that udev has
# no entry for ("udev property not found: ID_FS_USAGE"). Small virtual machines
# run without udev, so the entry is made here, as root, and removed afterwards.
#
#   WORKDIR   folder for the model files, default /var/tmp/nebulaio-bench
#   PYTHON    the interpreter, default python3
set -eu

here=$(cd "$(dirname "$0")" && pwd)
WORKDIR=${WORKDIR:-/var/tmp/nebulaio-bench}
mkdir -p "$WORKDIR"

number=$(findmnt -n -o MAJ:MIN -T "$WORKDIR" 2>/dev/null | tr -d ' ' | head -n 1 || true)
kind=$(findmnt -n -o FSTYPE -T "$WORKDIR" 2>/dev/null | head -n 1 || true)
entry=/run/udev/data/b$number
if [ -n "$number" ] && [ -n "$kind" ] && [ ! -e "$entry" ]; then
	if mkdir -p /run/udev/data 2>/dev/null && { [ -e /run/udev/control ] || : >/run/udev/control; } &&
		printf 'E:ID_FS_TYPE=%s\nE:ID_FS_USAGE=filesystem\n' "$kind" >"$entry" 2>/dev/null; then
		trap 'rm -f "$entry"' EXIT INT TERM
	else
		echo "run.sh: cannot write $entry (not root?); torch_gds will say why it fails" >&2
	fi
fi

PYTHONUNBUFFERED=1 "${PYTHON:-python3}" "$here/run.py" --workdir "$WORKDIR" "$@"
