#!/usr/bin/env bash
# Provides a criu that works on this kernel: criu.sh FOLDER
# The distribution's criu is installed by apt. If that one does not know the kernel (criu check fails), criu is built from
# the source of a newer Debian release into FOLDER/criu. Without root, nothing is done: criu needs root.
set -euo pipefail
folder=$1
version=4.1.1
sum=f80a66cb3726bb2116266d4759ce3bcbfab7abdb6b6d430bf20dd41911717afe
here=$(cd "$(dirname "$0")" && pwd)

test "$(id -u)" = 0 || { echo "criu needs root: tests that dump processes are skipped"; exit 0; }
works() { "$1" check >/dev/null 2>&1; }
if test -x "$folder/criu" && works "$folder/criu"; then exit 0; fi
PATH=$PATH:/usr/sbin bash "$here/apt.sh" criu criu || true
installed=$(PATH=$PATH:/usr/sbin command -v criu || true)
if test -n "$installed" && works "$installed"; then exit 0; fi
echo "the installed criu does not work on this kernel: building criu $version"

bash "$here/apt.sh" protoc-c protobuf-c-compiler
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends make gcc pkg-config xz-utils curl \
	protobuf-compiler protobuf-c-compiler libprotobuf-dev libprotobuf-c-dev libcap-dev libnl-3-dev libnet1-dev libbsd-dev uuid-dev >/dev/null
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sed -n 1p)
test -n "$mirror" || { echo "no Debian mirror is configured" >&2; exit 1; }
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
if test -x "$folder/criu" && works "$folder/criu"; then exit 0; fi
work=$(mktemp -d "$folder/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
curl -fsS --retry 3 -o "$work/criu.tar.xz" "${mirror%/}/pool/main/c/criu/criu_$version.orig.tar.xz"
echo "$sum  $work/criu.tar.xz" | sha256sum -c --quiet
tar -xf "$work/criu.tar.xz" -C "$work" --strip-components 1
if ! make -C "$work" -j"$(nproc)" criu >"$work/log" 2>&1 9>&-; then
	tail -20 "$work/log" >&2
	exit 1
fi
mv -f "$work/criu/criu" "$folder/criu"
works "$folder/criu" || { "$folder/criu" check || true; echo "criu $version does not work on this kernel either: tests that dump processes are skipped"; }
