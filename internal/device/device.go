// SPDX-License-Identifier: Apache-2.0

// Package device defines the interfaces of devices with memory that receives or supplies the bytes of transfers. A
// device is a GPU, or the memory of this host under the name "host".
//
// Package device does no I/O. The implementations of device.Device are in subfolders, and only package device/open
// chooses among them.
package device

import "context"

// Ptr is an address in a device's memory. On the host device, a Ptr is a virtual address.
type Ptr uint64

// Holds reports whether a range of n bytes can begin at address p. Holds is false if p is 0, or if p+n exceeds the
// address space, as with the result of a failed mmap. For an n of 0, Holds is always true. Holds does not check
// whether memory is mapped at p.
func (p Ptr) Holds(n int64) bool { return n == 0 || n > 0 && p != 0 && uint64(n) <= -uint64(p) }

// Kind is the type of a device, "host" or "cuda".
type Kind string

const (
	// Host is the kind of the host device, which is the memory of this process.
	Host Kind = "host"
	// CUDA is the kind of an NVIDIA GPU that is used through libcuda.
	CUDA Kind = "cuda"
)

// Info describes a device. A field of Info is zero or empty if its value is not known, except NUMANode.
type Info struct {
	ID          string `json:"id"` // "host", "cuda:0"
	Kind        Kind   `json:"kind"`
	Model       string `json:"model"` // model name, such as "NVIDIA H200" or "host memory"
	UUID        string `json:"uuid,omitempty"`
	PCI         string `json:"pci,omitempty"`
	NUMANode    int    `json:"numa_node"` // the NUMA node of the device; -1 if not known
	TotalMemory int64  `json:"total_memory"`
	Driver      string `json:"driver,omitempty"`
	// Facts are further properties by name, as the driver reports them. Facts hold, for example, PCIe generation,
	// PCIe width, BAR1 size and GPUDirect support.
	Facts map[string]string `json:"facts,omitempty"`
}

// Device is a GPU or the host's memory. All methods of Device are safe for concurrent use from any goroutine or
// thread. No method of Device changes the current CUDA context of the calling thread.
type Device interface {
	// Info returns the description of the device, without a call to the driver.
	Info() Info
	// Alloc allocates size bytes of device memory, where size is more than 0. The allocated memory is aligned to at
	// least 256 bytes. If there is not enough device memory, Alloc fails with kind NoMemory. The caller of Alloc
	// frees the Buffer.
	Alloc(size int64) (Buffer, error)
	// Register prepares the host memory mem for fast copies to and from this device; for a GPU it pins the memory.
	// The memory mem stays registered until the returned function unregister is called. Registered memory must be
	// page-aligned and outside the Go heap.
	Register(mem []byte) (unregister func() error, err error)
	// NewQueue creates a queue that runs copies between host and device memory in order. The caller of NewQueue
	// closes the queue.
	NewQueue() (Queue, error)
	// Close frees the device's resources. Before Close, the caller closes all queues and frees all buffers of the
	// device.
	Close() error
}

// Buffer is an allocation in a device's memory.
type Buffer interface {
	// Ptr returns the address of the buffer's first byte, and Size its length in bytes.
	Ptr() Ptr
	Size() int64
	// Free frees the memory of the buffer. When Free is called, no queued copy may still use the buffer.
	Free() error
}

// Queue runs copies asynchronously and in order. Several goroutines may use a Queue at the same time.
type Queue interface {
	// CopyIn queues a copy from host memory src to device memory dst. The caller must not change src before it has
	// waited for a Mark that was recorded after CopyIn.
	CopyIn(dst Ptr, src []byte) error
	// CopyOut queues a copy of len(dst) bytes from device memory src to host memory dst.
	CopyOut(dst []byte, src Ptr) error
	// NewMark creates a mark of this queue, which is not recorded yet.
	NewMark() (Mark, error)
	// After makes all later work of this queue wait for the work that is now queued on the given stream. The
	// parameter named stream is a CUstream of the caller, as a number.
	After(stream uint64) error
	// Drain waits until all queued work has ended, including work that failed.
	Drain() error
	// Close waits until all queued work has ended, then frees the queue.
	Close() error
}

