#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the native programs: run.sh FOLDER MODEL, on $DEVICE (host or cuda:N). All programs run, whatever fails.
set -uo pipefail
. "$(dirname "$0")/steps.sh"
folder=$1 model=$2
device=${DEVICE:-host}
for language in c cpp; do
	step load_$language "$folder/load_$language" "$model" "$device"
	if step save_$language "$folder/save_$language" "$work" "$device"; then
		step load_saved_$language "$folder/load_$language" "$work/$language.safetensors" "$device"
	else
		skip load_saved_$language "save_$language failed"
	fi
	step gather_$language "$folder/gather_$language" "$work" "$device"
	step file_$language "$folder/file_$language" "$work" "$device"
	step data_$language "$folder/data_$language" "$work" "$device"
done
lines=1 # their last line says what they have done; the others are for readers of the examples
step example_load "$folder/example_load" "$model" "$device"
step example_save "$folder/example_save" "$work/example.safetensors" "$device"
step example_file_async "$folder/example_file_async" "$work/example.bytes" "$device"
summary
