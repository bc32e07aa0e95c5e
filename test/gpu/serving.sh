#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures loads of models beside the loaders that serving programs use, with what `make gpu-serving` collected:
#
#   build/gpu/run.sh serving OUT [PART...]
#
# OUT is a folder for the figures. The parts are many, small, moe, rank, door and large; all of them take about a
# quarter of an hour. Each part prints its seconds at the end. A part that fails does not stop the others.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?the first argument is a folder for the figures}
shift
[ $# != 0 ] || set -- many small moe rank door large
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
	small) peers small --models 0.6b --cold 0.6b --rounds 5 --budget 240 --methods nebulaio,kvikio,prefetch_8,prefetch_16,fastsafetensors,instanttensor_buffered ;;
	moe) peers moe --models moe --rounds 5 --budget 100 --methods nebulaio,kvikio,prefetch_16,instanttensor_buffered ;;
	rank) python3 -m nebulaio.compare --model 70b --rank 0/4 --cold --rounds 2 --repeats 0 --no-watch --dir "$WORKDIR/rank" --json "$out/rank.json" ;;
	door) bash "$here/run.sh" door --rounds 5 --out "$out/door.json" warm batch ;;
	large) peers large --models 7b --cold 7b --rounds 5 --budget 200 --methods nebulaio,kvikio,instanttensor_buffered,prefetch_16 ;;
	*)
		echo "serving.sh: unknown part $1; expected many, small, moe, rank, door or large" >&2
		return 2
		;;
	esac
}

status=0
for part in "$@"; do
	began=$SECONDS
	measure "$part" 2>&1 | tee "$out/$part.log" || status=1
	echo "== $part took $((SECONDS - began)) s"
done
exit $status
