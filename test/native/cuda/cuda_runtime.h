/* SPDX-License-Identifier: Apache-2.0 */
/* The part of CUDA's cuda_runtime.h that the examples in our headers use, to compile
 * them without the toolkit. The values are those of CUDA. */
#ifndef NEBULAIO_TEST_CUDA_RUNTIME_H
#define NEBULAIO_TEST_CUDA_RUNTIME_H

#include <cstddef>

enum cudaError_t { cudaSuccess = 0 };

extern "C" cudaError_t cudaMalloc(void **pointer, size_t size);

#endif
