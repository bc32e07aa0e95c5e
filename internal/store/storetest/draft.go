// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Seal returns the size and the checksums that a client declares for the given bytes when it commits a draft.
func Seal(data []byte) object.Sealed {
	return object.Sealed{Size: int64(len(data)), CRC64: checksum.Of(data), Sums: Sums(data)}
}

// draft begins a draft of that size.
func (f *fixture) draft(bucket, key string, size int, more ...func(*object.Draft)) object.Drafting {
	f.Helper()
	d := object.Draft{Bucket: bucket, Key: key, Size: int64(size)}
	for _, m := range more {
		m(&d)
	}
	w, err := f.s.(object.Handles).NewDraft(f.ctx, d)
	f.ok(err, "new draft of %q", key)
	f.Cleanup(func() { _ = w.Abort() })
	return w
}

// filled writes data through one description of a draft, which it closes.
func (f *fixture) filled(w object.Drafting, data []byte) {
	f.Helper()
	file := f.opened(w.Open, false)
	_, err := file.WriteAt(data, 0)
	f.ok(err, "write")
	f.ok(file.Close(), "close")
}

// committed writes an object through a draft.
func (f *fixture) committed(bucket, key string, data []byte, more ...func(*object.Draft)) object.Info {
	f.Helper()
	w := f.draft(bucket, key, len(data), more...)
	f.filled(w, data)
	i, err := w.Commit(f.ctx, Seal(data))
	f.ok(err, "commit of %d bytes", len(data))
	f.describes(i, bucket, key, data)
	same(f, i.ETag, CRC(data, 1), "ETag")
	same(f, i.Latest, true, "Latest")
	return i
}

// leaves ends the test where a path is there.
func (f *fixture) leaves(path string) {
	f.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		f.Fatalf("%s is left: %v", path, err)
	}
}

