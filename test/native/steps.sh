# SPDX-License-Identifier: Apache-2.0
#
# Functions of run.sh and objects.sh, which source this file. They run programs one after the other, all of them
# whatever fails, and say at the end which failed. Each program gets a line that begins with "passed", "FAILED" or
# "skipped". STEP_LIMIT is the number of seconds that a program may take.
failed=()
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nebulaio-native.XXXXXX")
trap 'rm -rf "$work"' EXIT

# step NAME COMMAND... runs a program, shows its output, and returns its exit code. With `lines`, only so many of the
# last lines are shown if it succeeds.
step() {
	local name=$1 limit=${STEP_LIMIT:-150} code=0 begin took why
	shift
	begin=$(date +%s%3N)
	timeout -k 5 "$limit" "$@" >"$work/output.txt" 2>&1 || code=$?
	took=$(($(date +%s%3N) - begin))
	if [ $code = 0 ]; then
		tail -n "${lines:-+1}" "$work/output.txt"
		echo "passed $name in $((took / 1000)).$((took % 1000 / 100)) s"
		return 0
	fi
	cat "$work/output.txt"
	why="exit code $code"
	[ $code -le 128 ] || why="ended by SIG$(kill -l $((code - 128)))"
	[ $took -lt $((limit * 1000)) ] || why="did not end within $limit s"
	echo "FAILED $name in $((took / 1000)).$((took % 1000 / 100)) s: $why"
	failed+=("$name")
	return $code
}

# skip NAME REASON says that a program was not run.
skip() {
	echo "skipped $1: $2"
}

# summary says which programs failed. Its exit code is that of the script.
summary() {
	[ ${#failed[@]} != 0 ] || return 0
	echo "failed: ${failed[*]}" >&2
	return 1
}
