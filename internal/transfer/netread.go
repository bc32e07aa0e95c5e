// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Reads over a network. The chunks of a remote file are as large as a slot. A
// fetcher is a goroutine with two slots: it takes a run of neighbouring chunks,
// asks for them in one request, and reads the body, chunk by chunk, from the
// socket into a slot, while the other slot is on its way to the device; where memory is
// addressable, into place.
const (
	// netBlock is a slot: large enough that one read of the socket takes all
	// that has arrived and that a copy to a GPU is worth its start (slots of 1 MiB
	// were a fifth slower on an H200), small enough to stay in a cache until it is summed and copied.
	netBlock = 2 * units.MiB
	// A request asks for an equal share of what is left, within these bounds: few
	// requests, each of which costs a round trip, and at the end no connection that works alone.
	leastFetch = 4 * units.MiB
	mostFetch  = 64 * units.MiB
	// netGap is up to how many unwanted bytes are taken off the wire rather
	// than ask anew: about what arrives in the time of a round trip.
	netGap = 256 * units.KiB
	// mostFetchers bounds the connections that read at once, whatever remotes ask for.
	mostFetchers = 64
	// netFlush is how many chunks are planned before the first is asked for:
	// a request for a single one would be a waste.
	netFlush = 256
)

// network is the engine's side of remotes; guarded by Engine.mu.
type network struct {
	fetchers int
	pairs    chan [2]*slot // staging of uploads; nil until the first one
	paired   int           // how many there are
}

// netUse is a transfer's side of them.
type netUse struct {
	ctx    context.Context // of its requests; nil: no file is remote
	cancel context.CancelFunc
	queued []plan.Chunk // planned, not yet handed over; the planner's
	want   int          // how many requests at once are worth while
	// Guarded by sched.mu.
	left     int64 // bytes that are queued, or will be
	inFlight int   // requests
}

// abort ends the requests under way.
func (n *netUse) abort() {
	if n.cancel != nil {
		n.cancel()
	}
}

// validateNetwork refuses routes that a remote file does not have.
func (t *Transfer) validateNetwork() error {
	for _, f := range t.req.Files {
		if f.Remote() != nil && t.req.Route == report.RouteCuFile {
			return errs.New(errs.Unsupported, "read through cuFile", f.Path(), "it is read over a network").WithFix("use route auto")
		}
	}
	return nil
}

// openNetwork gives a transfer with remote files a context that ends with it.
func (t *Transfer) openNetwork(ctx context.Context) context.Context {
	for _, f := range t.req.Files {
		if r := f.Remote(); r != nil {
			t.net.want = max(t.net.want, 1, min(r.Parallel(), mostFetchers))
		}
	}
	if t.net.want > 0 {
		t.net.left = t.total
		t.net.ctx, t.net.cancel = context.WithCancel(ctx)
	}
	return ctx
}

func (t *Transfer) closeNetwork() { t.net.abort() }

// addNetwork takes a chunk from the planner; false when the transfer has failed.
func (t *Transfer) addNetwork(c plan.Chunk) bool {
	t.net.queued = append(t.net.queued, c)
	return len(t.net.queued) < netFlush || t.flushNetwork()
}

// flushNetwork hands what was planned to the fetchers.
func (t *Transfer) flushNetwork() bool {
	cs := t.net.queued
	t.net.queued = nil
	if len(cs) == 0 {
		return true
	}
	if err := t.e.ensure(plan.ViaNetwork, t); err != nil {
		t.e.sched.stop(t, err)
		return false
	}
	s := t.e.sched
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		return false
	}
	for _, c := range cs {
		s.queue(t, c)
	}
	t.outstanding += len(cs)
	return true
}

// ensureFetchers starts as many as the transfer's remotes want, with slots of
// their own beside the pool.
func (e *Engine) ensureFetchers(t *Transfer) error {
	want := t.net.want
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := want - e.network.fetchers; n > 0 {
		r, err := hostmem.MapFor("map staging memory for reads over the network", "use fewer connections", int64(2*n)*netBlock)
		if err != nil {
			return err
		}
		slots := e.pool.adopt(r, 2*n, netBlock)
		for i := range n {
			// The first slots of all lie side by side, and are pinned first.
			f := &fetcher{worker{e: e, way: plan.ViaNetwork, slots: []*slot{slots[i], slots[n+i]}}}
			e.spawn(f.run)
		}
		e.network.fetchers = want
		if dev := t.port.dev; t.port.mapper == nil {
			e.pool.preparing.Go(func() {
				for _, s := range slots {
					s.part.ensure(dev)
				}
			})
		}
	}
	t.prepared[plan.ViaNetwork] = t.prepared[plan.ViaNetwork] || t.port.mapper == nil || t.packs
	return nil
}

// nextFetch takes a run of chunks of one transfer, which has not as many
// requests in flight as it wants: its share of what is left of it.
func (s *sched) nextFetch(block bool) (*Transfer, []plan.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := func(t *Transfer) bool { return t.net.inFlight < t.net.want }
	at := slices.IndexFunc(s.turns[plan.ViaNetwork], waiting)
	for ; at < 0; at = slices.IndexFunc(s.turns[plan.ViaNetwork], waiting) {
		if s.closed || !block {
			return nil, nil
		}
		s.wake[plan.ViaNetwork].Wait()
	}
	t := s.turns[plan.ViaNetwork][at]
	s.turns[plan.ViaNetwork] = slices.Delete(s.turns[plan.ViaNetwork], at, at+1)
	q := t.queue[plan.ViaNetwork]
	share := max(leastFetch, min(mostFetch, t.net.left/int64(t.net.want)))
	n, bytes := 0, int64(0)
	for n < len(q) && (n == 0 || bytes+q[n].Len <= share && follows(q[n-1], q[n])) {
		bytes += q[n].Len
		n++
	}
	t.queue[plan.ViaNetwork] = q[n:]
	t.net.left -= bytes
	t.net.inFlight++
	if n < len(q) {
		s.turns[plan.ViaNetwork] = append(s.turns[plan.ViaNetwork], t)
	}
	return t, q[:n:n]
}

