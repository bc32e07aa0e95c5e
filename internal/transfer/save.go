// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// WriteRequest is a request to save a file. All sources of a request together must supply every byte of the file
// exactly once.
type WriteRequest struct {
	// Path is the file to create or replace; a symbolic link is followed.
	Path string
	// Sink, if not nil, is written instead of Path. The Sink must stay open until the save has ended; then the owner
	// of the Sink makes it durable. Without Empty, only a save to a Sink may have 0 bytes.
	Sink    Sink
	Sources []Source
	// Route is auto (O_DIRECT if the file system allows it), direct (O_DIRECT or an error), buffered or, for a Sink
	// only, cufile.
	Route report.Route
	// Checksums makes the save also write the checksum file FILE.crc64nvme. If Checksums is false, the save removes an
	// old checksum file FILE.crc64nvme. For a Sink no checksum file is written; Save.Sums returns the checksums of
	// blocks of 1 MiB.
	Checksums bool
	// Sums makes the save compute checksums for Save.Sums even if it writes no checksum file.
	Sums bool
	// Empty allows a file of 0 bytes.
	Empty bool
	// Streams holds CUDA streams of the caller by device. The sources of a device are read after the work that is
	// already queued on the device's stream.
	Streams map[device.Device]uint64
}

// saves runs the saves of a lane.
type saves struct {
	*lane
	sched *sched[*Save]
	// releasing frees the disk space of replaced files after their saves.
	releasing releases
	// onStep is called before each step of a save, in tests. If it returns an error, the save fails.
	onStep func(step string) error
}

// Save is a save that is running or has ended.
//
// A save splits the file into blocks. A writer takes a block and queues the copies from its devices into a staging
// slot. After the copies, the writer computes the block's checksum while the bytes are in the CPU cache, and writes
// the block with O_DIRECT. A writer with two slots queues the copies of the next block before it writes the current
// one. When every block is written, the file is flushed to storage and renamed to its path.
type Save struct {
	task[*Save]
	e       *saves
	req     WriteRequest
	from    *sources
	pub     publication // of the new file, if the request has no Sink
	sink    Sink        // destination: the new file, or the Sink of the request
	storage vfs.Storage // storage below the sink
	cu      *cuFileSink // nil if cuFile takes no part

	sums   *checksum.Sums // nil if no checksums are computed
	sumsMu sync.Mutex     // guards sums.Blocks

	began    time.Time
	shown    tally.Start // the whole save, for a profiler
	wall     time.Duration
	tally    tally.Tally
	done     chan struct{} // closed when the result is settled
	result   error
	refusals []report.Refusal
}

// Done returns a channel that is closed when the save has ended and no longer reads the sources.
func (t *Save) Done() <-chan struct{} { return t.done }

// Err blocks until the save has ended and returns its error.
func (t *Save) Err() error {
	<-t.done
	return t.result
}

// Progress returns the number of bytes written so far, and the total number of bytes to write.
func (t *Save) Progress() (done, total int64) { return t.delivered.Load(), t.from.size }

// Sums blocks until the save has ended and returns its checksums. Sums returns nil if the save failed or computed no
// checksums. The returned checksums do not change any more.
func (t *Save) Sums() *checksum.Sums {
	<-t.done
	if t.result != nil {
		return nil
	}
	return t.sums
}

// mustBeDirect returns an error if the destination cannot be written with O_DIRECT.
func (t *Save) mustBeDirect() error {
	if ok, why := t.sink.Direct(); !ok {
		return errs.New(errs.Unsupported, "write past the page cache", t.req.Path, why.Reason).
			WithFix("use route auto, or: " + why.Fix)
	}
	return nil
}

// sum adds the bytes of c, which are in data, to the checksums of their blocks. If a block is larger than one write,
// the checksums of its writes are joined.
func (t *Save) sum(c plan.Chunk, data []byte) {
	if t.sums == nil {
		return
	}
	defer t.tally.Verified(int64(len(data)), t.tally.Begin(tally.StageChecksum))
	for off := c.Off; len(data) > 0; {
		i := off / t.sums.Block
		lo, n := t.sums.Extent(i)
		part := data[:min(int64(len(data)), lo+n-off)]
		data = data[len(part):]
		off += int64(len(part))
		sum := t.e.join.After(checksum.Of(part), lo+n-off)
		t.sumsMu.Lock()
		t.sums.Blocks[i] ^= sum
		t.sumsMu.Unlock()
	}
}
