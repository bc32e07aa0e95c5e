// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
)

// randomDirectory is the directory bucket of random walks.
const randomDirectory = "d--z1--x-s3"

// append adds content to an object, mostly at its end.
func (w *walk) append() error {
	b, k := w.bucketName(), w.key()
	info, _ := w.m.Stat(w.ctx, object.Ref{Bucket: b, Key: k})
	a := object.Append{Bucket: b, Key: k, Offset: info.Size, Condition: w.condition(b, k)}
	switch w.r.IntN(10) {
	case 0:
		a.Offset++
	case 1:
		a.Offset = w.r.Int64N(info.Size + 1)
	case 2:
		a.Offset = -1
	}
	data := w.data()
	size, body, finish := w.body(data)
	a.Size = size
	a.Finish = func(object.Written) error { return finish() }
	a.Extend = func(before *object.Info, added object.Written) (map[string]string, error) {
		as := map[string]string{"added": fmt.Sprint(added.CRC64, added.Size)}
		if before != nil {
			as["before"] = before.ETag
		}
		return as, nil
	}
	w.note("append %q %q, %d bytes announced as %d at %d of %d, %+v", b, k, len(data), size, a.Offset, info.Size,
		a.Condition)
	a.Body = body()
	im, em := w.m.Append(w.ctx, a)
	a.Body = body()
	is, es := w.s.(object.Directories).Append(w.ctx, a)
	return w.made(im, is, em, es)
}

// rename gives an object another key; some requests come twice.
func (w *walk) rename() error {
	r := object.Rename{Bucket: w.bucketName(), From: w.key(), To: w.key()}
	if w.r.IntN(2) == 0 {
		r.Token = fmt.Sprint("token", w.r.IntN(200))
	}
	switch w.r.IntN(6) {
	case 0:
		r.CheckFrom = func(*object.Info) error { return errMine }
	case 1:
		r.CheckTo = func(i *object.Info) error {
			if i != nil {
				return object.ErrPrecondition
			}
			return nil
		}
	}
	w.note("rename %q %q to %q, token %q", r.Bucket, r.From, r.To, r.Token)
	em := w.m.Rename(w.ctx, r)
	es := w.s.(object.Directories).Rename(w.ctx, r)
	return differ(em, es, "", "")
}
