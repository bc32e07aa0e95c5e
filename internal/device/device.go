// SPDX-License-Identifier: Apache-2.0

// Package device defines the interfaces of devices that receive bytes: GPUs, and the
// host's own memory, which is called host.
//
// It does no I/O. Implementations are in its subfolders, and only device/open chooses
// among them.
package device

import "context"

// Ptr is an address in a device's memory. On host it is a virtual address.
type Ptr uint64

// Holds reports whether n bytes can begin at p: p is not 0, and the address space
// does not end before them. So it refuses the result of a failed mmap, which is the
// last address. Zero bytes can begin anywhere. It does not check whether memory is
// mapped there.
func (p Ptr) Holds(n int64) bool { return n == 0 || n > 0 && p != 0 && uint64(n) <= -uint64(p) }

// Kind is a family of devices.
type Kind string

const (
	// Host is this process's own memory. It is never called a GPU.
	Host Kind = "host"
	// CUDA is an NVIDIA GPU reached through libcuda.
	CUDA Kind = "cuda"
)

// Info describes a device. Unknown facts are zero.
type Info struct {
	ID          string `json:"id"` // "host", "cuda:0"
	Kind        Kind   `json:"kind"`
	Model       string `json:"model"` // "NVIDIA H200", "host memory"
	UUID        string `json:"uuid,omitempty"`
	PCI         string `json:"pci,omitempty"`
	NUMANode    int    `json:"numa_node"` // -1 unknown
	TotalMemory int64  `json:"total_memory"`
	Driver      string `json:"driver,omitempty"`
	// Facts are further properties by name, as the driver gave them: PCIe
	// generation, width and replays, BAR1 size, GPUDirect support, modes.
	Facts map[string]string `json:"facts,omitempty"`
}

// Device is a GPU or the host's memory. All methods are safe for concurrent use from
// any goroutine or thread. They do not change the calling thread's device state.
type Device interface {
	// Info describes the device. It never fails and does no device work.
	Info() Info
	// Alloc returns size > 0 bytes of device memory, aligned to at least 256,
	// or an error of kind NoMemory. The caller frees it.
	Alloc(size int64) (Buffer, error)
	// Register makes host memory fast for this device to read until the
	// returned function is called. mem is page-aligned and outside the Go heap.
	Register(mem []byte) (unregister func() error, err error)
	// NewQueue opens an ordered queue of copies.
	NewQueue() (Queue, error)
	// Close frees what the device holds; queues and buffers are closed before.
	Close() error
}

// Buffer is an allocation on a device.
type Buffer interface {
	// Ptr is its first byte, Size its length.
	Ptr() Ptr
	Size() int64
	// Free returns the memory. No copy may be queued into it.
	Free() error
}

// Queue executes copies in the order given, later than the call that queues
// them. Several goroutines may queue on it at once.
type Queue interface {
	// CopyIn queues a copy of src to dst. src must stay unchanged until a Mark
	// recorded after it has been waited for.
	CopyIn(dst Ptr, src []byte) error
	// CopyOut queues a copy of len(dst) bytes at src to dst.
	CopyOut(dst []byte, src Ptr) error
	// NewMark makes a mark for Record; it belongs to this queue.
	NewMark() (Mark, error)
	// After delays what is queued from now on until the work already queued on
	// the caller's own stream (a CUstream as a number) has finished.
	After(stream uint64) error
	// Drain waits until everything queued has been done, failed copies included.
	Drain() error
	// Close drains and frees the queue.
	Close() error
}

// Mark is a point in a queue that can be waited for, over and over.
type Mark interface {
	// Record moves the mark to the end of what is queued now.
	Record() error
	// Wait blocks until everything before the recorded point has been done,
	// and returns the first error of that work. A mark never recorded is done.
	Wait() error
	// Done reports without blocking whether Wait would return at once.
	Done() (bool, error)
	// Close frees the mark.
	Close() error
}

// Mapper is implemented by devices whose memory the CPU can address; bytes can
// then be read into place without staging and copying.
type Mapper interface {
	// Map returns the n bytes at p, which lie inside memory that the caller
	// allocated on this device.
	Map(p Ptr, n int64) []byte
}

// Mode tells whether GPUs are used.
type Mode string

const (
	// Auto uses a GPU if one works, otherwise the host, and reports why.
	Auto Mode = "auto"
	// Require fails if no GPU works.
	Require Mode = "require"
	// Off does not look for a GPU.
	Off Mode = "off"
)

// Finding is the result of looking for one library, symbol or version.
type Finding struct {
	Name   string `json:"name"`             // "libcuda.so.1", "cuMemcpyHtoDAsync_v2", "driver version"
	Found  bool   `json:"found"`            //
	Detail string `json:"detail"`           // what was seen, in the library's own words
	Fix    string `json:"fix,omitempty"`    // what to do when it is missing
	Needed bool   `json:"needed,omitempty"` // without it there is no GPU
}

// Survey lists what was looked for and found on this machine.
type Survey struct {
	Mode     Mode      `json:"mode"`
	Devices  []Info    `json:"devices"` // usable ones, host always last
	Findings []Finding `json:"findings"`
	// NoGPU tells why no GPU is usable, empty when one is.
	NoGPU string `json:"no_gpu,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// Counter is implemented by sets that can count GPUs without opening them.
type Counter interface {
	// GPUs looks for the driver where nobody has yet; 0 if none is usable.
	GPUs() int
}

// Set holds the devices of this process.
type Set interface {
	// Survey reports what was found. It does not create contexts.
	Survey() Survey
	// Open returns the device of that id ("cuda:0", "cuda", "host", "auto"),
	// creating its context on first use and on that device alone. Opening an
	// id again returns the same device. Kind NotFound for an id that does not
	// exist, Device where the driver refuses.
	Open(ctx context.Context, id string) (Device, error)
	// OpenDirect opens the vendor's library for moves between files and dev,
	// which this set opened. The library is looked for and opened now, not
	// before: opening it makes a context on every visible GPU. Kind Unsupported,
	// with the reason and a fix, where dev is no GPU, there is no such library
	// or it lacks what is needed. The caller closes it before the set.
	OpenDirect(ctx context.Context, dev Device) (Direct, error)
	// Close closes every opened device, and what OpenDirect gave and was left.
	Close() error
}
