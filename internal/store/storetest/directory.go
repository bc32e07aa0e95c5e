// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// dir is the directory bucket of these tests.
const dir = "base--zone-1--x-s3"

// directories returns the store's methods for directory buckets, or skips the test.
func (f *fixture) directories() object.Directories {
	f.Helper()
	d, ok := f.s.(object.Directories)
	if !ok {
		f.Skip("the store has no directory buckets")
	}
	return d
}

// append appends data at an offset.
func (f *fixture) append(key string, off int64, data []byte) (object.Info, error) {
	return f.directories().Append(f.ctx, object.Append{Bucket: dir, Key: key, Offset: off, Size: int64(len(data)),
		Body: bytes.NewReader(data)})
}

var directoryTests = []test{
	{"appends of many sizes", func(f *fixture) {
		f.directories()
		f.bucket(dir, object.VersioningOff, "")
		want := []byte{}
		for i, n := range []int{0, 1, 0, 10, 3000, 2000, 100, 1<<20 - 5111, 1, 5 << 20, 70_000, 4 << 20, 1, 1 << 20} {
			data := Bytes(uint64(i), n)
			info, err := f.append("k", int64(len(want)), data)
			f.ok(err, "append %d bytes at %d", n, len(want))
			want = append(want, data...)
			same(f, info.ETag, object.CRC64ETag(info.CRC64, info.Size, 1), "ETag")
			f.describes(info, dir, "k", want)
			f.holds(object.Ref{Bucket: dir, Key: "k"}, want)
		}
	}},
	{"a wrong offset", bothSizes(func(f *fixture, n int) {
		f.directories()
		f.bucket(dir, object.VersioningOff, "")
		_, err := f.append("none", 1, []byte("x"))
		f.fails(err, object.ErrWriteOffset, "append behind nothing")
		f.gone(dir, "none")
		old := f.put(dir, "k", word("a", n))
		for _, off := range []int64{-1, 0, old.Size - 1, old.Size + 1} {
			_, err := f.append("k", off, []byte("x"))
			f.fails(err, object.ErrWriteOffset, "append at %d of %d", off, old.Size)
		}
		same(f, f.holds(object.Ref{Bucket: dir, Key: "k"}, word("a", n)).ETag, old.ETag, "ETag")
	})},
	{"conditions and hooks of an append", bothSizes(func(f *fixture, n int) {
		d := f.directories()
		f.bucket(dir, object.VersioningOff, "")
		old := f.put(dir, "k", word("a", n), func(p *object.Put) { p.Attributes = map[string]string{"x": "1"} })
		a := object.Append{Bucket: dir, Key: "k", Offset: old.Size, Size: 1}
		try := func(change func(*object.Append)) error {
			b := a
			b.Body = bytes.NewReader([]byte("b"))
			change(&b)
			_, err := d.Append(f.ctx, b)
			return err
		}
		f.fails(try(func(b *object.Append) { b.Condition.IfMatch = "no" }), object.ErrPrecondition, "a wrong ETag")
		f.fails(try(func(b *object.Append) { b.Condition.IfNoneMatch = "*" }), object.ErrPrecondition, "an existing object")
		f.fails(try(func(b *object.Append) { b.Finish = func(object.Written) error { return errMine } }), errMine, "Finish")
		f.fails(try(func(b *object.Append) {
			b.Extend = func(*object.Info, object.Written) (map[string]string, error) { return nil, errMine }
		}), errMine, "Extend")
		f.fails(try(func(b *object.Append) { b.Body = thenFails([]byte("b"), errMine) }), errMine, "a body that fails")
		f.fails(try(func(b *object.Append) { b.Size = 2 }), object.ErrIncompleteBody, "a body that is short")
		i := f.holds(object.Ref{Bucket: dir, Key: "k"}, word("a", n))
		same(f, i.ETag, old.ETag, "ETag after refused appends")
		f.ok(try(func(b *object.Append) {
			b.Condition.IfMatch = old.ETag
			b.Extend = func(before *object.Info, added object.Written) (map[string]string, error) {
				same(f, before.ETag, old.ETag, "the object before")
				same(f, added.Size, int64(1), "the added size")
				return map[string]string{"x": "2"}, nil
			}
		}), "append")
		i = f.holds(object.Ref{Bucket: dir, Key: "k"}, append(word("a", n), 'b'))
		if !maps.Equal(i.Attributes, map[string]string{"x": "2"}) {
			f.Fatalf("attributes %v", i.Attributes)
		}
	})},
	{"open content keeps its length", func(f *fixture) {
		f.directories()
		f.bucket(dir, object.VersioningOff, "")
		want := Bytes(1, 1<<20+10)
		f.put(dir, "k", want)
		c, err := f.s.Open(f.ctx, object.Ref{Bucket: dir, Key: "k"})
		f.ok(err, "open")
		defer c.Close()
		for i := range 3 {
			_, err := f.append("k", int64(len(want)+i*1000), Bytes(uint64(2+i), 1000))
			f.ok(err, "append")
			got, err := section(c, 0, int64(len(want)))
			f.ok(err, "read")
			same(f, bytes.Equal(got, want), true, "the bytes of content that was opened before")
			_, err = c.Section(object.Range{Off: 0, N: int64(len(want)) + 1})
			f.fails(err, object.ErrInvalidRange, "a range behind the end")
		}
	}},
	{"an object of parts", func(f *fixture) {
		f.directories()
		f.bucket(dir, object.VersioningOff, "")
		id, err := f.s.CreateUpload(f.ctx, dir, "k", nil)
		f.ok(err, "create upload")
		var want []byte
		for i := range 3 {
			data := Bytes(uint64(i), 700_000)
			_, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: dir, Key: "k", Upload: id, Number: i + 1,
				Size: int64(len(data)), Body: bytes.NewReader(data)})
			f.ok(err, "part")
			want = append(want, data...)
		}
		_, err = f.s.CompleteUpload(f.ctx, object.Complete{Bucket: dir, Key: "k", Upload: id,
			Parts: []object.CompletedPart{{Number: 1}, {Number: 2}, {Number: 3}}})
		f.ok(err, "complete")
		_, err = f.append("k", int64(len(want)), []byte("tail"))
		f.ok(err, "append")
		i := f.holds(object.Ref{Bucket: dir, Key: "k"}, append(want, "tail"...))
		same(f, len(i.Parts), 0, "parts of an object that was appended to")
	}},
	{"in other buckets", func(f *fixture) {
		d := f.directories()
		f.bucket("plain", object.VersioningOff, object.ETagCRC64)
		_, err := d.Append(f.ctx, object.Append{Bucket: "plain", Key: "k", Body: bytes.NewReader(nil)})
		same(f, errs.Is(err, errs.Unsupported), true, "append in an ordinary bucket: %v", err)
		err = d.Rename(f.ctx, object.Rename{Bucket: "plain", From: "a", To: "b"})
		same(f, errs.Is(err, errs.Unsupported), true, "rename in an ordinary bucket: %v", err)
		_, err = d.Append(f.ctx, object.Append{Bucket: "no--z--x-s3", Key: "k"})
		f.fails(err, object.ErrNoSuchBucket, "append in a missing bucket")
		f.fails(d.Rename(f.ctx, object.Rename{Bucket: "no--z--x-s3", From: "a", To: "b"}), object.ErrNoSuchBucket,
			"rename in a missing bucket")
		err = f.s.CreateBucket(f.ctx, object.Bucket{Name: dir, Versioning: object.VersioningEnabled})
		same(f, errs.Is(err, errs.Invalid), true, "a directory bucket with versions: %v", err)
		err = f.s.CreateBucket(f.ctx, object.Bucket{Name: dir, ETag: object.ETagMD5})
		same(f, errs.Is(err, errs.Invalid), true, "a directory bucket with MD5s: %v", err)
	}},
	{"renames", bothSizes(func(f *fixture, n int) {
		d := f.directories()
		f.bucket(dir, object.VersioningOff, "")
		f.fails(d.Rename(f.ctx, object.Rename{Bucket: dir, From: "a", To: "b"}), object.ErrNoSuchKey, "rename nothing")
		old := f.put(dir, "a", word("a", n), func(p *object.Put) { p.Attributes = map[string]string{"x": "1"} })
		f.put(dir, "b", word("b", n))
		exists := func(i *object.Info) error {
			if i != nil {
				return object.ErrPrecondition
			}
			return nil
		}
		f.fails(d.Rename(f.ctx, object.Rename{Bucket: dir, From: "a", To: "b", CheckTo: exists}), object.ErrPrecondition,
			"rename onto an object")
		f.fails(d.Rename(f.ctx, object.Rename{Bucket: dir, From: "a", To: "c",
			CheckFrom: func(i *object.Info) error { same(f, i.ETag, old.ETag, "ETag"); return errMine }}), errMine, "CheckFrom")
		f.ok(d.Rename(f.ctx, object.Rename{Bucket: dir, From: "a", To: "b"}), "rename onto an object")
		f.gone(dir, "a")
		i := f.holds(object.Ref{Bucket: dir, Key: "b"}, word("a", n))
		same(f, i.ETag, old.ETag, "ETag")
		same(f, i.Modified.Equal(old.Modified), true, "time of modification")
		same(f, i.Attributes["x"], "1", "attribute")
		f.ok(d.Rename(f.ctx, object.Rename{Bucket: dir, From: "b", To: "b"}), "rename onto itself")
		_, err := f.append("b", old.Size, []byte("more"))
		f.ok(err, "append to a renamed object")
		f.holds(object.Ref{Bucket: dir, Key: "b"}, append(word("a", n), "more"...))
		same(f, fmt.Sprint(f.keys(dir)), "[b]", "keys")
	})},
	{"tokens of renames", func(f *fixture) {
		d := f.directories()
		f.bucket(dir, object.VersioningOff, "")
		f.put(dir, "a", []byte("a"))
		r := object.Rename{Bucket: dir, From: "a", To: "b", Token: "t"}
		f.ok(d.Rename(f.ctx, r), "rename")
		f.ok(d.Rename(f.ctx, r), "the same again")
		f.put(dir, "a", []byte("new"))
		f.ok(d.Rename(f.ctx, r), "the same once more")
		f.holds(object.Ref{Bucket: dir, Key: "a"}, []byte("new"))
		f.restart()
		if d = f.directories(); f.target.Reopen != nil {
			f.ok(d.Rename(f.ctx, r), "the same after a restart")
			f.holds(object.Ref{Bucket: dir, Key: "a"}, []byte("new"))
		}
		r.To = "c"
		f.fails(d.Rename(f.ctx, r), object.ErrTokenUsed, "the token for another rename")
		f.gone(dir, "c")
	}},
}

