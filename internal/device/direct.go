// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strings"
)

// Direct moves bytes between files and one device's memory through the vendor's
// library, without our staging. The library decides whether the bytes bypass the CPU,
// and only Counters show it. All methods are safe for concurrent use from any
// goroutine. They do not change the calling thread's device state.
type Direct interface {
	// Version returns the library's release, such as "1.15".
	Version() string
	// OpenFile registers an open file with the library. The caller owns fd and keeps it
	// open longer than the DirectFile. The file must keep a name until then. The same fd
	// cannot be opened twice. If the library refuses the file or its file system, the
	// error is of kind Unsupported and has the reason and a fix.
	OpenFile(fd int) (DirectFile, error)
	// Register prepares a buffer of this device, so that reads and writes whose
	// base is b.Ptr() need no intermediate copy, until unregister is called.
	// The buffer is freed after that. A second call of unregister does nothing.
	Register(b Buffer) (unregister func() error, err error)
	// StartCounting makes Counters count from zero. Where only compatibility mode
	// is possible, this Direct counts its own operations and leaves the library's
	// statistics off. Elsewhere the library counts. If another part of this process
	// opened the library before, its settings are not changed. Then, and with a
	// library that cannot count, the error is of kind Unsupported.
	StartCounting() error
	// Counters returns the operations since StartCounting, by route. Known is false
	// where nobody counted. The library counts for the whole process, so that others'
	// traffic to the same device is included. Counts of CountedByNebulaIO include
	// this Direct's operations alone.
	Counters() (DirectCounters, error)
	// Facts returns the library's properties and parameters by name, without those that
	// this release does not report.
	Facts() map[string]string
	// Close closes remaining files and registrations, stops counting and releases the
	// library. It waits for running reads and writes. A second call does nothing.
	Close() error
}

// DirectFile is an open file that the library knows. Reads and writes run
// concurrently; after Close they are of kind Closed.
type DirectFile interface {
	// Read moves up to n bytes at fileOff of the file to bufOff behind base and
	// returns when they are there. Fewer than n with a nil error is the end of
	// the file, 0 is at or behind it. base is that of a registered buffer; any
	// other address of the device works too, through a copy of the library's.
	Read(base Ptr, bufOff, n, fileOff int64) (int64, error)
	// Write moves n bytes the other way. Fewer than n is an error of kind IO,
	// returned with the number that was written.
	Write(base Ptr, bufOff, n, fileOff int64) (int64, error)
	// Close makes the library forget the file. fd stays open.
	Close() error
}

// Route names of DirectCounters.Route and RouteOps.Route.
const (
	// RouteP2P is from the disk to the device, by the kernel's own P2PDMA.
	RouteP2P = "p2p"
	// RouteNVFS is from the disk to the device, by nvidia-fs.
	RouteNVFS = "nvfs"
	// RouteCompat is through host memory, with POSIX reads and writes.
	RouteCompat = "compat"
	// RouteMixed is more than one of them.
	RouteMixed = "mixed"
	// RouteUnknown means that the counters do not tell.
	RouteUnknown = "unknown"
	// RouteNone means that nothing was counted.
	RouteNone = "none"
)

// RouteOps counts operations of one direction by the route they took. An
// operation that the library split counts once for each part.
type RouteOps struct {
	Total     int64 `json:"total"`
	P2P       int64 `json:"p2p"`
	NVFS      int64 `json:"nvfs"`
	Posix     int64 `json:"posix"`
	Unaligned int64 `json:"unaligned"` // went through a buffer of the library's
	Sparse    int64 `json:"sparse"`    // met holes of the file
	Errors    int64 `json:"errors"`
}

// Plus returns the sum of two counts.
func (o RouteOps) Plus(p RouteOps) RouteOps {
	return RouteOps{o.Total + p.Total, o.P2P + p.P2P, o.NVFS + p.NVFS, o.Posix + p.Posix, o.Unaligned + p.Unaligned,
		o.Sparse + p.Sparse, o.Errors + p.Errors}
}

// Minus returns the counts since p.
func (o RouteOps) Minus(p RouteOps) RouteOps {
	return RouteOps{o.Total - p.Total, o.P2P - p.P2P, o.NVFS - p.NVFS, o.Posix - p.Posix, o.Unaligned - p.Unaligned,
		o.Sparse - p.Sparse, o.Errors - p.Errors}
}

// Route names the route of the operations.
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

// String lists the counts that matter for the route, and the others where they
// are not zero: "posix 16, p2p 0, nvfs 0".
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

// CountedByNebulaIO is the CountedBy of counts that NebulaIO made.
const CountedByNebulaIO = "nebulaio"

// DirectCounters counts operations by route for one device.
type DirectCounters struct {
	Known bool `json:"known"` // false: the rest is zero and means nothing
	// CountedBy is empty if the library counted. It is CountedByNebulaIO where
	// only compatibility mode is possible: each operation that succeeded counts as
	// Posix, because no other route exists. Unaligned and Sparse are not known then.
	CountedBy  string   `json:"counted_by,omitempty"`
	Reads      RouteOps `json:"reads"`
	Writes     RouteOps `json:"writes"`
	ReadBytes  int64    `json:"read_bytes"`
	WriteBytes int64    `json:"write_bytes"`
	// Batch are requests of batches, which some releases count for the whole
	// process alone and in none of the counts above.
	Batch      RouteOps `json:"batch,omitzero"`
	BatchBytes int64    `json:"batch_bytes,omitempty"`
}

// ReadRoute names the route of reads. It includes batches that were counted
// separately.
func (c DirectCounters) ReadRoute() string {
	if !c.Known {
		return RouteUnknown
	}
	return c.Reads.Plus(c.Batch).Route()
}

// Basis explains why the route is known although the library did not count. It is
// empty if the library counted, or if nobody did.
func (c DirectCounters) Basis() string {
	if !c.Known || c.CountedBy != CountedByNebulaIO {
		return ""
	}
	return "counted by nebulaio: only compatibility mode is possible here"
}

// Minus returns the counts since p. They are unknown if either is.
func (c DirectCounters) Minus(p DirectCounters) DirectCounters {
	if !c.Known || !p.Known {
		return DirectCounters{}
	}
	return DirectCounters{Known: true, CountedBy: c.CountedBy, Reads: c.Reads.Minus(p.Reads),
		Writes: c.Writes.Minus(p.Writes), ReadBytes: c.ReadBytes - p.ReadBytes,
		WriteBytes: c.WriteBytes - p.WriteBytes, Batch: c.Batch.Minus(p.Batch), BatchBytes: c.BatchBytes - p.BatchBytes}
}

// Route names the route of reads and writes together. It is unknown if nobody
// counted.
func (c DirectCounters) Route() string {
	if !c.Known {
		return RouteUnknown
	}
	return c.Reads.Plus(c.Writes).Route()
}
