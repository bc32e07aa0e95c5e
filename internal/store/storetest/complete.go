// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"crypto/md5"
	"fmt"
	"maps"
	"slices"

	"github.com/nebulaio/nebulaio/internal/object"
)

// completes makes the object k in b of these parts, which together have that content.
func (f *fixture) completes(id string, numbers []int, data []byte) object.Info {
	f.Helper()
	ps, _, err := f.s.ListParts(f.ctx, "b", "k", id, 0, 1000)
	f.ok(err, "list parts")
	c := object.Complete{Bucket: "b", Key: "k", Upload: id}
	var sums []byte
	var chosen []object.PartInfo
	for _, n := range numbers {
		at := slices.IndexFunc(ps, func(p object.PartInfo) bool { return p.Number == n })
		c.Parts = append(c.Parts, object.CompletedPart{Number: n, ETag: ps[at].ETag})
		chosen = append(chosen, ps[at])
		sums = append(sums, decodeHex(ps[at].ETag)...)
	}
	b, err := f.s.Bucket(f.ctx, "b")
	f.ok(err, "bucket")
	i, err := f.s.CompleteUpload(f.ctx, c)
	f.ok(err, "complete %v", numbers)
	f.describes(i, "b", "k", data)
	want := fmt.Sprintf("%x-%d", md5.Sum(sums), len(numbers))
	if b.ETag == object.ETagCRC64 {
		want = CRC(data, len(numbers))
	}
	same(f, i.ETag, want, "ETag of a multipart object")
	same(f, i.Latest, true, "Latest")
	got := f.holds(object.Ref{Bucket: "b", Key: "k"}, data)
	same(f, len(got.Parts), len(numbers), "parts of the object")
	for n, p := range got.Parts {
		same(f, showPart(p, true), showPart(chosen[n], true), "part %d of the object", n)
	}
	_, err = f.s.GetUpload(f.ctx, "b", "k", id)
	f.fails(err, object.ErrNoSuchUpload, "an upload that is complete")
	_, err = f.s.CompleteUpload(f.ctx, c)
	f.fails(err, object.ErrNoSuchUpload, "completing twice")
	return i
}

// decodeHex turns the first 32 hex digits into bytes.
func decodeHex(s string) []byte {
	out := make([]byte, md5.Size)
	for i := range out {
		_, _ = fmt.Sscanf(s[2*i:2*i+2], "%02x", &out[i])
	}
	return out
}

// partTest uploads parts of these sizes in this order and completes with those
// of want, or all of them.
type partTest struct {
	name  string
	order []int // part numbers, as they are uploaded; repeated ones replace
	sizes []int // one for each upload
	want  []int
}

const mib = 1 << 20

