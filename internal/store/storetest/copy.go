// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"maps"

	"github.com/nebulaio/nebulaio/internal/object"
)

var copyTests = []test{
	{"of every size", func(f *fixture) {
		f.bucket("from", object.VersioningOff, object.ETagMD5)
		f.bucket("to", object.VersioningEnabled, object.ETagMD5)
		for i, n := range f.sizes() {
			data := Bytes(uint64(i), n)
			as := map[string]string{"n": fmt.Sprint(n)}
			src := f.put("from", "k", data, func(p *object.Put) { p.Attributes = as })
			key := fmt.Sprint(n)
			c, err := f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "from", Key: "k"}, Bucket: "to", Key: key})
			f.ok(err, "copy %d bytes", n)
			f.describes(c, "to", key, data)
			same(f, c.ETag, src.ETag, "ETag of a copy of %d bytes", n)
			same(f, c.Latest, true, "Latest")
			same(f, c.Versioned(), true, "a version of its own")
			f.put("from", "k", []byte("replaced"))
			i := f.holds(object.Ref{Bucket: "to", Key: key}, data)
			if !maps.Equal(i.Attributes, as) {
				f.Fatalf("attributes %v, expected those of the source %v", i.Attributes, as)
			}
		}
	}},
	{"with other attributes", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", []byte("x"), func(p *object.Put) { p.Attributes = map[string]string{"old": "1"} })
		given := map[string]string{"new": "2"}
		_, err := f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "c",
			Attributes: given})
		f.ok(err, "copy")
		given["new"] = "changed"
		i := f.holds(object.Ref{Bucket: "b", Key: "c"}, []byte("x"))
		if !maps.Equal(i.Attributes, map[string]string{"new": "2"}) {
			f.Fatalf("attributes %v", i.Attributes)
		}
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "e",
			Attributes: map[string]string{}})
		f.ok(err, "copy")
		same(f, len(f.holds(object.Ref{Bucket: "b", Key: "e"}, []byte("x")).Attributes), 0,
			"attributes where none are wanted")
	}},
	{"onto itself", bothSizes(func(f *fixture, n int) {
		for _, v := range []object.Versioning{object.VersioningOff, object.VersioningEnabled, object.VersioningSuspended} {
			b := "b" + string(v)
			f.bucket(b, v, object.ETagMD5)
			old := f.put(b, "k", word("a", n), func(p *object.Put) { p.Attributes = map[string]string{"old": "1"} })
			for round := range 3 {
				as := map[string]string{"round": fmt.Sprint(round)}
				c, err := f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: b, Key: "k"}, Bucket: b, Key: "k", Attributes: as})
				f.ok(err, "copy")
				same(f, c.ETag, old.ETag, "ETag")
				if c.Modified.Before(old.Modified) {
					f.Fatalf("modified at %v, before %v", c.Modified, old.Modified)
				}
				if i := f.holds(object.Ref{Bucket: b, Key: "k"}, word("a", n)); !maps.Equal(i.Attributes, as) {
					f.Fatalf("attributes %v, expected %v", i.Attributes, as)
				}
			}
			want := map[object.Versioning]string{object.VersioningOff: "0a", object.VersioningEnabled: "a a a a",
				object.VersioningSuspended: "0a"}[v]
			same(f, f.history(b, "k"), want, "history, versioning %q", v)
			f.restart()
			f.holds(object.Ref{Bucket: b, Key: "k"}, word("a", n))
		}
	})},
	{"of an old version brings it back", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		a := f.put("b", "k", word("a", n))
		f.put("b", "k", word("b", n))
		m := f.remove("b", "k", "")
		from := object.Ref{Bucket: "b", Key: "k", Version: a.Version}
		_, err := f.s.Copy(f.ctx, object.Copy{From: from, Bucket: "b", Key: "k"})
		f.ok(err, "copy")
		same(f, f.history("b", "k"), "a x b a", "history")
		f.remove("b", "k", a.Version)
		same(f, f.history("b", "k"), "a x b", "history without the source")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, word("a", n))
		_, err = f.s.Copy(f.ctx, object.Copy{From: from, Bucket: "b", Key: "c"})
		f.fails(err, object.ErrNoSuchVersion, "a version that is gone")
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k", Version: m.Version}, Bucket: "b",
			Key: "c"})
		f.fails(err, object.ErrIsMarker, "a delete marker")
		f.remove("b", "k", "")
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "c"})
		f.fails(err, object.ErrNoSuchKey, "a deleted key")
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "none"}, Bucket: "b", Key: "c"})
		f.fails(err, object.ErrNoSuchKey, "no key")
		f.gone("b", "c")
	})},
	{"of a null version in a suspended bucket onto its key", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningSuspended, object.ETagMD5)
		f.put("b", "k", word("a", n))
		f.versioning("b", object.VersioningEnabled)
		f.put("b", "k", word("b", n))
		f.versioning("b", object.VersioningSuspended)
		// The source is the very version that the copy replaces.
		_, err := f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k", Version: object.NullVersion},
			Bucket: "b", Key: "k"})
		f.ok(err, "copy")
		same(f, f.history("b", "k"), "0a b", "history")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, word("a", n))
	})},
	{"of a multipart object", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		one, two := Bytes(1, 40_000), Bytes(2, 3000)
		id, err := f.s.CreateUpload(f.ctx, "b", "k", map[string]string{"a": "1"})
		f.ok(err, "create")
		f.part("b", "k", id, 1, one)
		f.part("b", "k", id, 2, two)
		_, err = f.s.CompleteUpload(f.ctx, object.Complete{Bucket: "b", Key: "k", Upload: id,
			Parts: []object.CompletedPart{{Number: 1}, {Number: 2}}})
		f.ok(err, "complete")
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "c"})
		f.ok(err, "copy")
		f.remove("b", "k", "")
		f.holds(object.Ref{Bucket: "b", Key: "c"}, append(one, two...))
	}},
}
