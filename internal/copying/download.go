// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/copying/journal"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// download is one content on its way into a draft.
type download struct {
	c    *Copier
	src  source
	size int64
	f    facts
	d    *draft
	sums *wholeSums

	mu       sync.Mutex
	j        *journal.Journal
	have     []bool // by block: in the draft, and summed
	left     int64  // blocks that are missing
	queue    []*piece
	running  []*piece
	took     time.Duration // of all pieces that are done
	finished int
	hedged   int64
	moved    int64
	failed   error         // the first block that could not be written; no other request can make up for it
	done     chan struct{} // closed when no block is missing
}

// piece is a range of blocks that one request reads. A slow piece is requested a second time.
type piece struct {
	first, end int64 // blocks
	left       int   // blocks that are missing
	began      time.Time
	readers    int
	hedged     bool
	cancel     context.CancelCauseFunc
}

// errBeaten ends a request whose piece another request has finished.
var errBeaten = errors.New("another request was faster")

// download copies a source into a target, and resumes what an earlier copy left.
func (c *Copier) download(ctx context.Context, src source, t target) (r Result, err error) {
	id := src.id()
	if journal.Blocks(id.Size) > checksum.MaxBlocks {
		return r, errs.New(errs.Unsupported, "copy", src.name(), fmt.Sprintf("has %d bytes, expected at most %d", id.Size,
			int64(checksum.MaxBlocks)*block))
	}
	dr, err := t.openDraft()
	if err != nil {
		return r, err
	}
	defer dr.close()
	d := &download{c: c, src: src, size: id.Size, f: src.facts(), d: dr, have: make([]bool, journal.Blocks(id.Size)),
		done: make(chan struct{})}
	d.left = int64(len(d.have))
	d.sums = newWholeSums(d.f, id.Size, c.join)
	if err := d.open(ctx); err != nil {
		return r, err
	}
	resumed := id.Size - d.missingBytes()
	c.moved.Add(resumed)
	err = d.run(ctx)
	if e := d.j.Close(); err == nil && e != nil {
		r.Notes = append(r.Notes, e.Error())
	}
	if err != nil {
		return r, err
	}
	r = Result{Source: src.name(), Destination: t.path, Bytes: id.Size, Moved: d.moved, Resumed: resumed, Way: d.f.way,
		Hedged: d.hedged, Notes: r.Notes}
	if r.Verified, err = d.verify(); err != nil {
		// What the journal says is of no use any more: the next copy begins anew.
		return r, errors.Join(err, t.remove(t.beside(journalSuffix)), t.remove(dr.temp))
	}
	if err := src.unchanged(); err != nil {
		return r, errors.Join(err, t.remove(t.beside(journalSuffix)), t.remove(dr.temp))
	}
	r.CRC64 = fmt.Sprintf("%016x", d.sums.crc64())
	if err := dr.publish(d.f.modified); err != nil {
		return r, err
	}
	if c.o.ChecksumFiles {
		s := &checksum.Sums{Size: id.Size, Block: block, Blocks: d.sums.blocks}
		if _, err := s.Write(t.path); err != nil {
			return r, err
		}
	}
	c.files.Add(1)
	return r, t.remove(t.beside(journalSuffix))
}

func (d *download) missingBytes() int64 {
	n := int64(0)
	for i, have := range d.have {
		if !have {
			_, size := d.extent(int64(i))
			n += size
		}
	}
	return n
}

// extent returns the offset and the size of a block.
func (d *download) extent(i int64) (off, n int64) {
	off = i * block
	return off, min(block, d.size-off)
}

// open opens the journal, and takes over the blocks of the draft that have the checksums of the journal.
func (d *download) open(ctx context.Context) error {
	id := d.src.id()
	j, sums, err := journal.Open(d.d.dir, d.d.beside(journalSuffix), id)
	if err != nil {
		return err
	}
	if j == nil { // the draft is of another content, or of none
		if err := d.d.f.Truncate(0); err != nil {
			return d.d.fail("empty draft of", err)
		}
		if j, err = journal.Create(d.d.dir, d.d.beside(journalSuffix), id); err != nil {
			return err
		}
	}
	d.j = j
	if err = d.adopt(ctx, sums); err == nil {
		err = d.d.grow(d.size)
	}
	if err != nil {
		return errors.Join(err, j.Close())
	}
	return nil
}

