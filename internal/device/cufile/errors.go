// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// firstCode and lastCode are the first and the last code of cuFile. The last one is a sentinel.
const (
	firstCode = 5001
	lastCode  = 5050
)

// codeCUDA means that the CUDA driver failed. The CUresult is returned with it.
const codeCUDA = 5011

// Result is an error code of cuFile.
type Result struct {
	Code int // the CUfileOpError of cuFile, 5001 or more
	CUDA int // the CUresult of the CUDA driver if Code is 5011, else 0
}

// Error returns the name, the number and the meaning of the cuFile error code.
func (r *Result) Error() string {
	m := meaningOf(r.Code)
	s := fmt.Sprintf("%s (%d): %s", m.name, r.Code, m.text)
	if r.CUDA != 0 {
		s += fmt.Sprintf(" (CUDA error %d)", r.CUDA)
	}
	return s
}

// Code returns the cuFile error code inside err, or 0 if there is none.
func Code(err error) int {
	var r *Result
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}

// check converts a returned CUfileError_t into an error that names the call. The structure is in one register: the
// low half is the cuFile code, the high half the CUresult.
func check(call string, ret uintptr) error {
	code, cuda := int(int32(uint64(ret))), int(int32(uint64(ret)>>32))
	if code == 0 {
		return nil
	}
	return failure(call, code, cuda)
}

// failure returns the error for a code of either sign. The code is one of cuFile's, or an errno, which the library
// returns negated if it refuses its configuration.
func failure(call string, code, cuda int) error {
	n := code
	if n < 0 {
		n = -n
	}
	if n < firstCode {
		e := &errs.Error{Kind: errs.Device, Op: call, Err: syscall.Errno(n)}
		if syscall.Errno(n) == syscall.EINVAL && call == "cuFileDriverOpen" {
			e.Fix = "a value in cufile.json is refused; see cufile.log, and the library's own words on standard error"
		}
		return e
	}
	if n != codeCUDA {
		cuda = 0
	}
	m := meaningOf(n)
	return &errs.Error{Kind: m.kind, Op: call, Fix: m.fix, Err: &Result{Code: n, CUDA: cuda}}
}

// transferred converts the result of a read or write into a byte count or an error. A failed call returns a negative
// code, or -1 with a cuFile code or a system error in errno, depending on the release. transferred must run on the
// thread of the call, before any other call into C.
func (l *Library) transferred(call string, ret uintptr) (int64, error) {
	n := int64(ret)
	switch {
	case n >= 0:
		return n, nil
	case n <= -firstCode:
		return 0, failure(call, int(max(n, -1<<31)), 0)
	}
	no := int(*l.errno())
	switch {
	case no >= firstCode:
		return 0, failure(call, no, 0)
	case n == -1 && no != 0:
		return 0, &errs.Error{Kind: errs.IO, Op: call, Err: syscall.Errno(no)}
	case n == -1:
		return 0, errs.New(errs.IO, call, "",
			"failed without saying why").WithFix("see cufile.log in the working directory, or where logging.dir of " +
			"cufile.json points")
	}
	return 0, &errs.Error{Kind: errs.IO, Op: call, Err: syscall.Errno(-n)}
}

// errno returns the address of the calling thread's errno. The goroutine is locked to its thread.
func (l *Library) errno() *int32 {
	p := l.fn.errnoLocation.Call()
	// The address is in C's memory, which the garbage collector does not move.
	return (*int32)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
}

type meaning struct {
	code            int
	kind            errs.Kind
	name, text, fix string
}

func meaningOf(code int) meaning {
	for _, m := range meanings() {
		if m.code == code {
			return m
		}
	}
	return meaning{code: code, kind: errs.Device, name: "CU_FILE error",
		text: "a code that this release of nebulaio does not know",
		fix:  "see cufile.log, and the documentation of the installed libcufile"}
}

const (
	fixLog    = "see the ERROR lines in cufile.log; run nebulaio doctor on the file"
	fixDefect = "this is a defect of nebulaio; report it with the command that showed it"
	fixNVFS   = "check dmesg and /proc/driver/nvidia-fs; reload nvidia-fs, or update it to the driver's release"
)

