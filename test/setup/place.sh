#!/usr/bin/env bash
# Runs a command that makes a file, and puts the file in its place whole: place.sh FILE COMMAND...
# The command finds the name to write to in $STAGED, the same one each time, so that it can see what is up to date. One
# such command runs at a time for one FILE. Who runs or reads FILE meanwhile has the old file or the new one.
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
