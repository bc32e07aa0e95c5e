#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures loads of models beside the loaders that serving programs use, with what `make gpu-serving` collected:
#
#   build/gpu/run.sh serving OUT [PART...]
#
# OUT is a folder for the figures. The parts are in `parts` below; without PART, all are measured. Parts with a --budget
# begin no further round when these seconds have passed. Each part prints how many seconds it took. If a part fails, the
# others still run, and the exit code is 1.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?the first argument is a folder for the figures}
shift
parts="many small smallcold moe rank rankcold door large largecold"
[ $# != 0 ] || set -- $parts
for part in "$@"; do
	case " $parts " in
	*" $part "*) ;;
	*)
		echo "serving.sh: unknown part $part; expected one of: $parts" >&2
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

# rank OPTIONS... loads what one of four tensor-parallel ranks has of a 70B model, 35 GB.
rank() {
	python3 -m nebulaio.compare --model 70b --rank 0/4 --repeats 0 --no-watch --dir "$WORKDIR/rank" --json "$out/$part.json" "$@"
}

measure() {
	case $1 in
	many) python3 "$here/bench/many.py" --processes 8 --gigabytes 15 --device cuda:0 --rounds 3 --workdir "$WORKDIR" --json "$out/many.json" ;;
	small) peers small --models 0.6b --cold 0.6b --drop file --rounds 5 --budget 250 --methods nebulaio,kvikio,prefetch_16,fastsafetensors,instanttensor_buffered ;;
	smallcold) peers smallcold --models 0.6b --cold 0.6b --only-cold --drop all --rounds 3 --budget 60 --methods nebulaio,fastsafetensors,kvikio ;;
	moe) peers moe --models moe --rounds 5 --budget 150 --methods nebulaio,kvikio,prefetch_16,instanttensor_buffered ;;
	rank) rank --rounds 2 ;;
	rankcold) rank --cold only --rounds 1 ;;
	door) bash "$here/run.sh" door --rounds 5 --out "$out/door.json" warm batch ;;
	large) peers large --models 7b --rounds 5 --budget 200 --methods nebulaio,kvikio,instanttensor_buffered,prefetch_16 ;;
	largecold) peers largecold --models 7b --cold 7b --only-cold --drop file --rounds 3 --budget 90 --methods nebulaio,fastsafetensors,instanttensor_buffered ;;
	esac
}

status=0
for part in "$@"; do
	began=$SECONDS
	measure "$part" 2>&1 | tee "$out/$part.log" || status=1
	echo "== $part took $((SECONDS - began)) s"
done
exit $status
