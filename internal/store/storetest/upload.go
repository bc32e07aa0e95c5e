// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// part writes a part and looks at what is returned.
func (f *fixture) part(bucket, key, id string, n int, data []byte) object.PartInfo {
	f.Helper()
	p, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: bucket, Key: key, Upload: id, Number: n, Size: int64(len(data)),
		Body: bytes.NewReader(data)})
	f.ok(err, "part %d of %d bytes", n, len(data))
	f.isPart(p, n, data)
	return p
}

// isPart ends the test unless p describes data, in a bucket of either kind.
func (f *fixture) isPart(p object.PartInfo, n int, data []byte) {
	f.Helper()
	i := object.Info{Bucket: "b", Key: "k", Version: "part", Size: p.Size, ETag: p.ETag, CRC64: p.CRC64,
		Modified: p.Modified}
	f.describes(i, "b", "k", data)
	same(f, p.Number, n, "Number")
	if p.ETag != MD5(data) && p.ETag != CRC(data, 1) {
		f.Fatalf("part %d has ETag %q, expected %q or %q", n, p.ETag, MD5(data), CRC(data, 1))
	}
}

// upload begins an upload of the key k in the bucket b.
func (f *fixture) upload() string {
	f.Helper()
	id, err := f.s.CreateUpload(f.ctx, "b", "k", nil)
	f.ok(err, "create upload")
	return id
}

// numbers lists the parts of an upload of k in b as "number:size".
func (f *fixture) numbers(id string) string {
	f.Helper()
	ps, more, err := f.s.ListParts(f.ctx, "b", "k", id, 0, 1000)
	f.ok(err, "list parts")
	same(f, more, false, "more parts")
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprintf("%d:%d", p.Number, p.Size))
	}
	return strings.Join(out, " ")
}

