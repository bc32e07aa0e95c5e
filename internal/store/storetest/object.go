// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Hostile returns object keys that are difficult as file names, sorted by their bytes.
func Hostile() []string {
	keys := []string{
		"a", "a/", "a//b", "a/b", "a/b/", "/", "//", "/a", ".", "..", "../x", "a/../b", "./a", "\x00", "\x00\x00", "a\x00",
		"a\x00b", "a\x01", "\x01",
		"\xff", "\xff\xff", "a\xff", "\xfe\xff", " ", "a b", "%2F", "a?b#c", "a\nb", "\\", "😀", "é", "e\u0301", "\u202e",
		"CON", "nul.txt", "~", "-rf",
		strings.Repeat("k", object.MaxKey), strings.Repeat("\x00", object.MaxKey), strings.Repeat("\xff", object.MaxKey),
		strings.Repeat("a/", object.MaxKey/2), strings.Repeat("😀", object.MaxKey/4),
	}
	slices.Sort(keys)
	return keys
}

// sizes are lengths of content around every limit that a store is likely to have.
func (f *fixture) sizes() []int {
	out := []int{0, 1, 2, 4095, 4096, 4097, 8191, 8192, 16383, 16384, 16385, 65535, 65536, 65537, 1<<20 - 1, 1 << 20,
		1<<20 + 1, 2 << 20, 3<<20 + 7}
	for _, s := range f.target.Sizes {
		out = append(out, max(0, s-1), s, s+1)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var objectTests = []test{
	{"hostile keys", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		keys := Hostile()
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys)) {
			f.put("b", keys[i], []byte(keys[i]))
		}
		for _, k := range keys {
			f.holds(object.Ref{Bucket: "b", Key: k}, []byte(k))
		}
		if got := f.keys("b"); !slices.Equal(got, keys) {
			f.Fatalf("listed %q, expected %q", got, keys)
		}
		f.restart()
		for i, k := range keys {
			d, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: k}})
			f.ok(err, "delete %q", k)
			same(f, d.Existed, true, "Existed of %q", k)
			f.gone("b", k)
			if got := f.keys("b"); !slices.Equal(got, keys[i+1:]) {
				f.Fatalf("after deleting %q: %q, expected %q", k, got, keys[i+1:])
			}
		}
	}},
	{"keys without end or beginning", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, k := range []string{"", strings.Repeat("k", object.MaxKey+1)} {
			_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: k, Size: 1, Body: strings.NewReader("x")})
			f.fails(err, object.ErrInvalidName, "put with a key of %d bytes", len(k))
			_, err = f.s.CreateUpload(f.ctx, "b", k, nil)
			f.fails(err, object.ErrInvalidName, "create upload with a key of %d bytes", len(k))
			f.put("b", "k", []byte("x"))
			_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: k})
			f.fails(err, object.ErrInvalidName, "copy to a key of %d bytes", len(k))
			if _, err := f.s.Stat(f.ctx, object.Ref{Bucket: "b", Key: k}); err == nil {
				f.Fatalf("a key of %d bytes exists", len(k))
			}
		}
	}},
	{"sizes of both kinds", func(f *fixture) {
		f.bucket("m", object.VersioningOff, object.ETagMD5)
		f.bucket("c", object.VersioningOff, object.ETagCRC64)
		for i, n := range f.sizes() {
			data := Bytes(uint64(i), n)
			key := fmt.Sprintf("size/%08d", n)
			same(f, f.put("m", key, data).ETag, MD5(data), "ETag of %d bytes", n)
			same(f, f.put("c", key, data, func(p *object.Put) { p.Size = -1 }).ETag, CRC(data, 1), "ETag of %d bytes", n)
		}
		f.restart()
		for i, n := range f.sizes() {
			data := Bytes(uint64(i), n)
			key := fmt.Sprintf("size/%08d", n)
			same(f, f.holds(object.Ref{Bucket: "m", Key: key}, data).ETag, MD5(data), "ETag of %d bytes", n)
			same(f, f.holds(object.Ref{Bucket: "c", Key: key}, data).ETag, CRC(data, 1), "ETag of %d bytes", n)
		}
	}},
	{"ranges", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		r := rand.New(rand.NewPCG(3, 4))
		for _, n := range []int{0, 1, 5000, 20_000, 3<<20 + 7} {
			data := Bytes(uint64(n), n)
			f.put("b", "k", data)
			c, err := f.s.Open(f.ctx, object.Ref{Bucket: "b", Key: "k"})
			f.ok(err, "open")
			ranges := []object.Range{{Off: 0, N: int64(n)}, {Off: int64(n), N: 0}, {Off: 0, N: 0}}
			for range 30 {
				off := r.Int64N(int64(n) + 1)
				ranges = append(ranges, object.Range{Off: off, N: r.Int64N(int64(n) - off + 1)})
			}
			if n > 2<<20 {
				ranges = append(ranges, object.Range{Off: 1<<20 - 1, N: 2}, object.Range{Off: 1 << 20, N: 1 << 20},
					object.Range{Off: 3 << 20, N: 7}, object.Range{Off: 1<<20 + 1, N: 1 << 20})
			}
			for _, rg := range ranges {
				got, err := section(c, rg.Off, rg.N)
				f.ok(err, "section %+v of %d", rg, n)
				if !bytes.Equal(got, data[rg.Off:rg.Off+rg.N]) {
					f.Fatalf("section %+v of %d has other bytes", rg, n)
				}
			}
			for _, rg := range []object.Range{{Off: -1, N: 1}, {Off: 0, N: int64(n) + 1}, {Off: int64(n) + 1, N: 0},
				{Off: int64(n), N: 1}, {Off: 1, N: 1<<63 - 1}, {Off: 0, N: -1}} {
				_, err := c.Section(rg)
				f.fails(err, object.ErrInvalidRange, "section %+v of %d", rg, n)
			}
			f.ok(c.Close(), "close")
		}
	}},
	{"a body by parts and as a writer", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range []int{10, 100_000, 2<<20 + 5} {
			data := Bytes(uint64(n), n)
			f.put("b", "k", data)
			c, err := f.s.Open(f.ctx, object.Ref{Bucket: "b", Key: "k"})
			f.ok(err, "open")
			b, err := c.Section(object.Range{Off: 1, N: int64(n) - 2})
			f.ok(err, "section")
			f.ok(c.Close(), "close the content before its body")
			head := make([]byte, 3)
			_, err = io.ReadFull(b, head)
			f.ok(err, "read")
			same(f, b.Len(), int64(n)-5, "Len after 3 bytes")
			var out bytes.Buffer
			w := bufio.NewWriter(&out)
			m, err := b.WriteTo(w)
			f.ok(err, "WriteTo")
			f.ok(w.Flush(), "flush")
			same(f, m, int64(n)-5, "bytes moved")
			same(f, b.Len(), int64(0), "Len at the end")
			if got := append(head, out.Bytes()...); !bytes.Equal(got, data[1:n-1]) {
				f.Fatalf("%s, expected %s", brief(got), brief(data[1:n-1]))
			}
			if k, err := b.Read(head); k != 0 || err != io.EOF {
				f.Fatalf("read at the end: %d, %v", k, err)
			}
			f.ok(b.Close(), "close")
			b, err = reopenSection(f, n)
			f.ok(err, "section")
			_, err = b.WriteTo(failingWriter{})
			f.fails(err, errMine, "a writer that fails")
			f.ok(b.Close(), "close")
		}
	}},
	{"what is opened keeps its bytes", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range []int{100, 2<<20 + 1} {
			old := Bytes(1, n)
			was := f.put("b", "k", old)
			c, err := f.s.Open(f.ctx, object.Ref{Bucket: "b", Key: "k"})
			f.ok(err, "open")
			half, err := c.Section(object.Range{Off: 0, N: int64(n)})
			f.ok(err, "section")
			begun := make([]byte, n/2)
			_, err = io.ReadFull(half, begun)
			f.ok(err, "read")
			f.put("b", "k", Bytes(2, n+1))
			_, err = f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}})
			f.ok(err, "delete")
			f.gone("b", "k")
			same(f, c.Info().ETag, was.ETag, "ETag of what is open")
			whole, err := section(c, 0, int64(n))
			f.ok(err, "read what was deleted")
			rest, err := io.ReadAll(half)
			f.ok(err, "read the rest")
			if !bytes.Equal(whole, old) || !bytes.Equal(append(begun, rest...), old) {
				f.Fatal("the bytes changed under the reader")
			}
			f.ok(half.Close(), "close")
			f.ok(c.Close(), "close")
		}
	}},
	{"attributes", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		given := map[string]string{"a": "1", "": "empty", "\x00\xff": "\xff\x00", "unicode": "😀", "none": ""}
		want := maps.Clone(given)
		i := f.put("b", "k", []byte("x"), func(p *object.Put) { p.Attributes = given })
		given["a"] = "changed"
		i.Attributes["a"] = "changed too"
		attributes := func(want map[string]string) object.Info {
			f.Helper()
			i := f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("x"))
			if !maps.Equal(i.Attributes, want) {
				f.Fatalf("attributes %q, expected %q", i.Attributes, want)
			}
			return i
		}
		was := attributes(want)
		ref := object.Ref{Bucket: "b", Key: "k"}
		f.ok(f.s.SetAttributes(f.ctx, ref, func(m map[string]string) error {
			if !maps.Equal(m, want) {
				return fmt.Errorf("given %q", m)
			}
			delete(m, "a")
			m["new"] = "2"
			return nil
		}), "set")
		delete(want, "a")
		want["new"] = "2"
		is := attributes(want)
		if is.ETag != was.ETag || is.Version != was.Version || !is.Modified.Equal(was.Modified) {
			f.Fatalf("%+v became %+v", was, is)
		}
		f.fails(f.s.SetAttributes(f.ctx, ref, func(m map[string]string) error { clear(m); return errMine }), errMine,
			"an error of change")
		attributes(want)
		f.fails(f.s.SetAttributes(f.ctx, object.Ref{Bucket: "b", Key: "no"}, func(map[string]string) error { return nil }),
			object.ErrNoSuchKey, "no key")
		f.fails(f.s.SetAttributes(f.ctx, object.Ref{Bucket: "b", Key: "k", Version: "no"},
			func(map[string]string) error { return nil }), object.ErrNoSuchVersion, "no version")
		f.put("b", "k", []byte("x"))
		attributes(nil)
	}},
	{"attributes have bounds", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		full := map[string]string{"k": strings.Repeat("v", object.MaxAttributes-1)}
		over := map[string]string{"k": strings.Repeat("v", object.MaxAttributes)}
		f.put("b", "k", nil, func(p *object.Put) { p.Attributes = full })
		put := object.Put{Bucket: "b", Key: "no", Body: bytes.NewReader(nil), Attributes: over}
		_, err := f.s.Put(f.ctx, put)
		f.fails(err, object.ErrTooLarge, "put")
		put.Attributes, put.Finish = full, func(object.Written) (map[string]string,
			error) {
			return map[string]string{"x": "y"}, nil
		}
		_, err = f.s.Put(f.ctx, put)
		f.fails(err, object.ErrTooLarge, "put with what Finish adds")
		f.gone("b", "no")
		f.fails(f.s.SetAttributes(f.ctx, object.Ref{Bucket: "b", Key: "k"},
			func(m map[string]string) error { m["x"] = "y"; return nil }), object.ErrTooLarge, "set")
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "no",
			Attributes: over})
		f.fails(err, object.ErrTooLarge, "copy")
		_, err = f.s.CreateUpload(f.ctx, "b", "no", over)
		f.fails(err, object.ErrTooLarge, "upload")
	}},
	{"cancelled before it begins", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", []byte("old"))
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.s.Put(ctx, object.Put{Bucket: "b", Key: "k", Size: 3, Body: strings.NewReader("new")})
		f.fails(err, context.Canceled, "put")
		_, err = f.s.Put(ctx, object.Put{Bucket: "b", Key: "k", Size: 1 << 20, Body: bytes.NewReader(Bytes(1, 1<<20))})
		f.fails(err, context.Canceled, "large put")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("old"))
		if _, err := f.s.List(ctx, object.List{Bucket: "b"}); err != nil && !errors.Is(err, context.Canceled) {
			f.Fatalf("list: %v", err)
		}
	}},
}

func reopenSection(f *fixture, n int) (object.Body, error) {
	c, err := f.s.Open(f.ctx, object.Ref{Bucket: "b", Key: "k"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Section(object.Range{Off: 0, N: int64(n)})
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errMine }
