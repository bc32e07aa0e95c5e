// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
)

// batchReader submits groups of reads to libcufile and collects their results.
type batchReader struct {
	e       *loads
	batches map[device.Direct]device.DirectBatch
}

// stuck is the longest time without any result of a group. After that, the batch is closed and its reads are made one
// by one.
const stuck = time.Minute

func (r *batchReader) run() {
	defer func() {
		for _, b := range r.batches {
			_ = b.Close() // the batch is empty
		}
	}()
	for {
		t, cs := r.e.sched.next(plan.ViaCuFile, cuFileGroup, true)
		if t == nil {
			return
		}
		r.group(t, cs)
	}
}

// batchOf returns the batch of this worker for a library, and makes it at the first call.
func (r *batchReader) batchOf(d device.Direct) (device.DirectBatch, error) {
	if b := r.batches[d]; b != nil {
		return b, nil
	}
	maker, ok := d.(device.Batcher)
	if !ok {
		return nil, errs.New(errs.Unsupported, "use cuFile", "", "it takes no batches").
			WithFix("use the interface sync")
	}
	b, err := maker.NewDirectBatch(cuFileGroup)
	if err == nil {
		r.batches[d] = b
	}
	return b, err
}

// group reads chunks of one transfer together.
func (r *batchReader) group(t *Load, cs []plan.Chunk) {
	shown := t.tally.Begin(tally.StageReadCuFile) // one for all reads of the batch
	defer shown.Drop()
	start := tally.Ago(0)
	direct := t.cu.lib.opened()
	b, err := r.batchOf(direct)
	reads := make([]device.DirectRead, len(cs))
	for i, c := range cs {
		base, off := t.cu.baseOf(c)
		reads[i] = device.DirectRead{File: t.cu.files[c.File].DirectFile, Base: base, BufOff: off, N: c.Len,
			FileOff: c.Off, Cookie: uint64(i)}
	}
	if err == nil {
		err = b.Submit(reads)
	}
	if err != nil {
		for _, c := range cs {
			cuFileDone(t, c, 0, err, start)
		}
		return
	}
	r.collect(t, b, direct, cs, start)
}

// collect counts each read as it ends.
func (r *batchReader) collect(t *Load, b device.DirectBatch, direct device.Direct, cs []plan.Chunk, start tally.Start) {
	open := make(map[uint64]bool, len(cs))
	for i := range cs {
		open[uint64(i)] = true
	}
	for last := time.Now(); len(open) > 0; {
		done, err := b.Wait(time.Second)
		if err == nil && len(done) == 0 && time.Since(last) > stuck {
			err = errs.New(errs.Device, "wait for a cuFile batch on", t.req.Device.Info().ID,
				fmt.Sprintf("%d reads have not ended in %v", len(open), stuck)).
				WithFix("raise posix_pool_slab_count in cufile.json, or use the interface sync")
		}
		if err != nil {
			// The batch and its reads are ended. A repeated read delivers the same bytes to the same destination.
			delete(r.batches, direct)
			err = errors.Join(err, b.Close())
			t.cu.mu.Lock()
			t.cu.batchErr = cmp.Or(t.cu.batchErr, err)
			t.cu.mu.Unlock()
			for i := range open {
				n, err := t.cu.read(cs[i], 0)
				cuFileDone(t, cs[i], n, err, start)
			}
			return
		}
		for _, d := range done {
			if !open[d.Cookie] {
				continue
			}
			delete(open, d.Cookie)
			last = time.Now()
			n, err := d.N, d.Err
			if err == nil && n > 0 && n < cs[d.Cookie].Len {
				n, err = t.cu.read(cs[d.Cookie], n)
			}
			cuFileDone(t, cs[d.Cookie], n, err, start)
		}
	}
}