var uploadTests = []test{
	{"begun, described, ended", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		as := map[string]string{"a": "1", "\x00": "\xff"}
		for _, key := range Hostile() {
			id, err := f.s.CreateUpload(f.ctx, "b", key, as)
			f.ok(err, "create")
			u, err := f.s.GetUpload(f.ctx, "b", key, id)
			f.ok(err, "get")
			if u.Bucket != "b" || u.Key != key || u.ID != id || u.Started.IsZero() || !maps.Equal(u.Attributes, as) {
				f.Fatalf("%+v", u)
			}
			u.Attributes["a"] = "changed"
			f.gone("b", key)
		}
		f.restart()
		ups, err := allUploads(f.ctx, f.s, object.UploadList{Bucket: "b", Limit: 5})
		f.ok(err, "list")
		same(f, len(ups), len(Hostile()), "uploads")
		for n, u := range ups {
			same(f, u.Key, Hostile()[n], "key of upload %d", n)
			if !maps.Equal(u.Attributes, as) {
				f.Fatalf("attributes %v", u.Attributes)
			}
			f.ok(f.s.AbortUpload(f.ctx, "b", u.Key, u.ID), "abort")
			f.fails(f.s.AbortUpload(f.ctx, "b", u.Key, u.ID), object.ErrNoSuchUpload, "abort twice")
		}
		f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete bucket")
	}},
	{"missing", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.bucket("other", object.VersioningOff, object.ETagMD5)
		f.put("b", "from", []byte("x"))
		id := f.upload()
		for _, x := range []struct{ bucket, key, id string }{{"b", "k", "none"}, {"b", "k", ""}, {"b", "k", id + "0"},
			{"b", "k", id[1:]}, {"b", "other", id}, {"other", "k", id}, {"b", "k", strings.Repeat("\xff", 2000)}} {
			what := fmt.Sprintf("upload %q of %q in %q", x.id, x.key, x.bucket)
			_, err := f.s.GetUpload(f.ctx, x.bucket, x.key, x.id)
			f.fails(err, object.ErrNoSuchUpload, "get %s", what)
			_, err = f.s.PutPart(f.ctx, object.PutPart{Bucket: x.bucket, Key: x.key, Upload: x.id, Number: 1, Size: 1,
				Body: strings.NewReader("x")})
			f.fails(err, object.ErrNoSuchUpload, "put part of %s", what)
			_, err = f.s.CopyPart(f.ctx, object.CopyPart{From: object.Ref{Bucket: "b", Key: "from"}, N: -1, Bucket: x.bucket,
				Key: x.key, Upload: x.id, Number: 1})
			f.fails(err, object.ErrNoSuchUpload, "copy part of %s", what)
			_, _, err = f.s.ListParts(f.ctx, x.bucket, x.key, x.id, 0, 10)
			f.fails(err, object.ErrNoSuchUpload, "list parts of %s", what)
			_, err = f.s.CompleteUpload(f.ctx, object.Complete{Bucket: x.bucket, Key: x.key, Upload: x.id,
				Parts: []object.CompletedPart{{Number: 1}}})
			f.fails(err, object.ErrNoSuchUpload, "complete %s", what)
			f.fails(f.s.AbortUpload(f.ctx, x.bucket, x.key, x.id), object.ErrNoSuchUpload, "abort %s", what)
		}
		same(f, f.numbers(id), "", "parts")
	}},
	{"parts in any order", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		id := f.upload()
		for _, n := range []int{10000, 3, 1, 77, 2} {
			f.part("b", "k", id, n, Bytes(uint64(n), n))
		}
		same(f, f.numbers(id), "1:1 2:2 3:3 77:77 10000:10000", "parts")
		f.part("b", "k", id, 3, Bytes(9, 5))
		same(f, f.numbers(id), "1:1 2:2 3:5 77:77 10000:10000", "parts after one was replaced")
		for _, x := range []struct {
			after, limit int
			want         []int
			more         bool
		}{{0, 2, []int{1, 2}, true}, {2, 2, []int{3, 77}, true}, {77, 2, []int{10000}, false},
			{0, 5, []int{1, 2, 3, 77, 10000}, false}, {10000, 1, nil, false}, {0, 0, []int{1, 2, 3, 77, 10000}, false},
			{78, 1, []int{10000}, false}} {
			ps, more, err := f.s.ListParts(f.ctx, "b", "k", id, x.after, x.limit)
			f.ok(err, "list parts")
			var got []int
			for _, p := range ps {
				got = append(got, p.Number)
			}
			if !slices.Equal(got, x.want) || more != x.more {
				f.Fatalf("parts after %d, at most %d: %v more %v, expected %v more %v", x.after, x.limit, got, more, x.want, x.more)
			}
		}
		for _, n := range []int{0, -1, object.MaxParts + 1} {
			if _, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: n, Size: 1,
				Body: strings.NewReader("x")}); err == nil {
				f.Fatalf("part %d was taken", n)
			}
		}
	}},
	{"a part that fails keeps the one before", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range []int{100, 1<<20 + 7} {
			id := f.upload()
			old := Bytes(1, n)
			f.part("b", "k", id, 1, old)
			f.part("b", "k", id, 2, old)
			bad := func(number int, size int64, body io.Reader, finish error) error {
				p := object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: number, Size: size, Body: body}
				if finish != nil {
					p.Finish = func(object.Written) (map[string]string, error) { return nil, finish }
				}
				_, err := f.s.PutPart(f.ctx, p)
				return err
			}
			for _, number := range []int{2, 3} {
				f.fails(bad(number, int64(n), bytes.NewReader(old[:n/2]), nil), object.ErrIncompleteBody, "cut off")
				f.fails(bad(number, int64(n), bytes.NewReader(append(Bytes(2, n), 1)), nil), object.ErrIncompleteBody, "goes on")
				f.fails(bad(number, -1, thenFails(Bytes(2, n), errMine), nil), errMine, "fails")
				f.fails(bad(number, int64(n), thenFails(Bytes(2, n-1), errMine), nil), errMine, "fails")
				f.fails(bad(number, int64(n), bytes.NewReader(Bytes(2, n)), errMine), errMine, "Finish fails")
			}
			same(f, f.numbers(id), fmt.Sprintf("1:%d 2:%d", n, n), "parts")
			f.completes(id, []int{1, 2}, append(slices.Clone(old), old...))
		}
	}},
	{"cancelled part leaves none", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		id := f.upload()
		ctx, cancel := context.WithCancel(f.ctx)
		body := funcReader(func(p []byte) (int, error) { cancel(); return len(p), nil })
		_, err := f.s.PutPart(ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: 1, Size: 16 << 20,
			Body: io.LimitReader(body, 16<<20)})
		f.fails(err, context.Canceled, "cancelled")
		same(f, f.numbers(id), "", "parts")
	}},
	{"parts have attributes of their own", func(f *fixture) {
		for _, kind := range []object.ETagKind{object.ETagMD5, object.ETagCRC64} {
			f.s.DeleteBucket(f.ctx, "b")
			f.bucket("b", object.VersioningOff, kind)
			id := f.upload()
			data := Bytes(1, 30_000)
			p, err := f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: 1, Size: -1,
				Body: bytes.NewReader(data), MD5: true,
				Finish: func(w object.Written) (map[string]string, error) {
					if w.Size != int64(len(data)) || fmt.Sprintf("%x", w.MD5) != MD5(data) {
						f.Errorf("Finish got %+v", w)
					}
					return map[string]string{"sum": "1"}, nil
				}})
			f.ok(err, "part")
			f.isPart(p, 1, data)
			same(f, p.Attributes["sum"], "1", "attribute")
			ps, _, err := f.s.ListParts(f.ctx, "b", "k", id, 0, 10)
			f.ok(err, "list parts")
			same(f, showPart(ps[0], true), showPart(p, true), "the part as it is listed")
			want := map[object.ETagKind]string{object.ETagMD5: MD5(data), object.ETagCRC64: CRC(data, 1)}[kind]
			same(f, p.ETag, want, "ETag of a part")
		}
	}},
	{"parts of an object's ranges", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		for _, size := range []int{500, 2<<20 + 11} {
			data := Bytes(1, size)
			src := f.put("b", "from", data)
			f.put("b", "from", []byte("newer"))
			from := object.Ref{Bucket: "b", Key: "from", Version: src.Version}
			id := f.upload()
			n := int64(size)
			copyPart := func(number int, off, n int64) (object.PartInfo, error) {
				return f.s.CopyPart(f.ctx, object.CopyPart{From: from, Off: off, N: n, Bucket: "b", Key: "k", Upload: id,
					Number: number})
			}
			for i, r := range []object.Range{{Off: 0, N: n / 2}, {Off: n / 2, N: n - n/2}, {Off: 0, N: n}, {Off: 7, N: 1},
				{Off: n - 1, N: 1}} {
				p, err := copyPart(i+1, r.Off, r.N)
				f.ok(err, "copy %+v", r)
				f.isPart(p, i+1, data[r.Off:r.Off+r.N])
			}
			p, err := copyPart(6, 3, -1)
			f.ok(err, "copy to the end")
			f.isPart(p, 6, data[3:])
			for _, r := range []object.Range{{Off: -1, N: 1}, {Off: 0, N: n + 1}, {Off: n + 1, N: -1}, {Off: n, N: 1},
				{Off: 1, N: 1<<63 - 1}, {Off: 0, N: -2}} {
				_, err := copyPart(7, r.Off, r.N)
				f.fails(err, object.ErrInvalidRange, "copy %+v of %d", r, n)
			}
			p, err = f.s.CopyPart(f.ctx, object.CopyPart{From: from, Off: 1, N: 100, Bucket: "b", Key: "k", Upload: id,
				Number: 8,
				Finish: func(w object.Written) (map[string]string, error) {
					if w.Size != 100 || fmt.Sprintf("%x", w.MD5) != MD5(data[1:101]) {
						f.Errorf("Finish got %+v", w)
					}
					return map[string]string{"x": "y"}, nil
				}})
			f.ok(err, "copy with Finish")
			f.isPart(p, 8, data[1:101])
			same(f, p.Attributes["x"], "y", "attribute")
			_, err = f.s.CopyPart(f.ctx, object.CopyPart{From: object.Ref{Bucket: "b", Key: "none"}, N: -1, Bucket: "b",
				Key: "k", Upload: id, Number: 9})
			f.fails(err, object.ErrNoSuchKey, "copy from nothing")
			_, err = f.s.CopyPart(f.ctx, object.CopyPart{From: object.Ref{Bucket: "b", Key: "from", Version: "none"}, N: -1,
				Bucket: "b", Key: "k", Upload: id, Number: 9})
			f.fails(err, object.ErrNoSuchVersion, "copy from no version")
			f.remove("b", "from", src.Version)
			f.completes(id, []int{2, 3, 4, 6, 8}, slices.Concat(data[n/2:], data, data[7:8], data[3:], data[1:101]))
		}
	}},
	{"listed page by page", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.bucket("empty", object.VersioningOff, object.ETagMD5)
		for range 3 {
			for _, k := range []string{"a", "a/", "a/b", "a/c", "a0", "b/x", "b/y/z", "\xff", "c\x00"} {
				_, err := f.s.CreateUpload(f.ctx, "b", k, nil)
				f.ok(err, "create")
			}
		}
		p, err := f.s.ListUploads(f.ctx, object.UploadList{Bucket: "b"})
		f.ok(err, "list")
		same(f, len(p.Uploads), 27, "uploads")
		f.listUploads(p.Uploads)
		p, err = f.s.ListUploads(f.ctx, object.UploadList{Bucket: "empty"})
		f.ok(err, "list")
		same(f, len(p.Uploads)+len(p.Prefixes), 0, "uploads of an empty bucket")
	}},
}

