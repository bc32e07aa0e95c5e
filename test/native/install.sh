#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs into a folder and builds the programs of docs/cpp.md against it, C++ by CMake and C
# by pkg-config, then runs both on host: install.sh MODEL. The tree is moved before it is used,
# because no file in it may contain the place of the installation. INSTALL_WITHOUT_CMAKE=1 leaves CMake out.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
model=$(realpath "$1")
for tool in cmake pkg-config; do
	[ "$tool" = cmake ] && [ "${INSTALL_WITHOUT_CMAKE:-}" = 1 ] && continue
	command -v $tool >/dev/null || { [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends $tool; } ||
		{ echo "install: $tool is needed: apt install $tool" >&2 && exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nebulaio-install.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One directory for an installation as in a package, and one with libraries elsewhere.
make -C "$root" --no-print-directory install DESTDIR="$work/stage" PREFIX=/usr
make -C "$root" --no-print-directory install PREFIX="$work/opt" LIBDIR="$work/opt/lib64/deep"
mv "$work/stage/usr" "$work/moved"
test ! -e "$work/stage/usr"
test "$(readlink "$work/moved/lib/libnebulaio.so")" = libnebulaio.so.3
# grep reads all that it is given: a grep that ends at its match would end the program before it by SIGPIPE.
readelf -d "$work/moved/lib/libnebulaio.so" | grep 'SONAME.*\[libnebulaio.so.3\]' >/dev/null
"$work/moved/bin/nebulaio" version >/dev/null
grep -q 'ExecStart=/usr/bin/nebulaio server' "$work/moved/lib/systemd/system/nebulaio.service"
for f in lib/sysusers.d/nebulaio.conf lib/tmpfiles.d/nebulaio.conf share/nebulaio/nebulaio.yaml share/nebulaio/gpudirect.conf; do
	test -s "$work/moved/$f"
done
bash -n "$work/moved/share/bash-completion/completions/nebulaio"
test -s "$work/moved/share/zsh/site-functions/_nebulaio" -a -s "$work/moved/share/fish/vendor_completions.d/nebulaio.fish"

# block LANGUAGE NAME: a program of the page, as a reader copies it
mkdir "$work/src"
block() {
	awk -v fence="\`\`\`$1 $2" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "$root/docs/cpp.md" >"$work/src/$2"
	test -s "$work/src/$2" || { echo "install: docs/cpp.md has no $2" >&2 && exit 1; }
}
block cmake CMakeLists.txt
block cpp server.cpp
block c hello.c

for tree in moved:lib opt:lib64/deep; do
	prefix=$work/${tree%%:*} lib=$work/${tree%%:*}/${tree#*:}
	flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs nebulaio)
	# shellcheck disable=SC2086 # flags are several words
	cc -std=c99 -Wall -Wextra -Wpedantic -Werror -o "$work/hello" "$work/src/hello.c" $flags
	LD_LIBRARY_PATH=$lib "$work/hello" "$model" | grep '^[1-9][0-9]* tensors in 1 files$' >/dev/null
	[ "${INSTALL_WITHOUT_CMAKE:-}" = 1 ] && continue
	cmake -S "$work/src" -B "$work/build-${tree%%:*}" -DCMAKE_PREFIX_PATH="$prefix" -Dnebulaio_DIR="$lib/cmake/nebulaio" \
		-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/cmake.txt" 2>&1 &&
		cmake --build "$work/build-${tree%%:*}" >>"$work/cmake.txt" 2>&1 || { cat "$work/cmake.txt" >&2 && exit 1; }
	"$work/build-${tree%%:*}/server" "$model" host | grep '^[1-9][0-9]* tensors serve$' >/dev/null
done
if [ "${INSTALL_WITHOUT_CMAKE:-}" != 1 ]; then # a release that is not there is refused
	sed 's/nebulaio 0.1 REQUIRED/nebulaio 0.99 REQUIRED/' -i "$work/src/CMakeLists.txt"
	if cmake -S "$work/src" -B "$work/build-none" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/cmake.txt" 2>&1; then
		echo "install: CMake takes any version" >&2 && exit 1
	fi
	grep -qF "$(tr -d '[:space:]' <"$root/VERSION")" "$work/cmake.txt"
fi

make -C "$root" --no-print-directory uninstall PREFIX="$work/opt" LIBDIR="$work/opt/lib64/deep"
left=$(find "$work/opt" ! -type d)
test -z "$left" || { echo "install: uninstall leaves $left" >&2 && exit 1; }
echo "install: C by pkg-config and C++ by CMake, from two trees, on host"