// fetched counts a request off; another fetcher may have waited for that.
func (s *sched) fetched(t *Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.net.inFlight--
	if len(t.queue[plan.ViaNetwork]) > 0 {
		s.wake[plan.ViaNetwork].Signal()
	}
}

// follows reports whether b is read by the request that reads a.
func follows(a, b plan.Chunk) bool {
	gap := b.Off - a.Off - a.Len
	return a.File == b.File && gap >= 0 && gap <= netGap
}

// fetcher is one request in flight.
type fetcher struct{ worker }

func (f *fetcher) run() {
	for {
		t, cs := f.e.sched.nextFetch(false)
		if t == nil {
			// Nothing to do: deliver what is under way before sleeping.
			for _, s := range f.slots {
				f.e.settleSlot(s)
			}
			if t, cs = f.e.sched.nextFetch(true); t == nil {
				return
			}
		}
		f.fetch(t, cs)
		f.e.sched.fetched(t)
	}
}

// fetch reads a run of chunks, which lie in one file and follow each other, in
// one request. Its body is closed before the last of them is settled: when a transfer has
// ended, its remotes are at rest.
func (f *fetcher) fetch(t *Transfer, cs []plan.Chunk) {
	start := time.Now()
	file, off := t.req.Files[cs[0].File], cs[0].Off
	last := cs[len(cs)-1]
	var body io.ReadCloser
	var err error
	if !f.e.sched.hasFailed(t) {
		body, err = file.Remote().Fetch(t.net.ctx, off, last.Off+last.Len-off)
	}
	done := func() {
		if body != nil {
			_ = body.Close() // what was wanted of it has come, or its error is known
			body = nil
		}
	}
	for i, c := range cs {
		var s *slot
		var buf []byte
		if err == nil {
			buf, s, err = f.read(t, body, c, off)
		}
		if err != nil || buf == nil || i == len(cs)-1 {
			done()
		}
		switch {
		case err != nil:
			f.failed(t, err)
		case buf == nil:
			f.e.sched.drop(t)
		default:
			off = c.Off + c.Len
			t.tally.read(c, report.RouteTakenNetwork, c.Len, start)
			f.e.deliver(t, c, buf, s)
			start = time.Now()
		}
	}
}

// read takes the bytes of c from a body that is at off; nil where the transfer
// has failed meanwhile.
func (f *fetcher) read(t *Transfer, body io.Reader, c plan.Chunk, off int64) (buf []byte, s *slot, err error) {
	if f.e.sched.hasFailed(t) {
		return nil, nil, nil
	}
	if gap := c.Off - off; gap > 0 {
		if err := f.skip(body, gap); err != nil {
			return nil, nil, err
		}
		t.tally.padding.Add(gap)
	}
	if t.inPlace(c) {
		buf = t.port.mapper.Map(c.Dst, c.Len)
	} else if s = f.slot(t); s != nil {
		buf = s.mem[:c.Len]
	} else {
		return nil, nil, nil
	}
	if _, err = io.ReadFull(body, buf); err != nil {
		return nil, nil, errs.Wrap(fmt.Sprintf("read %d bytes from offset %d of", c.Len, c.Off), t.req.Files[c.File].Path(), err)
	}
	return buf, s, nil
}

// skip takes n unwanted bytes off the wire.
func (f *fetcher) skip(body io.Reader, n int64) error {
	s := f.slots[f.turn]
	f.e.settleSlot(s)
	_, err := io.ReadFull(body, s.mem[:n])
	return err
}

// failed ends a transfer over a read; one that was cancelled says so.
func (f *fetcher) failed(t *Transfer, err error) {
	if t.net.ctx.Err() != nil && !f.e.sched.hasFailed(t) {
		err = t.cancelled(t.net.ctx)
	}
	f.e.sched.failed(t, err)
}

// networkLimit names what held reads over the network up; mu is held.
func (y *tally) networkLimit() string {
	if y.copyWait > y.network.busy {
		return "copy to device"
	}
	return "network read"
}

// describeNetwork tells what the servers were asked.
func (t *Transfer) describeNetwork(r *report.Report) {
	if t.net.ctx == nil {
		return
	}
	n := &report.Network{Fetchers: t.net.want}
	for _, f := range t.req.Files {
		if c, ok := f.Remote().(vfs.Counted); ok {
			u := c.Traffic()
			n.Requests += u.Requests
			n.Retries += u.Retries
			n.Connections += u.Connections
		}
	}
	r.Network = n
	only := [plan.Ways]bool{plan.ViaNetwork: true}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if t.prepared == only {
		r.Engine.StagingSize = int64(t.e.network.fetchers) * 2 * netBlock
	}
}

// remoteMismatch is the error for content that is not what its server says.
func (t *Transfer) remoteMismatch(file int, block int64, got uint64, on string) error {
	f, s := t.req.Files[file], t.req.Verify[file]
	off, n := s.Extent(block)
	msg := fmt.Sprintf("bytes %d to %d differ from the checksum that the server keeps: theirs is %016x, expected %016x", off, off+n, got, s.Blocks[block]) + summedOn(on)
	if t.req.Holds != nil {
		msg += "; they hold " + t.req.Holds(file, off, n)
	}
	return errs.New(errs.Corrupt, "verify", f.Path(), msg).WithFix("read it again; if it differs again, the object is damaged on the server: store it anew from a good copy")
}
