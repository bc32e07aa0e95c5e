#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails where a file needs a newer glibc, or a library that glibc does not bring: glibc.sh VERSION FILE...
set -euo pipefail
most=$1
shift
for file in "$@"; do
	needs=$(readelf --version-info --wide "$file" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1 || true)
	if [ "$(printf '%s\n' "${needs:-0}" "$most" | sort -V | tail -1)" != "$most" ]; then
		echo "release: $file needs glibc $needs, more than $most (fix: find what uses a newer symbol with objdump -T)" >&2
		exit 1
	fi
	libraries=$(readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
	for library in $libraries; do
		case $library in
		libc.so.6 | libpthread.so.0 | libdl.so.2 | ld-linux-*) ;;
		*) echo "release: $file needs $library, which glibc does not bring" >&2 && exit 1 ;;
		esac
	done
	# shellcheck disable=SC2086 # libraries are several words
	echo "release: $file asks for glibc symbols up to ${needs:-none by version}, and for" $libraries
done
