#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the files of Python tests, several at a time:
#
#   run_files.sh FOLDER [pytest arguments]
#
# Each file is a process: most of the time goes into starting Python and torch.
# Tests marked whole_card take most of a GPU's memory. They run last, one process
# at a time, with nothing beside them. TEST_JOBS says how many files run at a time.
set -euo pipefail
folder=$1
shift
logs=$(mktemp -d)
# Each process would start a thread for every core.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
trap 'rm -rf "$logs"' EXIT

one() {
	name=$(basename "$1" .py) marks=$2
	file=$1
	shift 2
	rc=0
	log=$logs/$name-$marks.txt
	case $marks in
	alone) chosen="whole_card" ;;
	*) chosen="(cuda or not cuda) and not whole_card" ;;
	esac
	python3 -m pytest -q -p no:cacheprovider -m "$chosen" -rs --tb=short "$file" "$@" >"$log" 2>&1 || rc=$?
	# 5: the file has no such test.
	[ $rc = 0 ] || [ $rc = 5 ] || { cat "$log"; touch "$logs/failed"; }
	[ $rc = 5 ] || echo "$name ($marks): $(tail -n 1 "$log")"
}
export -f one
export logs

ls "$folder"/test_*.py | xargs -P "${TEST_JOBS:-6}" -I{} bash -c 'one "$@"' one {} beside "$@"
{ grep -l whole_card "$folder"/test_*.py || true; } | xargs -r -P 1 -I{} bash -c 'one "$@"' one {} alone "$@"
grep -h "^SKIPPED" "$logs"/*.txt || true
[ ! -e "$logs/failed" ]
