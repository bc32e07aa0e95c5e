#!/usr/bin/env bash
# Installs Debian packages unless a command is there already: apt.sh COMMAND PACKAGE...
# It waits at most ten minutes for another apt or dpkg. Exit code 1 means that the user is not root, or that apt failed.
set -euo pipefail
command=$1
shift
there() { command -v "$command" >/dev/null; }
there && exit 0
test "$(id -u)" = 0 || exit 1
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# apt itself waits for the lock of dpkg. It does not wait for the lock of the package lists, so we try again.
for try in $(seq 1 "${APT_TRIES:-120}"); do
	if DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 update -qq 2>"$said" &&
		DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "$@" >/dev/null 2>"$said"; then
		exit 0
	fi
	there && exit 0
	if ! grep -qE 'Could not get lock|Unable to (lock|acquire)|is another process using it' "$said"; then
		cat "$said" >&2
		exit 1
	fi
	test "$try" != 1 || echo "apt is at work elsewhere: waiting for it" >&2
	sleep "${APT_PAUSE:-5}"
done
cat "$said" >&2
exit 1
