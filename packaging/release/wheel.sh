#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the sdist, or the wheel of one architecture from what build.sh made: wheel.sh sdist|ARCH
set -euo pipefail
. "$(dirname "$0")/settings.sh"
tree=$work/tree-$1
rm -rf "$tree" && mkdir -p "$tree"
# Tracked files alone: what was built in the checkout stays out.
(cd "$root" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
	[ ! -f "$file" ] || printf '%s\0' "$file"
done | tar --null -T - -cf -) | tar -C "$tree" -xf -
# setuptools packs files with these names as licences.
cp "$root/LICENSE" "$tree/python/LICENSE"
cp "$dist/THIRD_PARTY_LICENSES.txt" "$tree/python/LICENSE.third-party.txt"
find "$tree" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
cd "$tree/python"
if [ "$1" = sdist ]; then
	"$RELEASE_PYTHON" -m build --no-isolation --sdist --outdir "$work/sdist" . >"$work/sdist.log" 2>&1 || { cat "$work/sdist.log" >&2 && exit 1; }
	# setuptools writes the time of the build into the archive: pack its files again.
	rm -rf "$work/repack" && mkdir "$work/repack"
	tar -C "$work/repack" -xf "$work/sdist/nebulaio-$version.tar.gz"
	tar -C "$work/repack" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "nebulaio-$version" |
		gzip -n6 >"$dist/nebulaio-$version.tar.gz"
	rm -rf "$tree" "$work/repack" "$work/sdist"
	exit 0
fi
set_arch "$1"
platform=manylinux_${glibc/./_}_$machine
NEBULAIO_LIBRARY=$dist/linux-$arch/libnebulaio.so NEBULAIO_CLI=$dist/linux-$arch/nebulaio \
	"$RELEASE_PYTHON" -m build --no-isolation --wheel --outdir "$dist" -C--build-option=--plat-name="$platform" . >"$work/wheel.log" 2>&1 ||
	{ cat "$work/wheel.log" >&2 && exit 1; }
wheel=$dist/nebulaio-$version-py3-none-$platform.whl
"$RELEASE_PYTHON" "$root/packaging/release/audit.py" "$wheel" "$platform"
rm -rf "$tree"
