# SPDX-License-Identifier: Apache-2.0
# Read by the scripts of this folder: names, versions and the time that all artefacts carry. Not run by itself.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dist=${DIST:-$root/dist}
work=$root/build/release
version=$(tr -d '[:space:]' <"$root/VERSION")
glibc=2.17 # the oldest that zig knows, and the first one on arm64
export RELEASE_PYTHON=${RELEASE_PYTHON:-$root/build/release/venv/bin/python}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
export ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig
umask 022

# set_arch ARCH: the names that GNU and Python have for an architecture of Go
set_arch() {
	arch=$1
	case $arch in
	amd64) machine=x86_64 ;;
	arm64) machine=aarch64 ;;
	*) echo "release: architecture \"$arch\" is not known; expected amd64 or arm64" >&2 && exit 2 ;;
	esac
}
