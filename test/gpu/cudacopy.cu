// SPDX-License-Identifier: Apache-2.0
//
// A plain CUDA program that copies between pinned host memory and the GPU, as a
// reference for `nebulaio bench ceilings`. It contains no code of this project.
//
//   nvcc -O2 -o cudacopy cudacopy.cu && ./cudacopy [rounds]
//
// Prints one JSON object: GB/s of each round, both ways, timed by CUDA events.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

static void check(cudaError_t e, const char *what) {
	if (e != cudaSuccess) {
		fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
		exit(1);
	}
}

int main(int argc, char **argv) {
	const int rounds = argc > 1 ? atoi(argv[1]) : 5;
	const size_t size = 256u << 20;
	const int times = 16;
	void *host, *dev;
	check(cudaMallocHost(&host, size), "cudaMallocHost");
	check(cudaMalloc(&dev, size), "cudaMalloc");
	for (size_t i = 0; i < size; i += 4096)
		static_cast<char *>(host)[i] = 1;
	cudaStream_t stream;
	cudaEvent_t from, to;
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaEventCreate(&from), "cudaEventCreate");
	check(cudaEventCreate(&to), "cudaEventCreate");
	std::vector<double> rate[2];
	for (int r = 0; r <= rounds; r++) {
		for (int way = 0; way < 2; way++) {
			check(cudaEventRecord(from, stream), "cudaEventRecord");
			for (int i = 0; i < times; i++) {
				if (way == 0)
					check(cudaMemcpyAsync(dev, host, size, cudaMemcpyHostToDevice, stream), "copy in");
				else
					check(cudaMemcpyAsync(host, dev, size, cudaMemcpyDeviceToHost, stream), "copy out");
			}
			check(cudaEventRecord(to, stream), "cudaEventRecord");
			check(cudaEventSynchronize(to), "cudaEventSynchronize");
			float ms = 0;
			check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
			if (r > 0) // the first round wakes the link up
				rate[way].push_back(double(size) * times / (ms / 1e3) / 1e9);
		}
	}
	const char *name[2] = {"h2d_pinned", "d2h_pinned"};
	printf("{");
	for (int way = 0; way < 2; way++) {
		printf("%s\"%s\": [", way ? ", " : "", name[way]);
		for (size_t i = 0; i < rate[way].size(); i++)
			printf("%s%.3f", i ? ", " : "", rate[way][i]);
		printf("]");
	}
	printf("}\n");
	return 0;
}