var partTests = []partTest{
	{"one", []int{1}, []int{100}, nil},
	{"one large", []int{1}, []int{2*mib + 5}, nil},
	{"one empty", []int{1}, []int{0}, nil},
	{"one with another number", []int{7}, []int{5000}, nil},
	{"equal", []int{1, 2, 3}, []int{mib, mib, mib}, nil},
	{"equal but the last", []int{1, 2, 3}, []int{mib, mib, 7}, nil},
	{"last first", []int{3, 1, 2}, []int{7, mib, mib}, nil},
	{"last first and as large", []int{3, 2, 1}, []int{mib, mib, mib}, nil},
	{"blocks shared", []int{1, 2, 3, 4}, []int{300_001, 300_001, 300_001, 300_001}, nil},
	{"blocks shared, any order", []int{4, 2, 1, 3}, []int{300_001, 300_001, 300_001, 300_001}, nil},
	{"blocks shared, short last", []int{2, 1, 3}, []int{mib + 1, mib + 1, 1}, nil},
	{"tiny", []int{1, 2, 3, 4, 5}, []int{1, 1, 1, 1, 1}, nil},
	{"growing", []int{1, 2, 3}, []int{10, 100_000, mib + 1}, nil},
	{"shrinking", []int{1, 2, 3}, []int{mib + 1, 100_000, 10}, nil},
	{"short in the middle", []int{1, 2, 3}, []int{mib, 5, mib}, nil},
	{"empty in the middle", []int{1, 2, 3}, []int{5000, 0, 5000}, nil},
	{"empty at the end", []int{1, 2}, []int{5000, 0}, nil},
	{"repeated", []int{1, 2, 2, 3}, []int{mib, mib, mib, mib}, nil},
	{"repeated thrice", []int{2, 2, 2, 1, 1}, []int{70_000, 70_000, 70_000, 70_000, 70_000}, nil},
	{"repeated shorter", []int{1, 2, 3, 2}, []int{mib, mib, mib, 5}, nil},
	{"repeated longer", []int{1, 2, 3, 1}, []int{1000, 1000, 1000, mib}, nil},
	{"the first repeated with another size", []int{1, 1, 2}, []int{1000, 2000, 2000}, nil},
	{"numbers with a gap", []int{1, 3}, []int{mib, mib}, nil},
	{"numbers far apart", []int{2, 5000, 10000}, []int{5000, 5000, 5000}, nil},
	{"one left out in the middle", []int{1, 2, 3}, []int{mib, mib, mib}, []int{1, 3}},
	{"one left out in the middle, shared blocks", []int{1, 2, 3, 4}, []int{300_001, 300_001, 300_001, 300_001},
		[]int{1, 2, 4}},
	{"the first left out", []int{1, 2, 3}, []int{70_000, 70_000, 70_000}, []int{2, 3}},
	{"the last left out", []int{1, 2, 3}, []int{70_000, 70_000, 70_000}, []int{1, 2}},
	{"the short last left out", []int{3, 1, 2}, []int{7, 70_000, 70_000}, []int{1, 2}},
	{"only the last", []int{1, 2, 3}, []int{70_000, 70_000, 7}, []int{3}},
	{"the first part received is the longest", []int{2, 1, 3}, []int{mib + 7, mib, 3}, nil},
	{"the first part received is the shortest", []int{3, 2, 1}, []int{3, mib, mib}, nil},
	{"many", []int{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
		slices.Repeat([]int{33_333}, 20), nil},
}

// partSuite runs partTests in a bucket of one kind of ETag.
func partSuite(kind object.ETagKind, restart bool) func(f *fixture) {
	return func(f *fixture) {
		f.bucket("b", object.VersioningOff, kind)
		for _, x := range partTests {
			f.Logf("%s", x.name)
			id := f.upload()
			content := map[int][]byte{}
			for i, n := range x.order {
				data := Bytes(uint64(i+1), x.sizes[i])
				f.part("b", "k", id, n, data)
				content[n] = data
			}
			if restart {
				f.restart()
			}
			want := x.want
			if want == nil {
				want = slices.Sorted(maps.Keys(content))
			}
			var whole []byte
			for _, n := range want {
				whole = append(whole, content[n]...)
			}
			f.completes(id, want, whole)
			if restart {
				f.restart()
				f.holds(object.Ref{Bucket: "b", Key: "k"}, whole)
			}
		}
	}
}

var completeTests = []test{
	{"parts of every kind", partSuite(object.ETagMD5, false)},
	{"parts of every kind, restarted", partSuite(object.ETagMD5, true)},
	{"parts of every kind without MD5", partSuite(object.ETagCRC64, false)},
	{"refused", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		id := f.upload()
		a, b := Bytes(1, 5000), Bytes(2, 6000)
		f.part("b", "k", id, 1, a)
		f.part("b", "k", id, 2, b)
		f.part("b", "k", id, 3, []byte("end"))
		try := func(min int64, parts ...object.CompletedPart) error {
			_, err := f.s.CompleteUpload(f.ctx, object.Complete{Bucket: "b", Key: "k", Upload: id, Parts: parts, MinPart: min})
			return err
		}
		f.fails(try(0, object.CompletedPart{Number: 2}, object.CompletedPart{Number: 1}), object.ErrPartOrder, "descending")
		f.fails(try(0, object.CompletedPart{Number: 1}, object.CompletedPart{Number: 1}), object.ErrPartOrder, "twice")
		f.fails(try(0, object.CompletedPart{Number: 1}, object.CompletedPart{Number: 4}), object.ErrInvalidPart,
			"never uploaded")
		f.fails(try(0, object.CompletedPart{Number: 1, ETag: MD5(b)}), object.ErrInvalidPart, "another ETag")
		f.fails(try(5001, object.CompletedPart{Number: 1}, object.CompletedPart{Number: 2}), object.ErrPartTooSmall,
			"too small")
		if err := try(0); err == nil {
			f.Fatal("completed with no part")
		}
		f.gone("b", "k")
		same(f, f.numbers(id), "1:5000 2:6000 3:3", "parts after all that")
		f.ok(try(5000, object.CompletedPart{Number: 1, ETag: MD5(a)}, object.CompletedPart{Number: 2},
			object.CompletedPart{Number: 3}), "the last may be small")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, slices.Concat(a, b, []byte("end")))
	}},
	{"Finish and attributes", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		f.put("b", "k", []byte("old"))
		id, err := f.s.CreateUpload(f.ctx, "b", "k", map[string]string{"a": "1", "b": "1"})
		f.ok(err, "create")
		one, two := Bytes(1, 70_000), Bytes(2, 3)
		f.part("b", "k", id, 1, one)
		f.part("b", "k", id, 2, two)
		c := object.Complete{Bucket: "b", Key: "k", Upload: id, Parts: []object.CompletedPart{{Number: 1}, {Number: 2}}}
		c.Finish = func([]object.PartInfo) (map[string]string, error) { return nil, errMine }
		_, err = f.s.CompleteUpload(f.ctx, c)
		if err != errMine { //nolint:errorlint // the contract: as it is
			f.Fatalf("error %v, expected that of Finish as it is", err)
		}
		same(f, f.numbers(id), "1:70000 2:3", "parts")
		c.Finish = func(ps []object.PartInfo) (map[string]string, error) {
			if len(ps) != 2 || ps[0].ETag != MD5(one) || ps[1].ETag != MD5(two) || ps[1].Number != 2 {
				f.Errorf("Finish got %+v", ps)
			}
			return map[string]string{"b": "2", "c": "2"}, nil
		}
		i, err := f.s.CompleteUpload(f.ctx, c)
		f.ok(err, "complete")
		same(f, i.Versioned(), true, "a version of its own")
		got := f.holds(object.Ref{Bucket: "b", Key: "k"}, append(one, two...))
		if !maps.Equal(got.Attributes, map[string]string{"a": "1", "b": "2", "c": "2"}) {
			f.Fatalf("attributes %v", got.Attributes)
		}
		same(f, len(f.dump()), 3, "lines: the bucket and two versions")
	}},
	{"two uploads of one key", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		one, two := f.upload(), f.upload()
		for n := 1; n <= 3; n++ {
			f.part("b", "k", one, n, Bytes(1, 70_000))
			f.part("b", "k", two, n, Bytes(2, 70_000))
		}
		f.completes(two, []int{1, 2, 3}, slices.Repeat(Bytes(2, 70_000), 3))
		f.restart()
		f.completes(one, []int{1, 2}, slices.Repeat(Bytes(1, 70_000), 2))
	}},
	{"replaced, deleted and aborted leave nothing", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for n := range 4 {
			id := f.upload()
			f.part("b", "k", id, 1, Bytes(uint64(n), 100_000))
			f.part("b", "k", id, 2, Bytes(uint64(n), 50))
			f.part("b", "k", id, 1, Bytes(uint64(n), 90_000))
			if n%2 == 0 {
				f.completes(id, []int{1, 2}, slices.Concat(Bytes(uint64(n), 90_000), Bytes(uint64(n), 50)))
			} else {
				f.ok(f.s.AbortUpload(f.ctx, "b", "k", id), "abort")
			}
		}
		f.remove("b", "k", "")
		same(f, len(f.dump()), 1, "lines: the bucket")
	}},
}