var appenderTests = []test{
	{"eight at once", func(f *fixture) {
		f.directories()
		f.bucket(dir, object.VersioningOff, "")
		const workers, rounds = 8, 12
		type piece struct {
			off  int64
			data []byte
		}
		var mu sync.Mutex
		var won []piece
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for r := range rounds {
					data := Bytes(uint64(w*1000+r), 1+(w*7919+r*104729)%90_000)
					for {
						info, err := f.s.Stat(f.ctx, object.Ref{Bucket: dir, Key: "k"})
						if err != nil && !errors.Is(err, object.ErrNoSuchKey) {
							f.Errorf("stat: %v", err)
							return
						}
						_, err = f.append("k", info.Size, data)
						if errors.Is(err, object.ErrWriteOffset) || errors.Is(err, object.ErrBusy) {
							continue
						}
						if err != nil {
							f.Errorf("append: %v", err)
							return
						}
						mu.Lock()
						won = append(won, piece{info.Size, data})
						mu.Unlock()
						break
					}
				}
			})
		}
		stop := make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() { // sees whole appends alone
			for {
				select {
				case <-stop:
					return
				default:
				}
				info, data, err := Read(f.ctx, f.s, object.Ref{Bucket: dir, Key: "k"})
				if err != nil && !errors.Is(err, object.ErrNoSuchKey) || int64(len(data)) != info.Size {
					f.Errorf("read: %d bytes of %d: %v", len(data), info.Size, err)
					return
				}
			}
		})
		wg.Wait()
		close(stop)
		reader.Wait()
		var total int64
		for _, p := range won {
			total += int64(len(p.data))
		}
		want := make([]byte, total)
		for _, p := range won {
			copy(want[p.off:], p.data)
		}
		same(f, len(won), workers*rounds, "acknowledged appends")
		f.holds(object.Ref{Bucket: dir, Key: "k"}, want)
	}},
	{"beside renames and replacements", func(f *fixture) {
		d := f.directories()
		f.bucket(dir, object.VersioningOff, "")
		// Every object holds the letters of its appends alone, so that bytes of two appends at one place would show.
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for r := range 40 {
					key := fmt.Sprint("k", r%2)
					info, err := f.s.Stat(f.ctx, object.Ref{Bucket: dir, Key: key})
					if err != nil && !errors.Is(err, object.ErrNoSuchKey) {
						f.Errorf("stat: %v", err)
					}
					data := bytes.Repeat([]byte{byte('a' + w)}, 5000)
					if _, err := f.append(key, info.Size, data); err != nil && !errors.Is(err, object.ErrWriteOffset) &&
						!errors.Is(err, object.ErrBusy) {
						f.Errorf("append: %v", err)
					}
				}
			})
		}
		wg.Go(func() {
			for r := range 40 {
				err := d.Rename(f.ctx, object.Rename{Bucket: dir, From: fmt.Sprint("k", r%2), To: fmt.Sprint("k", 1-r%2)})
				if err != nil && !errors.Is(err, object.ErrNoSuchKey) {
					f.Errorf("rename: %v", err)
				}
			}
		})
		wg.Wait()
		for _, key := range f.keys(dir) {
			_, data, err := Read(f.ctx, f.s, object.Ref{Bucket: dir, Key: key})
			f.ok(err, "read %q", key)
			for off := 0; off < len(data); off += 5000 {
				if want := bytes.Repeat(data[off:off+1], 5000); !bytes.Equal(data[off:min(off+5000, len(data))], want) {
					f.Fatalf("%q has bytes of two appends at %d", key, off)
				}
			}
		}
	}},
}
