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

// Segment is a run of bytes of one file and the place they go to.
type Segment = plan.Segment

// DefaultGap is the least number of unwanted bytes that is worth a second read; see Request.Gap.
const DefaultGap = plan.DefaultGap

// Request is one transfer.
type Request struct {
	Device   device.Device
	Peers    []Peer      // other devices that get the same bytes
	NoP2P    bool        // from staging, though they could reach each other
	Files    []*vfs.File // open until the transfer has ended
	Segments []Segment
	// Gap joins segments that follow each other in a file with fewer unwanted
	// bytes between them into one read, and so the rows of a strided one; 0
	// reads each by itself. With it, the segments of a file are in order of
	// offset. See DefaultGap.
	Gap   int64
	Route report.Route
	Cache report.CachePolicy
	// Seen, one per file or nil, says that the file was loaded before, not
	// long ago: with CacheAuto it is then kept in the page cache.
	Seen []bool
	// Stream, with HasStream, is the caller's stream whose queued work may
	// still use the destinations.
	Stream    uint64
	HasStream bool
	// Live says that the files may change while they are read, as those may that
	// the caller itself writes to; else a change fails the transfer.
	Live bool
	// Verify, one per file or nil, are the sums that files must have: nil for a
	// file that is not verified. A block that differs ends the transfer with
	// kind Corrupt, as do sums of a file of another size. Segments of a verified
	// file do not overlap.
	Verify []*checksum.Sums
	// Also are bytes whose blocks are verified though no segment holds them.
	Also []Extent
	// Parts, in the order in which Load.Ready counts them, are what the caller
	// wants to use before the transfer has ended; may be nil. Those of one file
	// do not overlap.
	Parts []Part
	// Holds, if not nil, says in words what lies in a range of a file, for the
	// error about a block that differs. Any goroutine may call it.
	Holds func(file int, off, n int64) string
}

// Extent is a run of bytes of one file.
type Extent = verify.Extent

// Part is a run of a destination that its owner wants to use as soon as it is
// final: a tensor.
type Part struct {
	File int // index into Request.Files: where its bytes come from
	Dst  device.Ptr
	Len  int64
}

// Peer is another device that gets the same bytes: each is read once.
type Peer struct {
	Device device.Device
	// From and To tie the two memories together: a byte that goes to From+x of
	// Request.Device goes to To+x here. All destinations of the request lie
	// behind From.
	From, To device.Ptr
	// Stream, with HasStream, is the caller's stream on this device whose
	// queued work may still use the destinations.
	Stream    uint64
	HasStream bool
}

// runs is what is read for the segments of the request.
func (r *Request) runs() iter.Seq[plan.Run] {
	_, addressable := r.Device.(device.Mapper)
	return plan.Runs(r.Segments, r.Gap, addressable)
}

// Ways of bytes to a peer.
const (
	// PeerP2P: the first device wrote them to the peer's memory by itself.
	PeerP2P = "p2p"
	// PeerStaging: they were copied from the same staging slot.
	PeerStaging = "staging"
	// PeerMemory: both are host memory, and they were copied by the CPU.
	PeerMemory = "memory"
)
