/* SPDX-License-Identifier: Apache-2.0 */
/* What the examples in our headers use of CUDA's cuda_runtime.h, to compile them
 * without the toolkit: the values are CUDA's. */
#ifndef NEBULAIO_TEST_CUDA_RUNTIME_H
#define NEBULAIO_TEST_CUDA_RUNTIME_H

#include <cstddef>

enum cudaError_t { cudaSuccess = 0 };

extern "C" cudaError_t cudaMalloc(void **pointer, size_t size);

#endif