// meanings lists the codes of cufile.h, with a text and a fix for each. The header has the texts in an inline
// function, which a binding at run time cannot call.
func meanings() []meaning {
	return []meaning{
		{5001, errs.Unsupported, "CU_FILE_DRIVER_NOT_INITIALIZED", "no direct route is there and compatibility mode is off",
			"load nvidia-fs or set up P2PDMA (nebulaio doctor names the first cause), or set allow_compat_mode to true in " +
				"cufile.json"},
		{5002, errs.Device, "CU_FILE_DRIVER_INVALID_PROPS", "a property of cufile.json is not valid",
			"correct cufile.json; nebulaio doctor checks it"},
		{5003, errs.Device, "CU_FILE_DRIVER_UNSUPPORTED_LIMIT", "a property is out of range",
			"correct the sizes in cufile.json; nebulaio doctor checks them"},
		{5004, errs.Unsupported, "CU_FILE_DRIVER_VERSION_MISMATCH", "nvidia-fs and libcufile do not fit",
			"update nvidia-fs and libcufile to the same CUDA release"},
		{5005, errs.Device, "CU_FILE_DRIVER_VERSION_READ_ERROR", "the version of nvidia-fs cannot be read", fixNVFS},
		{5006, errs.Closed, "CU_FILE_DRIVER_CLOSING", "the driver is being closed",
			"end reads and writes before the driver is closed"},
		{5007, errs.Unsupported, "CU_FILE_PLATFORM_NOT_SUPPORTED", "this platform is not supported",
			"use the staged route; WSL and some architectures have no cuFile"},
		{5008, errs.Unsupported, "CU_FILE_IO_NOT_SUPPORTED", "this file or its file system is not supported",
			"put the file on ext4 (data=ordered) or xfs, or allow compatibility mode in cufile.json; nebulaio doctor names " +
				"the cause"},
		{5009, errs.Unsupported, "CU_FILE_DEVICE_NOT_SUPPORTED", "this GPU has no GPUDirect Storage",
			"use the staged route, or a data-centre GPU"},
		{5010, errs.Device, "CU_FILE_NVFS_DRIVER_ERROR", "nvidia-fs failed", fixNVFS},
		{5011, errs.Device, "CU_FILE_CUDA_DRIVER_ERROR", "the CUDA driver failed",
			"check that nvidia-smi works, and dmesg for Xid errors"},
		{5012, errs.Invalid, "CU_FILE_CUDA_POINTER_INVALID", "the address is not in GPU memory", "pass memory of cuMemAlloc"},
		{5013, errs.Invalid, "CU_FILE_CUDA_MEMORY_TYPE_INVALID", "the memory is of a kind that cannot be used",
			"pass memory of cuMemAlloc, not managed or pool memory"},
		{5014, errs.Invalid, "CU_FILE_CUDA_POINTER_RANGE_ERROR", "the range ends outside of its allocation",
			"check offset and length against the allocation"},
		{5015, errs.Invalid, "CU_FILE_CUDA_CONTEXT_MISMATCH", "the memory belongs to another context",
			"use the device on which the memory was allocated"},
		{5016, errs.NoMemory, "CU_FILE_INVALID_MAPPING_SIZE", "more memory would be pinned than is allowed",
			"raise max_device_pinned_mem_size_kb in cufile.json, or register less"},
		{5017, errs.Invalid, "CU_FILE_INVALID_MAPPING_RANGE", "the range cannot be mapped", "register a whole allocation"},
		{5018, errs.Invalid, "CU_FILE_INVALID_FILE_TYPE", "not a regular file or block device", "give a regular file"},
		{5019, errs.Invalid, "CU_FILE_INVALID_FILE_OPEN_FLAG", "the file was opened with a flag that is refused",
			"open it without O_APPEND, O_NONBLOCK, O_NOFOLLOW, O_NOATIME, O_TMPFILE or O_DIRECTORY"},
		{5020, errs.Invalid, "CU_FILE_DIO_NOT_SET", "the file was not opened with O_DIRECT", "open it with O_DIRECT"},
		{5022, errs.Invalid, "CU_FILE_INVALID_VALUE", "an argument is not valid",
			"check offsets and lengths against file and buffer"},
		{5023, errs.Invalid, "CU_FILE_MEMORY_ALREADY_REGISTERED", "the buffer is registered already",
			"register a buffer once"},
		{5024, errs.Invalid, "CU_FILE_MEMORY_NOT_REGISTERED", "the buffer is not registered", "register the buffer first"},
		{5025, errs.Permission, "CU_FILE_PERMISSION_DENIED", "access was denied",
			"check the permissions of the file, /dev/nvidia-fs* and /run/udev"},
		{5026, errs.Invalid, "CU_FILE_DRIVER_ALREADY_OPEN", "the driver is open already",
			"change settings before anything in the process opens cuFile, in cufile.json for instance"},
		{5027, errs.Unsupported, "CU_FILE_HANDLE_NOT_REGISTERED",
			"the file is not registered: cuFile could not tell what it lies on",
			"make udev's database visible (/run/udev, in a container -v /run/udev:/run/udev:ro) and the file named; " +
				"cufile.log says what was missing"},
		{5028, errs.Invalid, "CU_FILE_HANDLE_ALREADY_REGISTERED", "the descriptor is registered already",
			"open the file again for a second registration"},
		{5029, errs.NotFound, "CU_FILE_DEVICE_NOT_FOUND", "the GPU was not found",
			"check nvidia-smi and CUDA_VISIBLE_DEVICES"},
		{5030, errs.Unsupported, "CU_FILE_INTERNAL_ERROR",
			"internal error; for a file without a direct route with compatibility mode off this code is usual", fixLog},
		{5031, errs.Unsupported, "CU_FILE_GETNEWFD_FAILED", "the file cannot be opened again by its name",
			"give a file that still has a name, and that this user may open; O_TMPFILE and deleted files do not work"},
		{5033, errs.Device, "CU_FILE_NVFS_SETUP_ERROR", "nvidia-fs could not be set up", fixNVFS},
		{5034, errs.Unsupported, "CU_FILE_IO_DISABLED", "I/O is disabled by the configuration",
			"remove the file's disk, mount or file system from the denylist of cufile.json"},
		{5035, errs.IO, "CU_FILE_BATCH_SUBMIT_FAILED", "a batch was not taken",
			"submit fewer requests, or raise io_batchsize in cufile.json"},
		{5036, errs.NoMemory, "CU_FILE_GPU_MEMORY_PINNING_FAILED", "GPU memory could not be pinned",
			"free GPU memory or register less; check the size of BAR1 with nvidia-smi -q"},
		{5037, errs.IO, "CU_FILE_BATCH_FULL", "the batch is full", "collect finished requests before more are submitted"},
		{5038, errs.Unsupported, "CU_FILE_ASYNC_NOT_SUPPORTED", "asynchronous operations are not supported here",
			"use synchronous reads"},
		{5039, errs.Device, "CU_FILE_INTERNAL_BATCH_SETUP_ERROR", "a batch could not be set up", fixLog},
		{5040, errs.Device, "CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR", "a batch could not be submitted", fixLog},
		{5041, errs.Device, "CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR", "the state of a batch could not be read", fixLog},
		{5042, errs.Device, "CU_FILE_INTERNAL_BATCH_CANCEL_ERROR", "a batch could not be cancelled", fixLog},
		{5043, errs.NoMemory, "CU_FILE_NOMEM_ERROR", "out of memory",
			"free memory, or lower posix_pool_slab_count and max_device_cache_size_kb in cufile.json"},
		{5044, errs.IO, "CU_FILE_IO_ERROR", "the read or write failed", "check dmesg for errors of the disk; see cufile.log"},
		{5045, errs.Device, "CU_FILE_INTERNAL_BUF_REGISTER_ERROR", "the buffer could not be registered", fixLog},
		{5046, errs.Device, "CU_FILE_HASH_OPR_ERROR", "the library's own table failed", fixLog},
		{5047, errs.Invalid, "CU_FILE_INVALID_CONTEXT_ERROR", "no valid CUDA context is current", fixDefect},
		{5048, errs.Device, "CU_FILE_NVFS_INTERNAL_DRIVER_ERROR", "nvidia-fs failed inside", fixNVFS},
		{5049, errs.Unsupported, "CU_FILE_BATCH_NOCOMPAT_ERROR", "batches have no compatibility mode here",
			"use synchronous reads, or a file with a direct route"},
		{5050, errs.Device, "CU_FILE_IO_MAX_ERROR", "the end of the list of codes", fixLog},
	}
}
