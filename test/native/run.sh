#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the native programs: run.sh FOLDER MODEL, on $DEVICE (host or cuda:N).
set -euo pipefail
folder=$1 model=$2
device=${DEVICE:-host}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nebulaio-native.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$folder/load_c" "$model" "$device"
"$folder/load_cpp" "$model" "$device" "$work"
"$folder/example_load" "$model" "$device" >"$work/example.txt" || { cat "$work/example.txt"; exit 1; }
echo "example: $(tail -n 1 "$work/example.txt")"
