#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the headers with every supported standard and all warnings as errors, and
# checks that they refuse a library with another ABI: headers.sh FOLDER.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1
mkdir -p "$folder"
strict=(-Wall -Wextra -Wpedantic -Wconversion -Werror "-I$root/include")
compilers_c=(cc) compilers_cpp=(c++)
if command -v clang clang++ >/dev/null; then compilers_c+=(clang) compilers_cpp+=(clang++); fi

count=0
check() { # COMPILER LANGUAGE STANDARD TEXT [FLAGS]
	printf '%b' "$4" | "$1" -x "$2" "-std=$3" "${strict[@]}" "${@:5}" -fsyntax-only - ||
		{ echo "headers: $1 -std=$3 refuses: $4" >&2 && exit 1; }
	count=$((count + 1))
}
# CUDA's types are those of CUDA's header, whether it is included before or after ours.
cuda='typedef struct CUstream_st *cudaStream_t;\n'
use='int main(void) { cudaStream_t s = 0; nebulaio_stream t = s; void *p = 0; nebulaio_buffer b = {p, 1}; s = t; return b.size == 1 && s == 0 ? nebulaio_check_abi(0, 0) : 1; }\n'
for compiler in "${compilers_c[@]}"; do
	for standard in c99 c11 c17; do
		check "$compiler" c $standard "$cuda#include <nebulaio/nebulaio.h>\n$use"
		check "$compiler" c $standard "#include <nebulaio/nebulaio.h>\n$cuda$use"
	done
done
for compiler in "${compilers_cpp[@]}"; do
	for standard in c++11 c++14 c++17 c++20; do
		check "$compiler" c++ $standard "$cuda#include <nebulaio/nebulaio.h>\n$use"
		check "$compiler" c++ $standard "#include <nebulaio/nebulaio.hpp>\n$cuda$use"
	done
	for standard in c++17 c++20; do
		check "$compiler" c++ $standard "#include <nebulaio/gpudirect.h>\n$cuda$use" -idirafter "$root/test/native/cuda"
	done
done

# An old library has the same functions and another ABI number.
old=$folder/old
mkdir -p "$old"
cat >"$old/old.c" <<'END'
#include <stdint.h>
#include <stdlib.h>
int32_t nebulaio_abi_version(void) { return 1; }
int32_t nebulaio_system_open(void) { abort(); }
int32_t nebulaio_devices(void) { abort(); }
int32_t nebulaio_release(void) { abort(); }
END
cat >"$old/refused.cpp" <<'END'
#include <nebulaio/nebulaio.hpp>
#include <cstdio>
int main()
{
	try {
		nebulaio::system sys;
	} catch (const nebulaio::error &problem) {
		std::puts(problem.what());
		return problem.status();
	}
	return 0;
}
END
cc -shared -fPIC -Wl,-soname,libold.so -o "$old/libold.so" "$old/old.c"
c++ -std=c++11 "${strict[@]}" -o "$old/refused" "$old/refused.cpp" -L"$old" -lold -Wl,-rpath,'$ORIGIN'
status=0
said=$("$old/refused") || status=$?
number=$(sed -n 's/^#define NEBULAIO_ABI_VERSION //p' "$root/include/nebulaio/nebulaio.h")
case $status:$said in
9:*"ABI version is 1, this program was built for $number "*"fix:"*) ;;
*) echo "headers: a library of another ABI gives status $status: $said" >&2 && exit 1 ;;
esac
echo "headers: $count compilations without a warning, and another ABI is refused"