// listUploads compares every page of uploads with the answer by brute force.
func (f *fixture) listUploads(all []object.Upload) {
	f.Helper()
	if !slices.IsSortedFunc(all, func(a, b object.Upload) int {
		return strings.Compare(a.Key+"\x00"+a.ID, b.Key+"\x00"+
			b.ID)
	}) {
		f.Fatalf("not in order: %+v", all)
	}
	var infos []object.Info
	for _, u := range all {
		infos = append(infos, object.Info{Key: u.Key, Version: u.ID})
	}
	for _, prefix := range []string{"", "a", "a/", "b/", "b/y/", "none", "\xff"} {
		for _, delimiter := range []string{"", "/", "0"} {
			want := bruteForce(infos, object.List{Prefix: prefix, Delimiter: delimiter, Versions: true})
			for _, limit := range []int{1, 2, 5, 1000} {
				var got []line
				l := object.UploadList{Bucket: "b", Prefix: prefix, Delimiter: delimiter, Limit: limit}
				for range len(want) + 2 {
					p, err := f.s.ListUploads(f.ctx, l)
					f.ok(err, "list %+v", l)
					page := object.Page{Prefixes: p.Prefixes}
					for _, u := range p.Uploads {
						page.Objects = append(page.Objects, object.Info{Key: u.Key, Version: u.ID})
					}
					if n := len(page.Objects) + len(page.Prefixes); n > limit || n < limit && p.Truncated {
						f.Fatalf("list %+v: %d entries, truncated %v", l, n, p.Truncated)
					}
					got = append(got, linesOf(page)...)
					if !p.Truncated {
						break
					}
					l.AfterKey, l.AfterID = p.NextKey, p.NextID
				}
				if !slices.Equal(got, want) {
					f.Fatalf("uploads with prefix %q, delimiter %q, pages of %d: %q, expected %q", prefix, delimiter, limit, got, want)
				}
			}
			for _, after := range []string{"a", "a/", "a/b", "b/x", "b/", "zz", "\xff"} {
				p, err := f.s.ListUploads(f.ctx, object.UploadList{Bucket: "b", Prefix: prefix, Delimiter: delimiter,
					AfterKey: after})
				f.ok(err, "list after %q", after)
				want := bruteForce(infos, object.List{Prefix: prefix, Delimiter: delimiter, After: after, Versions: true})
				if len(p.Uploads)+len(p.Prefixes) != len(want) {
					f.Fatalf("uploads after %q with prefix %q and delimiter %q: %+v, expected %q", after, prefix, delimiter, p, want)
				}
			}
		}
	}
}
