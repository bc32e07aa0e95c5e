#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the native programs: run.sh FOLDER MODEL, on $DEVICE (host or cuda:N).
set -euo pipefail
folder=$1 model=$2
device=${DEVICE:-host}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nebulaio-native.XXXXXX")
trap 'rm -rf "$work"' EXIT
for language in c cpp; do
	"$folder/load_$language" "$model" "$device"
	"$folder/save_$language" "$work" "$device"
	"$folder/load_$language" "$work/$language.safetensors" "$device"
	"$folder/gather_$language" "$work" "$device"
	"$folder/file_$language" "$work" "$device"
	"$folder/data_$language" "$work" "$device"
done
example() {
	"$folder/example_$1" "${@:2}" "$device" >"$work/example.txt" || { cat "$work/example.txt"; exit 1; }
	echo "example $1: $(tail -n 1 "$work/example.txt")"
}
example load "$model"
example save "$work/example.safetensors"
example file_async "$work/example.bytes"
