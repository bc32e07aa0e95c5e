#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs what build.sh made into a .deb and a .tar.gz: deb.sh ARCH. dpkg-deb is enough: packaging/install.sh lays out the files.
# COMPLETER is a nebulaio that runs on this machine; it writes the completions.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
set_arch "$1"
command -v dpkg-deb >/dev/null || { echo "release: dpkg-deb is needed to make a .deb (fix: apt install dpkg)" >&2 && exit 1; }
stage=$work/deb-$arch
rm -rf "$stage"

# lay_out TARGET LIBDIR: the installed files of one architecture, below /usr of TARGET
lay_out() {
	BIN=$dist/linux-$arch/nebulaio LIB=$dist/linux-$arch/libnebulaio.so SONAME=$SONAME \
		PREFIX=/usr LIBDIR=$2 DESTDIR=$1 COMPLETER=$COMPLETER "$root/packaging/install.sh" install >/dev/null
	local doc=$1/usr/share/doc/nebulaio
	install -D -m 644 "$dist/THIRD_PARTY_LICENSES.txt" "$doc/THIRD_PARTY_LICENSES.txt"
	# The folders are those of the sources, so that the links between the pages hold.
	install -m 644 "$root"/{README,ARCHITECTURE,CONTRIBUTING,CHANGELOG}.md "$doc/"
	install -d "$doc/docs/design" "$doc/docs/guide"
	install -m 644 "$root"/docs/*.md "$doc/docs/"
	install -m 644 "$root"/docs/design/*.md "$doc/docs/design/"
	install -m 644 "$root"/docs/guide/*.md "$doc/docs/guide/"
}

lay_out "$stage" "/usr/lib/$machine-linux-gnu"
{
	printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: NebulaIO\n'
	printf 'Source: https://github.com/nebulaio/nebulaio\n\nFiles: *\nCopyright: the authors of NebulaIO\nLicense: Apache-2.0\n'
	printf 'Comment: Licences of linked modules are in THIRD_PARTY_LICENSES.txt.\n\nLicense: Apache-2.0\n'
	printf ' On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$stage/usr/share/doc/nebulaio/copyright"
install -D -m 640 "$root/packaging/nebulaio.yaml" "$stage/etc/nebulaio/nebulaio.yaml"
size=$(du -sk --apparent-size "$stage" | cut -f1)
mkdir "$stage/DEBIAN"
sed -e "s|@VERSION@|$version|" -e "s|@ARCH@|$arch|" -e "s|@SIZE@|$size|" -e "s|@GLIBC@|$glibc|" \
	-e "s|@MAINTAINER@|${RELEASE_MAINTAINER:-NebulaIO <maintainers@nebulaio.example>}|" \
	"$root/packaging/deb/control.in" >"$stage/DEBIAN/control"
echo /etc/nebulaio/nebulaio.yaml >"$stage/DEBIAN/conffiles"
echo activate-noawait ldconfig >"$stage/DEBIAN/triggers"
install -m 755 "$root"/packaging/deb/{postinst,prerm,postrm} "$stage/DEBIAN/"
(cd "$stage" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
find "$stage" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz -z3 --build "$stage" "$dist/nebulaio_${version}_$arch.deb" >/dev/null

# The same files for systems without dpkg, to be unpacked anywhere.
name=nebulaio-$version-linux-$arch
tree=$work/$name
rm -rf "$tree" "$tree.root"
lay_out "$tree.root" /usr/lib
mv "$tree.root/usr" "$tree" && rm -rf "$tree.root"
install -m 644 "$root/LICENSE" "$tree/LICENSE"
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -n6 >"$dist/$name.tar.gz"
rm -rf "$stage" "$tree"
