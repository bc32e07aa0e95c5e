#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs what `make gpu-bundle` collected, on a machine with a GPU and python3
# with torch, but without Go or this repository:
#
#   build/gpu/run.sh test                 Go and Python tests on the card
#   build/gpu/run.sh bench [run.py args]  the benchmark
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export NEBULAIO_LIBRARY=$here/libnebulaio.so NEBULAIO_CLI=$here/nebulaio
export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH}
[ -d "$here/pydeps" ] && PYTHONPATH=$PYTHONPATH:$here/pydeps
# As pip does at install time: without it each process compiles the package anew.
python3 -m compileall -q "$here/python/nebulaio"
what=${1:-test}
shift || true
case $what in
test)
	"$here/nebulaio" version
	"$here/nebulaio" devices
	"$here/gpu.test" -test.v -test.timeout 8m
	"$here/nebulaio" generate --shapes qwen3-0.6b --out "${TMPDIR:-/var/tmp}/native.safetensors" >/dev/null
	ln -sf libnebulaio.so "$here/libnebulaio.so.2"
	DEVICE=cuda:0 bash "$here/native/run.sh" "$here/native" "${TMPDIR:-/var/tmp}/native.safetensors" | cut -c1-200
	rm -f "${TMPDIR:-/var/tmp}/native.safetensors"
	# A process for each file of tests, several at a time: most of their time goes
	# into starting Python and torch.
	logs=$(mktemp -d)
	one() {
		name=$(basename "$1" .py)
		shift
		python3 -m pytest -q -p no:cacheprovider -m "cuda or not cuda" -rs --tb=short "tests/$name.py" "$@" >"$logs/$name.txt" 2>&1
		rc=$?
		[ $rc = 0 ] || [ $rc = 5 ] || { cat "$logs/$name.txt"; touch "$logs/failed"; }
		echo "$name: $(tail -n 1 "$logs/$name.txt")"
	}
	export -f one
	export logs
	cd "$here/python"
	ls tests/test_*.py | xargs -P "${TEST_JOBS:-6}" -I{} bash -c 'one "$@"' one {} "$@"
	grep -h "^SKIPPED" "$logs"/*.txt || true
	[ ! -e "$logs/failed" ]
	;;
bench) exec bash "$here/bench/run.sh" "$@" ;;
*)
	echo "run.sh: unknown word $what; expected test or bench" >&2
	exit 2
	;;
esac
