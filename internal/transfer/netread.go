// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/report"
)

// This file reads over a network. The chunks of a remote file are as large as a slot. A fetcher is a goroutine with
// two slots. It takes neighbouring chunks, requests them in one request, and reads each chunk of the body from the
// socket into a slot. Meanwhile the other slot is copied to the device. If the CPU can address the destination, the
// fetcher reads into the destination.

// fetcher is a worker that has one request in flight.
type fetcher struct{ worker }

func (f *fetcher) run() {
	for {
		t, cs := f.e.sched.nextFetch(false)
		if t == nil {
			// No work: settle the running copies before sleeping.
			for _, s := range f.slots {
				settle(s)
			}
			if t, cs = f.e.sched.nextFetch(true); t == nil {
				return
			}
		}
		f.fetch(t, cs)
		f.e.sched.fetched(&t.task)
	}
}

// fetch reads neighbouring chunks of one file in one request. The body is closed before the last chunk is settled, so
// an ended transfer has no open request.
func (f *fetcher) fetch(t *Load, cs []plan.Chunk) {
	start := t.tally.Begin(tally.StageReadNetwork)
	file, off := t.req.Files[cs[0].File], cs[0].Off
	last := cs[len(cs)-1]
	var body io.ReadCloser
	var err error
	if !f.e.sched.hasFailed(&t.task) {
		body, err = file.Remote().Fetch(t.net.ctx, off, last.Off+last.Len-off)
	}
	done := func() {
		if body != nil {
			_ = body.Close() // all wanted bytes have arrived, or the error is known
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
		if err != nil || buf == nil {
			start.Drop()
			start = tally.Start{}
		}
		switch {
		case err != nil:
			f.failed(t, err)
		case buf == nil:
			f.e.sched.drop(&t.task)
		default:
			off = c.Off + c.Len
			t.tally.Read(c.Extra, report.RouteTakenNetwork, c.Len, start)
			deliver(t, c, buf, s)
			if i < len(cs)-1 {
				start = t.tally.Begin(tally.StageReadNetwork)
			}
		}
	}
}

// read reads the bytes of c from a body that is at offset off. buf is nil if the transfer has failed.
func (f *fetcher) read(t *Load, body io.Reader, c plan.Chunk, off int64) (buf []byte, s *slot, err error) {
	if f.e.sched.hasFailed(&t.task) {
		return nil, nil, nil
	}
	if gap := c.Off - off; gap > 0 {
		if err := f.skip(body, gap); err != nil {
			return nil, nil, err
		}
		t.tally.Padded(gap)
	}
	if t.inPlace(c) {
		buf = t.port.mapper.Map(c.Dst, c.Len)
	} else if s = f.slot(t); s != nil {
		buf = s.Mem[:c.Len]
	} else {
		return nil, nil, nil
	}
	if _, err = io.ReadFull(body, buf); err != nil {
		return nil, nil, errs.Wrap(fmt.Sprintf("read %d bytes from offset %d of", c.Len, c.Off),
			t.req.Files[c.File].Path(), err)
	}
	return buf, s, nil
}

// skip reads and drops n unwanted bytes of the body.
func (f *fetcher) skip(body io.Reader, n int64) error {
	s := f.slots[f.turn]
	settle(s)
	_, err := io.ReadFull(body, s.Mem[:n])
	return err
}

// failed fails a transfer because of a read error. If the transfer was cancelled, its error is of kind Cancelled.
func (f *fetcher) failed(t *Load, err error) {
	if t.net.ctx.Err() != nil && !f.e.sched.hasFailed(&t.task) {
		err = t.cancelled(t.net.ctx)
	}
	f.e.sched.failed(&t.task, err)
}
