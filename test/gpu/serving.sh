#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures loads of models beside the loaders that serving programs use, with what `make gpu-serving` collected:
#
#   build/gpu/run.sh serving OUT [PART...]
#
# OUT is a folder for the figures. The parts are many, small, moe, rank, door and large; without PART, all are measured.
# The parts small, moe and large begin no further round when the seconds of their --budget have passed. Each part prints
# how many seconds it took. If a part fails, the others still run, and the exit code is 1.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?the first argument is a folder for the figures}
shift
[ $# != 0 ] || set -- many small moe rank door large
for part in "$@"; do
	case $part in
	many | small | moe | rank | door | large) ;;
	*)
		echo "serving.sh: unknown part $part; expected many, small, moe, rank, door or large" >&2
		exit 2
		;;
	esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
export WORKDIR=${WORKDIR:-/var/tmp/nebulaio-bench} PYTHONUNBUFFERED=1
mkdir -p "$WORKDIR"

# peers PART OPTIONS... compares with the loaders that are in the bundle.
peers() {
	local part=$1
	shift
	PYTHONPATH=$PYTHONPATH:$here/loaders python3 "$here/bench/modelpeers.py" --workdir "$WORKDIR" --out "$out/$part" "$@"
}

measure() {
	case $1 in
	many) python3 "$here/bench/many.py" --processes 8 --gigabytes 15 --device cuda:0 --rounds 3 --workdir "$WORKDIR" --json "$out/many.json" ;;
	small) peers small --models 0.6b --cold 0.6b --rounds 5 --budget 400 --methods nebulaio,kvikio,prefetch_16,fastsafetensors,instanttensor_buffered ;;
	moe) peers moe --models moe --rounds 5 --budget 150 --methods nebulaio,kvikio,prefetch_16,instanttensor_buffered ;;
	rank) python3 -m nebulaio.compare --model 70b --rank 0/4 --cold --rounds 2 --repeats 0 --no-watch --dir "$WORKDIR/rank" --json "$out/rank.json" ;;
	door) bash "$here/run.sh" door --rounds 5 --out "$out/door.json" warm batch ;;
	large) peers large --models 7b --cold 7b --rounds 5 --budget 300 --methods nebulaio,kvikio,instanttensor_buffered,prefetch_16 ;;
	esac
}

status=0
for part in "$@"; do
	began=$SECONDS
	measure "$part" 2>&1 | tee "$out/$part.log" || status=1
	echo "== $part took $((SECONDS - began)) s"
done
exit $status
