#!/usr/bin/env bash
# Runs a command that makes a file, and replaces FILE atomically: place.sh FILE COMMAND...
# The command writes to the path in $STAGED, which is always the same, so that it can see whether the file is current.
# Only one such command runs at a time for one FILE. Other processes see the old FILE or the complete new one.
set -euo pipefail
file=$1
shift
stage=$(dirname "$file")/.stage
mkdir -p "$stage"
export STAGED=$stage/$(basename "$file")
exec 9>"$STAGED.lock"
flock 9
"$@" 9>&-
cmp -s "$STAGED" "$file" && exit 0
cp -p "$STAGED" "$STAGED.new"
mv -f "$STAGED.new" "$file"
