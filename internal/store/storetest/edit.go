// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// edit begins a draft that is a private copy of what h holds.
func (f *fixture) edit(h object.Handle, more ...func(*object.Draft)) object.Drafting {
	f.Helper()
	i := h.Info()
	return f.draft(i.Bucket, i.Key, int(i.Size), append([]func(*object.Draft){func(d *object.Draft) {
		d.Grows, d.From = true, h
	}}, more...)...)
}

// editTests are for drafts that begin as a private copy of an object, or that grow.
var editTests = []test{
	{"begin as a private copy", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range append(f.handSizes(), 0) {
			old, key := Bytes(uint64(n), n), fmt.Sprint(n)
			f.put("b", key, old)
			ref := object.Ref{Bucket: "b", Key: key}
			h := f.handle(ref)
			w := f.edit(h)
			if c := w.Copied(); c != 0 && c != int64(n) {
				f.Fatalf("%d bytes were copied of %d", c, n)
			}
			file, direct := f.opened(w.Open, false), f.opened(w.Open, true)
			for _, x := range []*os.File{file, direct} {
				f.named(x, w.Path())
				same(f, flagsOf(f, x)&unix.O_ACCMODE, unix.O_RDWR, "how it is open")
			}
			f.reads(file, old)
			piece := Bytes(77, 500)
			want := append(append([]byte{}, old[:n/2]...), piece...)
			if n > len(want) {
				want = append(want, old[len(want):]...)
			}
			f.ok(w.Grow(f.ctx, int64(len(want))), "grow")
			_, err := file.WriteAt(piece, int64(n/2))
			f.ok(err, "write")
			f.holds(ref, old) // nobody sees it
			f.ok(file.Close(), "close")
			f.ok(direct.Close(), "close")
			i, err := w.Commit(f.ctx, Seal(want))
			f.ok(err, "commit")
			f.describes(i, "b", key, want)
			f.holds(ref, want)
			if n > 0 { // who holds the old object keeps it
				f.reads(f.opened(h.Open, false), old)
			}
			f.ok(h.Close(), "close")
		}
	}},
	{"begin empty and grow", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		data := Bytes(1, 10_000)
		w := f.draft("b", "k", 0, func(d *object.Draft) { d.Grows = true })
		f.reads(f.opened(w.Open, false), nil)
		f.filled(w, data)
		if _, err := w.Commit(f.ctx, Seal(data)); err == nil {
			f.Fatalf("more was committed than was announced")
		}
		w = f.draft("b", "k", 0, func(d *object.Draft) { d.Grows = true })
		f.filled(w, data)
		f.ok(w.Grow(f.ctx, 10_000), "grow")
		f.ok(w.Grow(f.ctx, 5), "a smaller size")
		_, err := w.Commit(f.ctx, Seal(data))
		f.ok(err, "commit")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, data)
		if err := w.Grow(f.ctx, 20_000); !errs.Is(err, errs.Closed) {
			f.Fatalf("grow after the commit: %v", err)
		}
	}},
	{"keep their condition", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		first := f.put("b", "k", Bytes(1, 30_000))
		h := f.handle(object.Ref{Bucket: "b", Key: "k"})
		w := f.edit(h, func(d *object.Draft) { d.Condition.IfMatch = first.ETag })
		second := Bytes(2, 30_000)
		f.put("b", "k", second)
		f.filled(w, []byte("late"))
		_, err := w.Commit(f.ctx, Seal(append([]byte("late"), Bytes(1, 30_000)[4:]...)))
		f.fails(err, object.ErrPrecondition, "commit over a newer object")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, second)
		f.leaves(w.Path())
		f.ok(h.Close(), "close")
	}},
	{"are refused for their source", func(f *fixture) {
		s := f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", Bytes(1, 5000))
		h := f.handle(object.Ref{Bucket: "b", Key: "k"})
		for _, d := range []object.Draft{{Size: 5000}, {Size: 4999, Grows: true}} {
			d.Bucket, d.Key, d.From = "b", "k", h
			if _, err := s.NewDraft(f.ctx, d); !errs.Is(err, errs.Invalid) {
				f.Fatalf("%+v: %v", d, err)
			}
		}
		f.ok(h.Close(), "close")
	}},
}
