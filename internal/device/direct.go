// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strings"
)

// Direct moves bytes between files and one device's memory through the vendor's library, such as cuFile, without
// staging slots of the engine. The vendor's library decides whether the bytes bypass the CPU, and only Counters shows
// its decision. All methods of Direct are safe for concurrent use from any goroutine. No method of Direct changes the
// current CUDA context of the calling thread.
type Direct interface {
	// Version returns the release of the vendor's library, such as "1.15".
	Version() string
	// OpenFile registers the open file fd with the vendor's library. The caller owns fd and must keep it open until
	// the DirectFile is closed. Until the DirectFile is closed, the file must also keep a name in the file system.
	// The same fd cannot be passed to OpenFile twice at the same time. If the library refuses the file or its file
	// system, OpenFile fails with kind Unsupported, the reason and a fix.
	OpenFile(fd int) (DirectFile, error)
	// Register registers the buffer b with the vendor's library. Until unregister is called, reads and writes with
	// the base address b.Ptr() need no intermediate copy. The caller frees the buffer b only after it has called
	// unregister. A second call of unregister does nothing.
	Register(b Buffer) (unregister func() error, err error)
	// StartCounting sets the counts of Counters to zero and starts counting. If only cuFile's compatibility mode is
	// possible, the Direct counts its own operations. If another mode than compatibility mode is possible, the
	// vendor's library counts the operations. StartCounting fails with kind Unsupported if the library cannot count.
	// StartCounting also fails with kind Unsupported if it would have to change settings of a library that another
	// part of this process opened first.
	StartCounting() error
	// Counters returns the number of operations since StartCounting, by route. The field Known of DirectCounters is
	// false if nothing was counted. Counts of the library include all operations of this process on the same device.
	// Counts with CountedBy "nebulaio" include only the operations of this Direct.
	Counters() (DirectCounters, error)
	// Facts returns the properties and parameters of the vendor's library by name. Facts leaves out values that this
	// release of the library does not report.
	Facts() map[string]string
	// Close waits for running reads and writes, closes remaining files and registrations, stops counting and releases
	// the library. A second call of Close does nothing.
	Close() error
}

// DirectFile is an open file that is registered with the library. Reads and writes of a DirectFile may run
// concurrently. After Close, reads and writes of the DirectFile fail with kind Closed.
type DirectFile interface {
	// Read reads up to n bytes at offset fileOff of the file to the address base+bufOff, and returns when the bytes
	// are in memory. If Read returns fewer than n bytes and no error, the end of the file was reached. If base is not
	// the address of a registered buffer, the library makes an extra copy.
	Read(base Ptr, bufOff, n, fileOff int64) (int64, error)
	// Write writes n bytes from the address base+bufOff to offset fileOff of the file. If fewer than n bytes were
	// written, Write returns their number and an error of kind IO.
	Write(base Ptr, bufOff, n, fileOff int64) (int64, error)
	// Close removes the file's registration with the library. DirectFile.Close does not close the file descriptor.
	Close() error
}

// The Route constants are the route names that DirectCounters.Route and RouteOps.Route return.
const (
	// RouteP2P is the direct route from disk to device memory by the kernel's P2PDMA.
	RouteP2P = "p2p"
	// RouteNVFS is the direct route from disk to device memory by the kernel module nvidia-fs.
	RouteNVFS = "nvfs"
	// RouteCompat is cuFile's compatibility mode: POSIX reads and writes through host memory.
	RouteCompat = "compat"
	// RouteMixed means that the operations took more than one route.
	RouteMixed = "mixed"
	// RouteUnknown means that the counters do not show the route.
	RouteUnknown = "unknown"
	// RouteNone means that no operation was counted.
	RouteNone = "none"
)

// RouteOps counts operations of one direction, reads or writes, by route. If the library splits one operation into
// several, RouteOps counts each of the several operations.
type RouteOps struct {
	Total     int64 `json:"total"`
	P2P       int64 `json:"p2p"`
	NVFS      int64 `json:"nvfs"`
	Posix     int64 `json:"posix"`
	Unaligned int64 `json:"unaligned"` // operations through a bounce buffer of the library
	Sparse    int64 `json:"sparse"`    // operations on holes of a sparse file
	Errors    int64 `json:"errors"`
}

// Plus returns the sum of two operation counts, route by route.
func (o RouteOps) Plus(p RouteOps) RouteOps {
	return RouteOps{o.Total + p.Total, o.P2P + p.P2P, o.NVFS + p.NVFS, o.Posix + p.Posix, o.Unaligned + p.Unaligned,
		o.Sparse + p.Sparse, o.Errors + p.Errors}
}

