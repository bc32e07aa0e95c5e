#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the command and the library of one architecture into dist/linux-ARCH: build.sh ARCH
set -euo pipefail
. "$(dirname "$0")/settings.sh"
set_arch "$1"
out=$dist/linux-$arch
mkdir -p "$out" "$work"
cd "$root"

# The lowest level of each architecture, whatever the environment asks for.
export GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS=
go=${GO:-go}

# -buildid= keeps the path of the checkout out of the files; -buildvcs writes the commit into them, whatever GOFLAGS says.
CGO_ENABLED=0 "$go" build -trimpath -buildvcs=auto -ldflags "-s -w -buildid=" -o "$out/nebulaio" ./cmd/nebulaio
"$RELEASE_PYTHON" packaging/release/verneed.py "$out/nebulaio"
link="-s -Wl,--version-script=$root/capi/export.map -Wl,-soname,$SONAME"
CGO_ENABLED=1 CGO_CFLAGS=-O2 CC="$root/packaging/release/zig-cc $machine-linux-gnu.$glibc" \
	"$go" build -trimpath -buildvcs=auto -buildmode=c-shared -ldflags "-s -w -buildid= -extldflags '$link'" -o "$out/libnebulaio.so" ./capi
rm -f "$out/libnebulaio.h" # cgo's own; ours is include/nebulaio/nebulaio.h
chmod 755 "$out/nebulaio" "$out/libnebulaio.so"
"$(dirname "$0")/glibc.sh" "$glibc" "$out/nebulaio" "$out/libnebulaio.so"
