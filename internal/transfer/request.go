// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"iter"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/verify"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Segment is a range of one file and its destination in device memory.
type Segment = plan.Segment

// DefaultGap is the recommended value of Request.Gap: from 64 KiB of unwanted bytes on, two reads are faster than one
// read across the gap.
const DefaultGap = plan.DefaultGap

// Request is a request to load ranges of files into device memory.
type Request struct {
	Device   device.Device
	Peers    []Peer      // other devices that receive a copy of the loaded bytes
	NoP2P    bool        // true to copy to each peer from host memory, even if the GPUs can copy to each other
	Files    []*vfs.File // files to read, which stay open until the load has ended
	Segments []Segment
	// Gap is the smallest number of unwanted bytes between two segments for which the segments are read separately.
	// Segments, or rows of a strided segment, with fewer unwanted bytes than Gap between them are covered by one read.
	// If Gap is 0, each segment is read separately. If Gap is not 0, the segments of a file must be sorted by offset.
	// See DefaultGap.
	Gap   int64
	Route report.Route
	Cache report.CachePolicy
	// Seen has an entry for each file, or is nil. An entry of Seen is true if the file was loaded a short time ago;
	// CacheAuto may then keep the file in the page cache.
	Seen []bool
	// Fresh is true if the files were opened a moment ago. The plan of the load then uses what the opening found in
	// the page cache (vfs.ResidencyAtOpen), and asks only for the rest. The report counts what the reads find.
	Fresh bool
	// Stream is a CUDA stream of the caller and is used if HasStream is set. Copies begin after the work that is
	// already queued on the stream.
	Stream    uint64
	HasStream bool
	// Live is true if the files may change while they are read, for example because the caller writes to them. If Live
	// is false and a file changes during the load, the load fails.
	Live bool
	// Verify has the expected checksums of each file, or is nil. An entry of Verify is nil if the file is not
	// verified. If a block does not match its checksum, or the checksums are for a file of another size, the load
	// fails with kind Corrupt. Segments of a verified file must not overlap.
	Verify []*checksum.Sums
	// Also lists further file ranges, outside of all segments, that are verified but not loaded. Every block with a
	// byte of a range in Also is verified.
	Also []Extent
	// Parts are the parts of the destination that the caller wants to use before the load has ended, in the order in
	// which Load.Ready counts them. Parts may be nil. Parts of one file must not overlap.
	Parts []Part
	// Holds, if not nil, describes the content of a file range in words, for the error about a damaged block. Any
	// goroutine may call Holds.
	Holds func(file int, off, n int64) string
}

// Extent is a range of bytes of one file.
type Extent = verify.Extent

// Part is a range of a destination, such as a tensor, that the caller wants to use as soon as its bytes are final.
type Part struct {
	File int // index into Request.Files of the file with the bytes
	Dst  device.Ptr
	Len  int64
}

// Peer is another device that receives a copy of the loaded bytes, without a second read from storage.
type Peer struct {
	Device device.Device
	// From and To map addresses of Request.Device to addresses of the peer: the byte for From+x is also copied to
	// To+x. No destination address of the request is below From.
	From, To device.Ptr
	// Stream is a CUDA stream of the caller on the peer and is used if HasStream is set. Copies to the peer begin
	// after the work that is already queued on the stream.
	Stream    uint64
	HasStream bool
}

// runs yields the ranges that are read for the segments of the request.
func (r *Request) runs() iter.Seq[plan.Run] {
	_, addressable := r.Device.(device.Mapper)
	return plan.Runs(r.Segments, r.Gap, addressable, r.joint)
}

// joint reports whether the rows of a strided segment of a file stay one run until the planner has asked which of them
// are in the page cache.
func (r *Request) joint(file int) bool {
	verified := file < len(r.Verify) && r.Verify[file] != nil
	return (r.Route == report.RouteAuto || r.Route == report.RouteBuffered) && !verified &&
		r.Files[file].Remote() == nil
}

// Ways in which bytes reach a peer, which is a further destination device of a load.
const (
	// PeerP2P means that the bytes were copied from the first device to the peer, from GPU to GPU.
	PeerP2P = "p2p"
	// PeerStaging means that the bytes were copied to the peer from the staging slot in host memory.
	PeerStaging = "staging"
	// PeerMemory means that both devices are host memory and the CPU copied the bytes.
	PeerMemory = "memory"
)