// adopt compares the blocks of the draft with the checksums of the journal.
func (d *download) adopt(ctx context.Context, sums journal.Sums) error {
	next := make(chan int64)
	var group sync.WaitGroup
	for range readers() {
		group.Go(func() {
			buf := d.c.buffers.Get().(*[]byte)
			defer d.c.buffers.Put(buf)
			for i := range next {
				off, n := d.extent(i)
				p := (*buf)[:n]
				if got, err := d.d.f.ReadAt(p, off); got < len(p) || err != nil && err != io.EOF {
					continue // a draft that is too short lacks the block
				}
				if s := d.sums.of(p); s.crc64 == sums[i] {
					d.mu.Lock()
					d.sums.set(i, s)
					d.have[i] = true
					d.left--
					d.mu.Unlock()
				}
			}
		})
	}
	for i := range sums {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	group.Wait()
	return errs.Wrap("copy", d.src.name(), context.Cause(ctx))
}

// plan makes pieces of at most `most` blocks of those that are missing.
func (d *download) plan(most int64) {
	for i := int64(0); i < int64(len(d.have)); {
		if d.have[i] {
			i++
			continue
		}
		p := &piece{first: i}
		for ; i < int64(len(d.have)) && !d.have[i] && i-p.first < most; i++ {
			p.left++
		}
		p.end = i
		d.queue = append(d.queue, p)
	}
}

// run fetches every missing block.
func (d *download) run(ctx context.Context) error {
	if d.left == 0 {
		return nil
	}
	workers, blocks := d.c.pieces(d.f, d.size)
	d.plan(blocks)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range min(len(d.queue), workers) {
		group.Go(func() {
			for ctx.Err() == nil {
				p := d.next(ctx)
				if p == nil {
					return
				}
				if err := d.request(ctx, p); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	if d.left == 0 {
		return nil
	}
	return context.Cause(ctx)
}

// next takes the next piece of the queue. When the queue is empty, it waits for a piece that has become slow, and
// returns nil when every block is there.
func (d *download) next(ctx context.Context) *piece {
	d.mu.Lock()
	if len(d.queue) > 0 {
		p := d.queue[0]
		d.queue = d.queue[1:]
		d.running = append(d.running, p)
		d.mu.Unlock()
		return p
	}
	d.mu.Unlock()
	if !d.f.remote || d.f.way != "http" {
		return nil
	}
	tick := time.NewTicker(hedgeTick)
	defer tick.Stop()
	for {
		if p := d.slow(time.Now()); p != nil {
			return p
		}
		select {
		case <-d.done:
			return nil
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Times after which a piece counts as slow.
const (
	hedgeTick  = 20 * time.Millisecond
	hedgeLeast = 250 * time.Millisecond // more than a piece usually takes, so that few requests are made in vain
	hedgeBlind = 5 * time.Second        // as long as nothing is known of other pieces
)

// slow returns a piece that takes more than three times as long as the others did, to be requested a second time.
func (d *download) slow(now time.Time) *piece {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := hedgeBlind
	if d.finished > 0 {
		after = hedgeLeast + 3*d.took/time.Duration(d.finished)
	}
	for _, p := range d.running {
		if p.left > 0 && !p.hedged && p.readers == 1 && now.Sub(p.began) > after {
			p.hedged = true
			d.hedged++
			return p
		}
	}
	return nil
}

// request reads the missing blocks of a piece with one request.
func (d *download) request(ctx context.Context, p *piece) error {
	if err := d.c.gate.enter(ctx); err != nil {
		return err
	}
	defer d.c.gate.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.mu.Lock()
	first := p.first
	for first < p.end && d.have[first] {
		first++
	}
	if p.readers++; p.readers == 1 {
		p.began, p.cancel = time.Now(), cancel
	} else {
		other := p.cancel
		p.cancel = func(cause error) { other(cause); cancel(cause) }
	}
	d.mu.Unlock()
	err := d.read(ctx, p, first)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.readers--
	switch {
	case d.failed != nil:
		return d.failed
	case err == nil || p.left == 0 || p.readers > 0:
		return nil // the piece is whole, or another request is still at it
	}
	return err
}

// read reads blocks [first, p.end) in order.
func (d *download) read(ctx context.Context, p *piece, first int64) error {
	if first == p.end {
		return nil
	}
	off, _ := d.extent(first)
	last, n := d.extent(p.end - 1)
	body, err := d.src.fetch(ctx, off, last+n-off)
	if err != nil {
		return err
	}
	defer body.Close()
	buf := d.c.buffers.Get().(*[]byte)
	defer d.c.buffers.Put(buf)
	for i := first; i < p.end; i++ {
		_, n := d.extent(i)
		b := (*buf)[:n]
		s, err := d.sums.read(ctx, body, b, d.c.limit)
		if err != nil {
			return err
		}
		if err := d.store(p, i, b, s); err != nil {
			return err
		}
	}
	return nil
}

// store writes one block into the draft and records it. Of two requests for a block, the first one stores it.
func (d *download) store(p *piece, i int64, b []byte, s blockSums) error {
	if want := d.f.blocks; want != nil && want.Blocks[i] != s.crc64 {
		return errs.New(errs.Corrupt, "copy", d.src.name(), fmt.Sprintf("block %d has the checksum %016x, expected %016x", i,
			s.crc64, want.Blocks[i]))
	}
	d.mu.Lock()
	if d.have[i] {
		d.mu.Unlock()
		return nil
	}
	d.have[i] = true // claimed
	d.mu.Unlock()
	off, _ := d.extent(i)
	err := d.d.write(b, off)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.failed = err
		return err
	}
	d.sums.set(i, s)
	d.j.Add(i, s.crc64)
	d.c.moved.Add(int64(len(b)))
	d.moved += int64(len(b))
	d.left--
	if p.left--; p.left == 0 {
		d.took += time.Since(p.began)
		d.finished++
		p.cancel(errBeaten)
	}
	if d.left == 0 {
		close(d.done)
	}
	return nil
}

// verify compares the whole content with what the server knows about it.
func (d *download) verify() (string, error) {
	if how, ok := d.sums.compare(); ok {
		return how, nil
	} else if how != "" {
		return "", errs.New(errs.Corrupt, "copy", d.src.name(), "the content differs from the checksum that the server "+
			"keeps: "+how).WithFix("copy it again; if it differs again, the object is damaged on the server")
	}
	if d.f.md5 != "" {
		return d.compareMD5()
	}
	if !d.f.remote {
		return "length", nil
	}
	return "length+etag", nil
}
