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

// WriteRequest is one save: a file made of sources, which tile it.
type WriteRequest struct {
	// Path is the file to be made or replaced; a link is followed.
	Path string
	// Sink, in place of Path, is written instead: open until Done, and then
	// its owner's to make durable. Only here there may be nothing to save.
	Sink    Sink
	Sources []Source
	// Route is auto (direct where the file system allows it), direct (an error
	// where it does not), buffered or, to a sink, cufile.
	Route report.Route
	// Checksums writes FILE.crc64nvme too. Without it, one that is there does
	// not stay beside a file that it is not of. To a sink nothing is written
	// beside: Save.Sums has them, of blocks of 1 MiB.
	Checksums bool
	// Streams are, by device, the caller's streams whose queued work may still
	// write the sources.
	Streams map[device.Device]uint64
}

// saves is what runs the saves of a lane.
type saves struct {
	*lane
	sched *sched[*Save]
	// releasing gives the space of replaced files back behind their saves.
	releasing releases
	// onStep, in tests, hears of each step of a save before it is taken, and
	// fails the save by an error.
	onStep func(step string) error
}

// Save is one running or ended save.
//
// The flow of a byte: the file is cut at multiples of the block; a writer takes
// a block, queues the copies of its pieces from their devices into a staging
// slot, waits for the marks behind them, sums the block while it is hot, and
// writes it past the page cache. A writer with two slots queues the copies of
// the next block before it writes the one at hand. When every block is written,
// the file is made durable and takes its name.
type Save struct {
	task[*Save]
	e       *saves
	req     WriteRequest
	from    *sources
	pub     publication // of the draft, where the sink is not somebody else's
	sink    Sink        // what is written: the draft, or the request's own
	storage vfs.Storage // below the sink
	cu      *cuFileSink // nil: cuFile takes no part

	sums   *checksum.Sums // nil: none are made
	sumsMu sync.Mutex     // guards sums.Blocks

	began    time.Time
	wall     time.Duration
	tally    tally.Tally
	done     chan struct{} // closed when the result is settled
	result   error
	refusals []report.Refusal
}

// Done is closed when the save has ended and nothing of the sources is read any more.
func (t *Save) Done() <-chan struct{} { return t.done }

// Err is the result; it blocks until Done.
func (t *Save) Err() error {
	<-t.done
	return t.result
}

// Progress is how many bytes have been written, of how many.
func (t *Save) Progress() (done, total int64) { return t.delivered.Load(), t.from.size }

// Sums are the checksums of a save that made some, complete when it has
// ended well; it blocks until Done, and is nil otherwise. They are not changed any more.
func (t *Save) Sums() *checksum.Sums {
	<-t.done
	if t.result != nil {
		return nil
	}
	return t.sums
}

// mustBeDirect fails where what is written cannot be written past the page cache.
func (t *Save) mustBeDirect() error {
	if ok, why := t.sink.Direct(); !ok {
		return errs.New(errs.Unsupported, "write past the page cache", t.req.Path, why.Reason).
			WithFix("use route auto, or: " + why.Fix)
	}
	return nil
}

// sum adds the bytes of c, which are in data, to the sums of their blocks.
// Where a block is larger than what is written at once, its pieces are joined.
func (t *Save) sum(c plan.Chunk, data []byte) {
	if t.sums == nil {
		return
	}
	defer t.tally.Verified(int64(len(data)), time.Now())
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
