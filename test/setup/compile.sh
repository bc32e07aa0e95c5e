#!/bin/sh
# Runs a tool of Go, as go build -toolexec: compile.sh TOOL ARGUMENTS...
# The compiler and the linker live for seconds. Without garbage collection they take half of the processor time; from
# 2 GiB on they collect as usual. Tests keep Go's own settings, because go test starts them without this script.
GOGC=off GOMEMLIMIT=2GiB exec "$@"
