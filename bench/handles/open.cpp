// SPDX-License-Identifier: Apache-2.0
//
// Measures how long GPUDirectOpen takes: open KEY COUNT. Prints the microseconds of each
// open, one per line. The program compiles with headers of older releases too, so that
// run.sh can compare two of them.
#include <cufile.h>
#include "nebulaio/gpudirect.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const int count = std::atoi(argv[2]);
	CUfileDescr_t descr;
	nebulaio::GPUDirectInit(&descr, std::getenv("NEBULAIO_ENDPOINT"));
	std::vector<double> took;
	for (int i = -count / 10; i < count; i++) { // the first ones warm up
		CUfileHandle_t handle;
		const auto began = std::chrono::steady_clock::now();
		nebulaio::GPUDirectOpen(&handle, "my-bucket", argv[1]);
		const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - began;
		nebulaio::GPUDirectClose(handle);
		if (i >= 0)
			took.push_back(time.count());
	}
	for (const double t : took)
		std::printf("%.2f\n", t);
	return 0;
}