// Minus returns o minus the earlier counts p: the operations counted since p was read.
func (o RouteOps) Minus(p RouteOps) RouteOps {
	return RouteOps{o.Total - p.Total, o.P2P - p.P2P, o.NVFS - p.NVFS, o.Posix - p.Posix, o.Unaligned - p.Unaligned,
		o.Sparse - p.Sparse, o.Errors - p.Errors}
}

// Route returns the name of the route that all counted operations took, or RouteMixed, RouteUnknown or RouteNone.
func (o RouteOps) Route() string {
	route := RouteNone
	for _, r := range []struct {
		n    int64
		name string
	}{{o.P2P, RouteP2P}, {o.NVFS, RouteNVFS}, {o.Posix, RouteCompat}} {
		switch {
		case r.n <= 0:
		case route == RouteNone:
			route = r.name
		default:
			return RouteMixed
		}
	}
	if route == RouteNone && o.Total > 0 {
		return RouteUnknown
	}
	return route
}

// String returns the counts as text, such as "posix 16, p2p 0, nvfs 0". Counts of unaligned, sparse and failed
// operations are added if they are not 0.
func (o RouteOps) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "posix %d, p2p %d, nvfs %d", o.Posix, o.P2P, o.NVFS)
	for _, r := range []struct {
		n    int64
		name string
	}{{o.Unaligned, "unaligned"}, {o.Sparse, "sparse"}, {o.Errors, "failed"}} {
		if r.n != 0 {
			fmt.Fprintf(&b, ", %s %d", r.name, r.n)
		}
	}
	return b.String()
}

// CountedByNebulaIO is the value of DirectCounters.CountedBy if NebulaIO counted the operations itself.
const CountedByNebulaIO = "nebulaio"

// DirectCounters counts the operations of one device by direction and route.
type DirectCounters struct {
	// Known is false if nothing was counted; the other fields of DirectCounters then mean nothing.
	Known bool `json:"known"`
	// CountedBy is empty if the vendor's library counted the operations. If only compatibility mode is possible,
	// CountedBy is CountedByNebulaIO. If NebulaIO counted, each successful operation counts as Posix, and Unaligned
	// and Sparse are not known.
	CountedBy  string   `json:"counted_by,omitempty"`
	Reads      RouteOps `json:"reads"`
	Writes     RouteOps `json:"writes"`
	ReadBytes  int64    `json:"read_bytes"`
	WriteBytes int64    `json:"write_bytes"`
	// Batch counts the requests of cuFile batches if the library does not count them in Reads and Writes. Releases of
	// cuFile that count batches separately count them for the whole process, not for one device.
	Batch      RouteOps `json:"batch,omitzero"`
	BatchBytes int64    `json:"batch_bytes,omitempty"`
}

// ReadRoute returns the name of the route that reads took, including reads of batches. ReadRoute is RouteUnknown if
// nothing was counted.
func (c DirectCounters) ReadRoute() string {
	if !c.Known {
		return RouteUnknown
	}
	return c.Reads.Plus(c.Batch).Route()
}

// Basis explains how NebulaIO determined the route although the vendor's library did not count operations. Basis is
// empty if the vendor's library counted operations, or if nothing was counted.
func (c DirectCounters) Basis() string {
	if !c.Known || c.CountedBy != CountedByNebulaIO {
		return ""
	}
	return "counted by nebulaio: only compatibility mode is possible here"
}

// Minus returns c minus the earlier counters p: the operations counted since p was read. If the counters c or p are
// not known, the difference is not known.
func (c DirectCounters) Minus(p DirectCounters) DirectCounters {
	if !c.Known || !p.Known {
		return DirectCounters{}
	}
	return DirectCounters{Known: true, CountedBy: c.CountedBy, Reads: c.Reads.Minus(p.Reads),
		Writes: c.Writes.Minus(p.Writes), ReadBytes: c.ReadBytes - p.ReadBytes,
		WriteBytes: c.WriteBytes - p.WriteBytes, Batch: c.Batch.Minus(p.Batch), BatchBytes: c.BatchBytes - p.BatchBytes}
}

// Route returns the name of the route that all reads and writes took. Route is RouteUnknown if nothing was counted.
func (c DirectCounters) Route() string {
	if !c.Known {
		return RouteUnknown
	}
	return c.Reads.Plus(c.Writes).Route()
}