// ways are how a client can keep what can write to a file. Each returns how it lets go.
var ways = map[string]func(f *fixture, file *os.File) func(){
	"descriptor": func(f *fixture, file *os.File) func() {
		return func() { _ = file.Close() }
	},
	"duplicate": func(f *fixture, file *os.File) func() {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		f.ok(err, "dup")
		f.ok(file.Close(), "close")
		return func() { _ = unix.Close(fd) }
	},
	"shared mapping": func(f *fixture, file *os.File) func() {
		both, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
		f.ok(err, "open for reading and writing")
		p, err := unix.Mmap(int(both.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		f.ok(err, "mmap")
		f.ok(both.Close(), "close")
		f.ok(file.Close(), "close")
		return func() { _ = unix.Munmap(p) }
	},
	"descriptor in flight": func(f *fixture, file *os.File) func() {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		f.ok(err, "socketpair")
		f.ok(unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(int(file.Fd())), nil, 0), "sendmsg")
		f.ok(file.Close(), "close")
		return func() {
			_ = unix.Close(pair[0])
			_ = unix.Close(pair[1])
		}
	},
}

var draftTests = []test{
	{"become objects", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range append(f.handSizes(), 0) {
			data := Bytes(uint64(n), n)
			as := map[string]string{"a": "1"}
			key := fmt.Sprint(n)
			w := f.draft("b", key, n, func(d *object.Draft) { d.Attributes = as })
			as["a"] = "changed by the caller"
			file, direct := f.opened(w.Open, false), f.opened(w.Open, true)
			for _, x := range []*os.File{file, direct} {
				f.named(x, w.Path())
				same(f, flagsOf(f, x)&unix.O_ACCMODE, unix.O_WRONLY, "how it is open")
				same(f, flagsOf(f, x)&unix.O_NONBLOCK, 0, "O_NONBLOCK")
			}
			_, err := file.WriteAt(data, 0)
			f.ok(err, "write")
			f.gone("b", key)
			f.ok(file.Close(), "close")
			f.ok(direct.Close(), "close")
			i, err := w.Commit(f.ctx, Seal(data))
			f.ok(err, "commit of %d bytes", n)
			f.describes(i, "b", key, data)
			same(f, i.ETag, CRC(data, 1), "ETag")
			if want := map[string]string{"a": "1"}; !maps.Equal(i.Attributes, want) {
				f.Fatalf("attributes %v, expected %v", i.Attributes, want)
			}
			f.holds(object.Ref{Bucket: "b", Key: key}, data)
			f.ok(w.Abort(), "abort after the commit")
			f.holds(object.Ref{Bucket: "b", Key: key}, data)
			if _, err := w.Commit(f.ctx, Seal(data)); !errs.Is(err, errs.Closed) {
				f.Fatalf("a second commit: %v", err)
			}
			if _, err := w.Open(false); !errs.Is(err, errs.Closed) {
				f.Fatalf("open after the commit: %v", err)
			}
			same(f, w.Reserved(), 0, "Reserved after the commit")
			h := f.handle(object.Ref{Bucket: "b", Key: key})
			if n > 0 {
				f.reads(f.opened(h.Open, false), data)
			}
			sums, err := h.Sums(0, 100)
			f.ok(err, "sums")
			same(f, fmt.Sprint(sums), fmt.Sprint(Sums(data)), "sums")
			f.ok(h.Close(), "close")
			_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: key}, Bucket: "b", Key: "copy of " + key})
			f.ok(err, "copy")
			f.holds(object.Ref{Bucket: "b", Key: "copy of " + key}, data)
		}
	}},
	{"may be shorter or longer than announced", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		data := Bytes(1, 2*object.SumBlock+100)
		w := f.draft("b", "shorter", 5*object.SumBlock)
		f.filled(w, data)
		i, err := w.Commit(f.ctx, Seal(data))
		f.ok(err, "commit of less than was announced")
		f.describes(i, "b", "shorter", data)
		f.holds(object.Ref{Bucket: "b", Key: "shorter"}, data)
		w = f.draft("b", "padded", len(data))
		f.filled(w, append(bytes.Clone(data), make([]byte, 4096)...))
		_, err = w.Commit(f.ctx, Seal(data))
		f.ok(err, "commit of less than was written")
		h := f.handle(object.Ref{Bucket: "b", Key: "padded"})
		f.reads(f.opened(h.Open, false), data)
		f.ok(h.Close(), "close")
		f.holds(object.Ref{Bucket: "b", Key: "padded"}, data)
	}},
	{"replace as writes do", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.bucket("v", object.VersioningEnabled, object.ETagMD5)
		old, data := Bytes(1, 100_000), Bytes(2, 100_001)
		f.put("b", "k", old)
		f.committed("b", "k", data)
		f.holds(object.Ref{Bucket: "b", Key: "k"}, data)
		first := f.put("v", "k", old)
		second := f.committed("v", "k", data)
		f.holds(object.Ref{Bucket: "v", Key: "k", Version: first.Version}, old)
		f.holds(object.Ref{Bucket: "v", Key: "k", Version: second.Version}, data)
		f.committed("v", "k", old)
		same(f, len(f.versions("v")), 3, "versions")
	}},
	{"are not committed while somebody can write", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		data := Bytes(1, 2*object.SumBlock)
		for name, keep := range ways {
			w := f.draft("b", name, len(data))
			f.filled(w, data)
			letGo := keep(f, f.opened(w.Open, false))
			_, err := w.Commit(f.ctx, Seal(data))
			f.fails(err, object.ErrWriterLeft, "commit with a %s left", name)
			f.gone("b", name)
			letGo()
			_, err = w.Commit(f.ctx, Seal(data))
			f.ok(err, "commit after the %s has gone", name)
			f.holds(object.Ref{Bucket: "b", Key: name}, data)
		}
	}},
	{"are not committed with what cannot be", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		data := Bytes(1, 2*object.SumBlock+5)
		good := Seal(data)
		w := f.draft("b", "k", len(data))
		f.filled(w, data)
		for name, c := range map[string]object.Sealed{
			"another sum of all": {Size: good.Size, CRC64: good.CRC64 + 1, Sums: good.Sums},
			"a sum too few":      {Size: good.Size, CRC64: good.CRC64, Sums: good.Sums[:2]},
			"a sum too many":     {Size: good.Size, CRC64: good.CRC64, Sums: append(Sums(data), 1)},
			"no sums":            {Size: good.Size, CRC64: good.CRC64},
			"another sum of one": {Size: good.Size, CRC64: good.CRC64, Sums: []uint64{good.Sums[0], good.Sums[1], 7}},
			"sums in other places": {Size: good.Size, CRC64: good.CRC64,
				Sums: []uint64{good.Sums[1], good.Sums[0], good.Sums[2]}},
		} {
			_, err := w.Commit(f.ctx, c)
			f.fails(err, object.ErrInvalidSums, "commit with %s", name)
		}
		longer := Seal(append(bytes.Clone(data), 1))
		_, err := w.Commit(f.ctx, longer)
		f.fails(err, object.ErrTooLarge, "more than was announced")
		if _, err := w.Commit(f.ctx, object.Sealed{Size: -1}); !errs.Is(err, errs.Invalid) {
			f.Fatalf("a negative size: %v", err)
		}
		file := f.opened(w.Open, false)
		f.ok(file.Truncate(int64(len(data)-1)), "truncate")
		f.ok(file.Close(), "close")
		_, err = w.Commit(f.ctx, good)
		f.fails(err, object.ErrInvalidSums, "a file that is shorter")
		f.gone("b", "k")
		f.filled(w, data)
		_, err = w.Commit(f.ctx, good)
		f.ok(err, "commit after all that")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, data)
	}},
	{"end where their condition does not hold", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		data := Bytes(1, 50_000)
		only := func(d *object.Draft) { d.Condition.IfNoneMatch = "*" }
		first, second := f.draft("b", "k", len(data), only), f.draft("b", "k", len(data), only)
		f.filled(first, data)
		f.filled(second, Bytes(2, 50_000))
		i, err := first.Commit(f.ctx, Seal(data))
		f.ok(err, "the first of two")
		_, err = second.Commit(f.ctx, Seal(Bytes(2, 50_000)))
		f.fails(err, object.ErrPrecondition, "the second of two")
		f.leaves(second.Path())
		if _, err := second.Commit(f.ctx, Seal(Bytes(2, 50_000))); !errs.Is(err, errs.Closed) {
			f.Fatalf("a draft that has ended: %v", err)
		}
		f.holds(object.Ref{Bucket: "b", Key: "k"}, data)
		f.committed("b", "k", Bytes(3, 10), func(d *object.Draft) { d.Condition.IfMatch = i.ETag })
		same(f, len(f.versions("b")), 2, "versions")
	}},
	{"leave nothing", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		w := f.draft("b", "k", 3*object.SumBlock)
		f.filled(w, Bytes(1, object.SumBlock))
		path := w.Path()
		f.ok(w.Abort(), "abort")
		f.ok(w.Abort(), "abort again")
		f.leaves(path)
		if _, err := w.Commit(f.ctx, Seal(nil)); !errs.Is(err, errs.Closed) {
			f.Fatalf("commit after abort: %v", err)
		}
		w = f.draft("b", "k", 100)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := w.Commit(ctx, Seal(make([]byte, 100)))
		f.fails(err, context.Canceled, "commit of a caller who is gone")
		f.leaves(w.Path())
		f.bucket("other", object.VersioningOff, object.ETagMD5)
		w = f.draft("other", "k", 100)
		f.ok(f.s.DeleteBucket(f.ctx, "other"), "delete bucket")
		f.bucket("other", object.VersioningOff, object.ETagMD5)
		_, err = w.Commit(f.ctx, Seal(make([]byte, 100)))
		f.fails(err, object.ErrNoSuchBucket, "commit to a bucket that was made again")
		f.leaves(w.Path())
		same(f, len(f.keys("other")), 0, "keys")
		same(f, len(f.versions("b")), 0, "versions")
	}},
	{"are refused for what they say", func(f *fixture) {
		h := f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		_, err := h.NewDraft(f.ctx, object.Draft{Bucket: "none", Key: "k", Size: 1})
		f.fails(err, object.ErrNoSuchBucket, "no bucket")
		_, err = h.NewDraft(f.ctx, object.Draft{Bucket: "b", Size: 1})
		f.fails(err, object.ErrInvalidName, "no key")
		if _, err = h.NewDraft(f.ctx, object.Draft{Bucket: "b", Key: "k", Size: -1}); !errs.Is(err, errs.Invalid) {
			f.Fatalf("a negative size: %v", err)
		}
		_, err = h.NewDraft(f.ctx, object.Draft{Bucket: "b", Key: "k",
			Attributes: map[string]string{"a": string(make([]byte, object.MaxAttributes))}})
		f.fails(err, object.ErrTooLarge, "attributes")
	}},
	{"of one key at once", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		const writers, rounds = 4, 10
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for r := range rounds {
					if err := f.writeThrough(fmt.Sprint("k", r%3), Bytes(uint64(i*rounds+r), 30_000+r)); err != nil {
						f.Errorf("writer %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		all := f.versions("b")
		same(f, len(all), writers*rounds, "versions")
		for _, i := range all {
			_, data, err := Read(f.ctx, f.s, object.Ref{Bucket: "b", Key: i.Key, Version: i.Version})
			f.ok(err, "read")
			same(f, checksum.Of(data), i.CRC64, "sum of what was read")
		}
	}},
}

// writeThrough writes an object through a draft, from any goroutine.
func (f *fixture) writeThrough(key string, data []byte) error {
	w, err := f.s.(object.Handles).NewDraft(f.ctx, object.Draft{Bucket: "b", Key: key, Size: int64(len(data))})
	if err != nil {
		return err
	}
	file, err := w.Open(false)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	_, err = file.WriteAt(data, 0)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, w.Abort())
	}
	_, err = w.Commit(f.ctx, Seal(data))
	return err
}
