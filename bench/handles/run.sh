#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compares the time of GPUDirectOpen of this checkout with that of an older revision, in one
# run: run.sh REVISION [ROUNDS]. Each round runs the older and the newer one in turn, each
# with its own server. Prints the median of each and their ratio.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
revision=$1 rounds=${2:-7}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nebulaio-handles.XXXXXX")
trap 'git -C "$root" worktree remove --force "$work/old" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
git -C "$root" worktree add --detach -q "$work/old" "$revision"
cc -shared -fPIC -pthread -O1 -Wl,-soname,libcufile.so.0 -o "$work/libcufile.so.0" "$root/internal/device/fakegpu/csrc/libcufile.c"
build() { # NAME TREE
	make -s -C "$2" lib build >/dev/null
	c++ -std=c++17 -O2 "-I$2/include" -idirafter "$root/test/native/cuda" -o "$work/$1" "$root/bench/handles/open.cpp" \
		"-L$2/build" -lnebulaio -lpthread -ldl "$work/libcufile.so.0"
}
build older "$work/old"
build newer "$root"
measure() { # NAME TREE
	cat >"$work/one.sh" <<END
head -c 67108864 /dev/urandom >"$work/object" && "$2/bin/nebulaio" cp "$work/object" s3://my-bucket/object --endpoint "\$NEBULAIO_ENDPOINT" >/dev/null
LD_LIBRARY_PATH="$2/build:$work" "$work/$1" object 2000
END
	NEBULAIO_CLI=$2/bin/nebulaio python3 "$root/python/tests/serving.py" bash "$work/one.sh" >>"$work/$1.txt"
}
for _ in $(seq "$rounds"); do
	measure older "$work/old"
	measure newer "$root"
done
python3 - "$work/older.txt" "$work/newer.txt" <<'END'
import statistics, sys
older, newer = (statistics.median(float(x) for x in open(name)) for name in sys.argv[1:])
print(f"GPUDirectOpen: older {older:.1f} us, newer {newer:.1f} us, ratio {newer / older:.3f} (medians)")
END
