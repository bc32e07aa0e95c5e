/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVIDIA's <cufile.h> that the tests use, for machines without the CUDA
 * toolkit: only names and layouts of libcufile.so.0. If the toolkit is installed, its
 * own header is found first.
 */
#ifndef NEBULAIO_TEST_CUFILE_H
#define NEBULAIO_TEST_CUFILE_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CUfileOpError { CU_FILE_SUCCESS = 0 } CUfileOpError;
typedef struct CUfileError {
	CUfileOpError err;
	int cu_err; /* CUresult */
} CUfileError_t;

enum CUfileFileHandleType { CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1 };

typedef struct CUfileDescr_t {
	enum CUfileFileHandleType type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
} CUfileDescr_t;

typedef void *CUfileHandle_t;

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose(void);
CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr);
void cuFileHandleDeregister(CUfileHandle_t fh);
ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t base_offset);
ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset, off_t base_offset);

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_TEST_CUFILE_H */
