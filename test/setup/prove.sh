#!/usr/bin/env bash
# Proves the commit of a clone: prove.sh CLONE [cold]
# Clones HEAD afresh, runs the whole .ci/run there, and writes the commit into CLONE/build/proved if it passes. With a
# second argument, Go begins with an empty build cache. What .ci/run proved on the way comes back as test/proven.json.
set -euo pipefail
clone=$1 cold=${2:-}
commit=$(git -C "$clone" rev-parse HEAD)
rm -f "$clone/build/proved"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nebulaio-prove.XXXXXX")
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
git clone --quiet --no-hardlinks "$clone" "$work/nebulaio"
git -C "$work/nebulaio" checkout --quiet --detach "$commit"
if test -n "$cold"; then
	export GOCACHE=$work/cache
fi
# Without make's own variables, as a forge runs it.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES CI=true bash "$work/nebulaio/.ci/run" </dev/null
cp "$work/nebulaio/test/proven.json" "$clone/test/proven.json"
test "$commit" = "$(git -C "$clone" rev-parse HEAD)" || echo "HEAD has moved since: $commit is proven"
mkdir -p "$clone/build"
echo "$commit" >"$clone/build/proved"
echo "proved: $commit"
