// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// batchesComing is the number of batches whose files are opened before their turn, the next one included. To open the
// files of a batch of objects takes a round trip to the server, during which the loader would otherwise stand still.
const batchesComing = 8

// coming is a batch that is planned, and whose files are being opened.
type coming struct {
	b      *Batch
	plans  []dataset.Batch
	files  []int           // numbers of the batch's files, each once
	opened <-chan struct{} // closed when the files are open; nil if they were
	err    error           // of the plan
}

// announce plans a batch and begins to open its files.
func (l *Loader) announce(b *Batch) coming {
	c := coming{b: b}
	if c.plans, c.err = l.plan(b); c.err == nil {
		c.files = numbers(c.plans)
		c.opened = l.files.prepare(l.ctx, l.o.Set, c.files)
	}
	return c
}

// await waits until the files of the batch are open, as far as they can be opened.
func (c *coming) await() {
	if c.opened != nil {
		<-c.opened
	}
}

// start waits for room, begins to read a batch, and queues it.
func (l *Loader) start(c coming) error {
	if c.err != nil {
		return c.err
	}
	b := c.b
	if !l.room(b.bytes, len(c.files)) {
		return l.ctx.Err()
	}
	if err := l.begin(b, c.plans); err != nil {
		b.Free()
		l.files.release(b.files)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = append(l.ready, b)
	l.ahead += b.bytes
	l.using += len(b.files)
	l.change.Broadcast()
	return nil
}

// plan finds the bytes of a batch, column by column.
func (l *Loader) plan(b *Batch) ([]dataset.Batch, error) {
	plans := make([]dataset.Batch, len(l.o.Columns))
	b.bytes = 0
	for i, column := range l.o.Columns {
		if err := l.o.Set.Gather(b.Samples, column, l.o.Ahead-b.bytes, &plans[i]); err != nil {
			return nil, err
		}
		b.bytes += plans[i].Size
	}
	return plans, nil
}

// numbers returns the numbers of the files of a batch, each once.
func numbers(plans []dataset.Batch) []int {
	var out []int
	seen := map[int]bool{}
	for _, plan := range plans {
		for _, p := range plan.Pieces {
			if !seen[p.File] {
				seen[p.File], out = true, append(out, p.File)
			}
		}
	}
	return out
}

// room waits until n more bytes of so many files may be read ahead. It returns false if the loader is being closed.
func (l *Loader) room(n int64, files int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(l.ready) > 0 && (len(l.ready) >= l.tuner.depth || l.ahead+n > l.o.Ahead ||
		l.using+files > l.o.OpenFiles) {
		l.change.Wait()
	}
	return !l.closed
}

// begin opens the files of a batch, takes memory for it and starts the transfer.
func (l *Loader) begin(b *Batch, plans []dataset.Batch) error {
	nums, plans, err := l.acquire(b, plans)
	if err != nil {
		return err
	}
	req := transfer.Request{Device: l.o.Device, Route: l.o.Route, Cache: l.o.Cache}
	at := make(map[int]int, len(nums)) // position in req.Files by number of the file
	for i, n := range nums {
		at[n] = i
		req.Files = append(req.Files, b.files[i].File)
	}
	for _, plan := range plans {
		c := Column{Size: plan.Size, Ends: plan.Ends}
		if plan.Size > 0 {
			if c.Memory, err = l.pool.get(plan.Size); err != nil {
				return err
			}
		}
		b.Columns = append(b.Columns, c)
		for _, p := range plan.Pieces {
			req.Segments = append(req.Segments, transfer.Segment{File: at[p.File], Off: p.Offset, Len: p.Size,
				Dst: c.Memory.Ptr() + device.Ptr(p.At)})
		}
	}
	if len(req.Segments) == 0 {
		return nil // all samples are empty
	}
	req.Verify = sumsOf(b.files, req.Segments)
	b.load, err = l.o.Engine.Start(l.ctx, req)
	return err
}

// acquire opens the files of a batch. If bad files may be skipped, acquire takes their samples out of the batch and
// returns new plans.
func (l *Loader) acquire(b *Batch, plans []dataset.Batch) ([]int, []dataset.Batch, error) {
	for {
		nums := numbers(plans)
		got, bad := l.files.acquire(l.ctx, l.o.Set, nums)
		b.files = got
		if len(bad) == 0 {
			return nums, plans, nil
		}
		l.files.release(b.files)
		b.files = nil
		if err := l.fatal(b, bad); err != nil {
			if l.fewer() {
				continue
			}
			return nil, nil, err
		}
		l.leaveOut(b, bad)
		var err error
		if plans, err = l.plan(b); err != nil {
			return nil, nil, err
		}
	}
}

// fewer waits until a batch that is read ahead is taken, so that its files can be closed: a limit of open files can be
// the reason why no more can be opened. From then on, fewer files are read at once. If no batch is read ahead, fewer
// returns false.
func (l *Loader) fewer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.ready)
	if n == 0 {
		return false
	}
	l.o.OpenFiles = max(l.using, 1)
	for !l.closed && len(l.ready) >= n {
		l.change.Wait()
	}
	return !l.closed
}

// fatal returns the error that ends the loader, with a sample of the bad file, or nil if the samples of all bad files
// can be left out.
func (l *Loader) fatal(b *Batch, bad map[int]error) error {
	lowest := -1
	for n, err := range bad {
		skip := l.o.SkipBad && (errs.Is(err, errs.NotFound) || errs.Is(err, errs.Corrupt))
		if !skip && (lowest < 0 || n < lowest) {
			lowest = n
		}
	}
	if lowest < 0 {
		return nil
	}
	for _, n := range b.Samples {
		for _, column := range l.o.Columns {
			if file, _, ok := l.o.Set.Part(n, column); ok && file == lowest {
				return errs.Wrap("read", l.o.Set.Name(n), bad[lowest])
			}
		}
	}
	return bad[lowest]
}

// leaveOut removes the samples with a part in a bad file.
func (l *Loader) leaveOut(b *Batch, bad map[int]error) {
	kept := b.Samples[:0]
	for _, n := range b.Samples {
		good := true
		for _, column := range l.o.Columns {
			if file, _, ok := l.o.Set.Part(n, column); ok && bad[file] != nil {
				good = false
			}
		}
		if good {
			kept = append(kept, n)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Skipped += int64(len(b.Samples) - len(kept))
	for _, err := range bad {
		if len(l.stats.Bad) < mostBad {
			l.stats.Bad = append(l.stats.Bad, err.Error())
		}
	}
	b.Samples = kept
}

// sumsOf returns the checksums of the files that are read whole and once, or nil if there are none. The engine cannot
// verify ranges that overlap, as those of a sample that is twice in a batch.
func sumsOf(files []*held, segments []transfer.Segment) []*checksum.Sums {
	var out []*checksum.Sums
	times := make([]int, len(files))
	for _, s := range segments {
		times[s.File]++
		if h := files[s.File]; h.Sums != nil && s.Off == 0 && s.Len == h.File.Size() {
			if out == nil {
				out = make([]*checksum.Sums, len(files))
			}
			out[s.File] = h.Sums
		}
	}
	for i := range out {
		if times[i] > 1 {
			out[i] = nil
		}
	}
	return out
}
