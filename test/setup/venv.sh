#!/usr/bin/env bash
# Makes a virtual environment, or waits for the run that makes it: venv.sh PYTHON DIRECTORY REQUIREMENTS [BASE]
# BASE is the interpreter of another environment. Its packages can be imported, too, behind those of REQUIREMENTS.
# DIRECTORY/.ready is written last, and holds the hash of all lists of packages. A directory without it is incomplete,
# or was made from another list, and is made again.
set -euo pipefail
python=$1 venv=$2 requirements=$3 base=${4:-}
mkdir -p "$(dirname "$venv")"
# The lock file is beside the directory. The kernel releases the lock when its process ends.
exec 9>"$venv.lock"
flock 9
# A list may include another one that lies beside it: -r NAME.
wanted=$({ cat "$requirements"; sed -n 's/^-r //p' "$requirements" | (cd "$(dirname "$requirements")" && xargs -r cat); } | sha256sum)
if test -e "$venv/.ready" && test "$(cat "$venv/.ready")" = "$wanted"; then
	touch "$venv/.ready" # which make compares with the list's own time
	exit 0
fi
rm -rf "$venv"
"$python" -m venv "$venv" 2>/dev/null || {
	# Debian's python3 has venv in a package of its own. There is no command to look for.
	rm -rf "$venv"
	bash "$(dirname "$0")/apt.sh" no-such-command-as-venv python3-venv
	"$python" -m venv "$venv"
}
"$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements"
if test -n "$base"; then
	site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	"$base" -c 'import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n")' >"$site/base.pth"
fi
echo "$wanted" >"$venv/.ready"
