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
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CUfileOpError { CU_FILE_SUCCESS = 0, CU_FILE_PERMISSION_DENIED = 5025 } CUfileOpError;
typedef enum CUresult { CUDA_SUCCESS = 0 } CUresult;
typedef struct CUstream_st *CUstream;
typedef struct CUfileError {
	CUfileOpError err;
	CUresult cu_err;
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

typedef void *CUfileBatchHandle_t;
typedef enum CUfileOpcode { CUFILE_READ = 0, CUFILE_WRITE } CUfileOpcode_t;
typedef enum CUfileBatchMode { CUFILE_BATCH = 1 } CUfileBatchMode_t;
typedef struct CUfileIOParams {
	CUfileBatchMode_t mode;
	union {
		struct {
			void *devPtr_base;
			off_t file_offset;
			off_t devPtr_offset;
			size_t size;
		} batch;
	} u;
	CUfileHandle_t fh;
	CUfileOpcode_t opcode;
	void *cookie;
} CUfileIOParams_t;

typedef enum CUfileStatus_enum { CUFILE_COMPLETE = 16, CUFILE_FAILED = 64 } CUfileStatus_t;
typedef struct CUfileIOEvents {
	void *cookie;
	CUfileStatus_t status;
	size_t ret;
} CUfileIOEvents_t;

CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch_idp, unsigned nr);
CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch_idp, unsigned nr, CUfileIOParams_t *iocbp, unsigned flags);
CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch_idp, unsigned min_nr, unsigned *nr,
                                     CUfileIOEvents_t *iocbp, struct timespec *timeout);
void cuFileBatchIODestroy(CUfileBatchHandle_t batch_idp);

#define CU_FILE_STREAM_FIXED_BUF_OFFSET 1 /* tells that there are the calls for streams */
CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_offset, off_t *base_offset,
                              ssize_t *done, CUstream stream);
CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_offset, off_t *base_offset,
                               ssize_t *done, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_TEST_CUFILE_H */
