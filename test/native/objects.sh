#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the native programs that need a server: objects.sh FOLDER MODEL, on $DEVICE,
# with the server that NEBULAIO_ENDPOINT and its keys name (python/tests/serving.py
# starts one). CUFILE is a folder with the libcufile.so.0 for programs that call it
# themselves; if it is empty, they use that of the system.
set -euo pipefail
folder=$1 model=$2
device=${DEVICE:-host}
"$folder/objects_c" "$device"
"$folder/objects_cpp" "$model" "$device"
export LD_LIBRARY_PATH=${CUFILE:+$CUFILE:}${LD_LIBRARY_PATH:-}
if [ -z "${CUFILE:-}" ] && ldd "$folder/gpudirect_cpp" | grep 'libcufile.so.0 => not found' >/dev/null; then
	echo "gpudirect: NOT RUN, the system's loader finds no libcufile.so.0; name its folder in CUFILE"
	exit 0
fi
"$folder/gpudirect_cpp" "$device"
"$folder/handles_cpp" "$device"
