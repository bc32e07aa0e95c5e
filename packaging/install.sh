#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what was built, or removes it again: install.sh install|uninstall. The environment
# has BIN, LIB and SONAME, and PREFIX, LIBDIR, INCLUDEDIR and DESTDIR as in other projects.
# COMPLETER is the command that writes the completions, where BIN is for another architecture.
# Nothing outside these directories is touched: run ldconfig, and systemctl daemon-reload,
# yourself.
set -euo pipefail
action=$1
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=${PREFIX:-/usr/local} destdir=${DESTDIR:-}
libdir=${LIBDIR:-$prefix/lib} includedir=${INCLUDEDIR:-$prefix/include}
version=$(tr -d '[:space:]' <"$root/VERSION")
file=libnebulaio.so.$version
for path in "$prefix" "$libdir" "$includedir"; do
	case $path in
	/*) ;;
	*) echo "install: \"$path\" is not absolute; expected a path such as /usr/local" >&2 && exit 2 ;;
	esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# put MODE SOURCE TARGET
put() {
	if [ "$action" = uninstall ]; then
		rm -f "$destdir$3"
	else
		install -D -m "$1" "$2" "$destdir$3"
	fi
}

# link TO TARGET
link() {
	if [ "$action" = uninstall ]; then
		rm -f "$destdir$2"
	else
		ln -sf "$1" "$destdir$2"
	fi
}

# fill TEMPLATE: the file with the values of this installation
fill() {
	sed -e "s|@VERSION@|$version|g" -e "s|@FILE@|$file|g" -e "s|@SONAME@|$SONAME|g" \
		-e "s|@INCLUDE_FROM_LIB@|$(realpath -m --relative-to="$libdir" "$includedir")|g" "$1" >"$work/filled"
	echo "$work/filled"
}

# complete SHELL: what the command itself writes for a shell
complete() {
	[ "$action" = uninstall ] || "${COMPLETER:-$BIN}" completion "$1" >"$work/completion"
	echo "$work/completion"
}

case $action in
install)
	for f in "$BIN" "$LIB"; do
		[ -f "$f" ] || { echo "install: $f is missing (fix: make build lib)" >&2 && exit 2; }
	done
	;;
uninstall) ;;
*) echo "usage: install.sh install|uninstall" >&2 && exit 2 ;;
esac

put 755 "$BIN" "$prefix/bin/nebulaio"
put 755 "$LIB" "$libdir/$file"
link "$file" "$libdir/$SONAME"
link "$SONAME" "$libdir/libnebulaio.so"
for header in "$root"/include/nebulaio/*; do
	put 644 "$header" "$includedir/nebulaio/${header##*/}"
done
for template in nebulaioConfig.cmake nebulaioConfigVersion.cmake; do
	put 644 "$(fill "$root/packaging/lib/$template.in")" "$libdir/cmake/nebulaio/$template"
done
put 644 "$(fill "$root/packaging/lib/nebulaio.pc.in")" "$libdir/pkgconfig/nebulaio.pc"
put 644 "$(complete bash)" "$prefix/share/bash-completion/completions/nebulaio"
put 644 "$(complete zsh)" "$prefix/share/zsh/site-functions/_nebulaio"
put 644 "$(complete fish)" "$prefix/share/fish/vendor_completions.d/nebulaio.fish"
sed "s|/usr/local/bin/nebulaio|$prefix/bin/nebulaio|g" "$root/packaging/nebulaio.service" >"$work/service"
put 644 "$work/service" "$prefix/lib/systemd/system/nebulaio.service"
put 644 "$root/packaging/nebulaio.sysusers" "$prefix/lib/sysusers.d/nebulaio.conf"
put 644 "$root/packaging/nebulaio.tmpfiles" "$prefix/lib/tmpfiles.d/nebulaio.conf"
# The settings are the administrator's: the file under share is an example to copy.
put 644 "$root/packaging/nebulaio.yaml" "$prefix/share/nebulaio/nebulaio.yaml"
put 644 "$root/packaging/gpudirect.conf" "$prefix/share/nebulaio/gpudirect.conf"
if [ "$action" = uninstall ]; then
	rmdir --ignore-fail-on-non-empty "$destdir$includedir/nebulaio" "$destdir$libdir/cmake/nebulaio" \
		"$destdir$prefix/share/nebulaio" 2>/dev/null || true
	echo "removed from $destdir$prefix"
else
	echo "installed $destdir$prefix/bin/nebulaio, $destdir$libdir/libnebulaio.so, $destdir$includedir/nebulaio/"
fi
