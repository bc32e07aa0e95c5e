// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/report"
)

// uncached reports whether the door refused an object that can be read over HTTP: another S3 server keeps the object,
// and the disk of this server does not have the whole of it yet, or the object is encrypted on the disk. A client that
// must use the door gets the error.
func uncached(c *Client, err error) bool {
	return err != nil && c.opt.Door == doorAuto && (codeOf(err) == wire.CodeNotCached || encrypted(err))
}

// encrypted reports whether the door refused an object because it is encrypted on the disk.
func encrypted(err error) bool { return codeOf(err) == wire.CodeEncrypted }

// notCached is the reason in the report of a read over HTTP that the door refused.
func notCached(r *Read, err error) *report.Refusal {
	why := "not cached yet: another server keeps the object, and this read fetches it"
	if encrypted(err) {
		why = "the object is encrypted on the server's disk, and the server decrypts it for HTTP"
	}
	return &report.Refusal{What: "door", On: urlOf(r.Bucket, r.Key), Reason: why, Fix: errs.FixOf(err)}
}

// readLate reads those objects of a window over HTTP that the door has refused.
func (b *batch) readLate(ctx context.Context, w *window) error {
	if len(w.late) == 0 {
		return nil
	}
	over := &window{first: w.first, reads: w.reads, dev: w.dev, only: w.late}
	if err := b.openHTTP(ctx, over); err != nil {
		over.close()
		return err
	}
	return b.read(ctx, over)
}

// putOff keeps an object of a window for readLate, and adds the reason to the report once.
func (b *batch) putOff(w *window, i int, err error) {
	w.late = append(w.late, i)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fetched {
		b.fetched = true
		b.m.refuse(notCached(&w.reads[i], err))
		note := "objects that the server's disk did not have yet came over HTTP; the next read finds them at the door"
		if encrypted(err) {
			note = "objects that are encrypted on the server's disk came over HTTP, because the server decrypts them"
		}
		b.m.report.Notes = append(b.m.report.Notes, note)
	}
}