// CopyBatcher is implemented by queues that may take several copies by one call. A device with such a queue loses less
// time between the copies.
type CopyBatcher interface {
	Queue
	// Batches reports whether CopyInAll works, which depends on the driver.
	Batches() bool
	// CopyInAll queues copies from host memory to device memory, in any order among themselves. After an error, some
	// of them may be queued.
	CopyInAll(copies []Copy) error
}

// Copy is a copy from host memory Src, which must be pinned, to device memory Dst.
type Copy struct {
	Dst Ptr
	Src []byte
}

// Mark is a point in a queue that callers can wait for. A Mark can be recorded and waited for many times.
type Mark interface {
	// Record places the mark after all work that is queued now.
	Record() error
	// Wait waits until all work before the mark has ended, and returns the first error of that work. If the mark was
	// never recorded, Wait returns nil at once.
	Wait() error
	// Done reports without blocking whether Wait would return at once.
	Done() (bool, error)
	// Close frees the mark's resources.
	Close() error
}

// Mapper is implemented by devices with memory that the CPU can address. A file can be read directly into memory that
// the CPU can address, without staging and copying.
type Mapper interface {
	// Map returns the n bytes at address p as a slice. The mapped range must be within memory that the caller
	// allocated on this device.
	Map(p Ptr, n int64) []byte
}

// Mode selects whether GPUs are used.
type Mode string

const (
	// Auto means that a GPU is used if one works, and host memory if none works.
	Auto Mode = "auto"
	// Require means that opening the device set fails if no GPU works.
	Require Mode = "require"
	// Off means that the process does not look for GPUs.
	Off Mode = "off"
)

// Finding is the result of the search for one library, symbol or version.
type Finding struct {
	Name   string `json:"name"`             // what was searched, such as "libcuda.so.1" or "cuMemcpyHtoDAsync_v2"
	Found  bool   `json:"found"`            //
	Detail string `json:"detail"`           // the version that was found, or the error message
	Fix    string `json:"fix,omitempty"`    // what to do if the library, symbol or version is missing
	Needed bool   `json:"needed,omitempty"` // true if no GPU is usable without this library, symbol or version
}

// Survey lists the usable devices of this machine, and the libraries that were found or are missing.
type Survey struct {
	Mode     Mode      `json:"mode"`
	Devices  []Info    `json:"devices"` // the usable devices; host is always the last
	Findings []Finding `json:"findings"`
	// NoGPU is the reason why no GPU is usable. NoGPU is empty if a GPU is usable.
	NoGPU string `json:"no_gpu,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// Counter is implemented by device sets that can count GPUs without opening them.
type Counter interface {
	// GPUs returns the number of usable GPUs. The first call of GPUs loads the CUDA driver.
	GPUs() int
}

// Set is the set of devices of this process.
type Set interface {
	// Survey returns the devices and libraries that were found, without creating a CUDA context.
	Survey() Survey
	// Open returns the device with the given id: "cuda:N", "cuda", "host" or "auto". The first Open of a GPU creates
	// a CUDA context on that GPU only. A second Open of the same id returns the same device. Open fails with kind
	// Invalid if id is not a device name, and with kind NotFound if the GPU does not exist. If the CUDA driver cannot
	// open the GPU, Open fails with kind Device.
	Open(ctx context.Context, id string) (Device, error)
	// OpenDirect opens the vendor's library for transfers between files and dev, a device that this set opened. The
	// vendor's library is opened only in OpenDirect, because opening it creates a context on every visible GPU.
	// OpenDirect fails with kind Unsupported, the reason and a fix if dev is not a GPU, or if the library is missing
	// or too old. The caller of OpenDirect closes the Direct before it closes the set.
	OpenDirect(ctx context.Context, dev Device) (Direct, error)
	// Close closes every open device of the set, and every Direct that is still open.
	Close() error
}
