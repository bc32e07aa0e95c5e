#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the native programs that need a server: objects.sh FOLDER MODEL, on $DEVICE,
# with the server that NEBULAIO_ENDPOINT and its keys name (python/tests/serving.py
# starts one). CUFILE is a folder with the libcufile.so.0 for programs that call it
# themselves; if it is empty, they use that of the system. All programs run, whatever fails.
set -uo pipefail
. "$(dirname "$0")/steps.sh"
folder=$1 model=$2
device=${DEVICE:-host}

# refused FOLDER prints why the system's libcufile registers no file of a folder, and a fix. It returns 1 if libcufile
# registers them. Without udev's entry of the disk, libcufile registers no file, even if it only copies through host
# memory. The finding ct.udev of `nebulaio doctor` looks for the same two properties.
refused() {
	local device number entry kind
	device=$(stat -c %d "$1")
	number=$((device >> 8 & 0xfff)):$((device & 0xff | device >> 12 & 0xfff00))
	case $number in
	0:*)
		echo "libcufile registers no file of $1, which is not on a local disk (fix: TMPDIR=FOLDER on ext4 or XFS)"
		return 0
		;;
	esac
	entry=${UDEV_DATA:-/run/udev/data}/b$number
	if grep -s '^E:ID_FS_USAGE=filesystem' "$entry" >/dev/null && grep -s '^E:ID_FS_TYPE=' "$entry" >/dev/null; then
		return 1
	fi
	kind=$(sed -n "s/^[^ ]* [^ ]* $number .* - \([^ ]*\) .*/\1/p" /proc/self/mountinfo | head -n 1)
	printf '%s ' "libcufile registers no file of $1 (error 5027):" \
		"$entry is not there or names no file system (fix: start udev, or as root" \
		"mkdir -p ${entry%/*} && touch ${entry%/data/*}/control &&"
	printf '%s\n' "printf 'E:ID_FS_TYPE=${kind:-ext4}\nE:ID_FS_USAGE=filesystem\n' >$entry)"
}

step objects_c "$folder/objects_c" "$device"
step objects_cpp "$folder/objects_cpp" "$model" "$device"
export LD_LIBRARY_PATH=${CUFILE:+$CUFILE:}${LD_LIBRARY_PATH:-}
reason=
if ldd "$folder/gpudirect_cpp" 2>&1 | grep 'libcufile.so.0 => not found' >/dev/null; then
	reason="the system's loader finds no libcufile.so.0 (fix: name its folder in CUFILE)"
elif [ "$device" != host ] && ! grep -qs fake_fail "${CUFILE:-}/libcufile.so.0"; then # our stand-in asks for no udev
	# The server's data, and the folder in which handles.cpp makes a file of its own.
	reason=$(refused "$SERVER_DATA" || refused /var/tmp)
fi
for program in gpudirect_cpp handles_cpp; do
	if [ -n "$reason" ]; then
		skip $program "$reason"
	else
		step $program "$folder/$program" "$device"
	fi
done
summary
