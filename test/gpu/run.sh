#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs what `make gpu-bundle` collected, on a machine with a GPU and python3
# with torch, but without Go or this repository:
#
#   build/gpu/run.sh test [pytest args]   Go, C, C++ and Python tests on the card; python/tests/run_card.py says more
#   build/gpu/run.sh bench [run.py args]  the benchmark of models
#   build/gpu/run.sh door [run.py args]   the benchmark of objects
#   build/gpu/run.sh data [data.py args]  the benchmark of loaders of training data
#   build/gpu/run.sh checkpoint [checkpoint.py args]  the benchmark of checkpoints of torch
#   build/gpu/run.sh serving OUT [PART...]  models beside the loaders of serving programs, from `make gpu-serving`
#   build/gpu/run.sh top [top.py args]    nebulaio top beside nvidia-smi while the GPU works
#   build/gpu/run.sh snippets [PAGE...]   the snippets of the documentation that need a GPU
#   build/gpu/run.sh unpack               only unpacks the bundle, as every other word does first
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for packed in "$here"/*.gz; do
	[ ! -e "$packed" ] || gunzip -f "$packed"
done
for packed in peers clients native; do
	[ ! -e "$here/$packed.tgz" ] || { tar -C "$here" -xzf "$here/$packed.tgz" && rm "$here/$packed.tgz"; }
done
for packed in "$here"/*.tar.xz; do # such a machine may lack xz, but has Python
	[ ! -e "$packed" ] || { python3 -m tarfile -e "$packed" "$here" && rm "$packed"; }
done
export NEBULAIO_LIBRARY=$here/libnebulaio.so NEBULAIO_CLI=$here/nebulaio
export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH}
[ -d "$here/pydeps" ] && PYTHONPATH=$PYTHONPATH:$here/pydeps
# Compile the package as pip does at install time. Otherwise each process compiles it again.
python3 -m compileall -q "$here/python/nebulaio"
what=${1:-test}
shift || true
case $what in
test)
	ln -sf libnebulaio.so "$here/libnebulaio.so.3"
	exec python3 "$here/python/tests/run_card.py" "$here" "$@"
	;;
bench) exec bash "$here/bench/run.sh" "$@" ;;
door) PYTHONPATH=$PYTHONPATH:$here/peers exec python3 "$here/bench/door/run.py" --objects-program "$here/objects" --workdir "${WORKDIR:-/var/tmp}" "$@" ;;
data) exec python3 "$here/bench/data.py" --workdir "${WORKDIR:-/var/tmp}/bench-data" "$@" ;;
checkpoint) exec python3 "$here/bench/checkpoint.py" --workdir "${WORKDIR:-/var/tmp}/bench-checkpoint" "$@" ;;
serving) exec bash "$here/serving.sh" "$@" ;;
top) exec python3 "$here/top.py" "$here/nebulaio" "$@" ;;
snippets)
	ln -sf libnebulaio.so "$here/libnebulaio.so.3"
	mkdir -p "$here/clients/bin"
	for word in "aws -m awscli" "python"; do
		printf '#!/bin/sh\nexec python3%s "$@"\n' "${word#"${word%% *}"}" >"$here/clients/bin/${word%% *}"
		chmod +x "$here/clients/bin/${word%% *}"
	done
	# "-m awscli" finds its package here; the snippets' Python has it too, which does no harm.
	[ $# != 0 ] || set -- docs/gpudirect.md docs/python.md python/README.md
	# For include/nebulaio/gpudirect.h, whose example links libcufile and libcudart.
	cuda=${CUDA_HOME:-/usr/local/cuda}
	export CPATH=$cuda/include LIBRARY_PATH=$cuda/lib64 LD_LIBRARY_PATH=$cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	PYTHONPATH=$PYTHONPATH:$here/clients exec python3 "$here/test/snippets/run.py" --needs gpu,torch --cli "$here/nebulaio" --library "$here/libnebulaio.so" --path "$here/clients/bin" "$@"
	;;
unpack) ;;
*)
	echo "run.sh: unknown word $what; expected test, bench, door, data, checkpoint, serving, top, snippets or unpack" >&2
	exit 2
	;;
esac
