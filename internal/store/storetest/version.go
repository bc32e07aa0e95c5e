// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// history writes down the versions of a key, newest first: a letter for
// content, "x" for a delete marker, "0" before those that are the null version.
func (f *fixture) history(bucket, key string) string {
	f.Helper()
	p, err := f.s.List(f.ctx, object.List{Bucket: bucket, Prefix: key, Versions: true})
	f.ok(err, "list versions")
	var out []string
	for n, i := range p.Objects {
		same(f, i.Latest, n == 0, "Latest of version %d of %q", n, key)
		what := "x"
		ref := object.Ref{Bucket: bucket, Key: key, Version: i.Version}
		st, err := f.s.Stat(f.ctx, ref)
		f.ok(err, "stat %q", i.Version)
		same(f, st.Latest, i.Latest, "Latest of version %d of %q by Stat", n, key)
		same(f, st.Marker, i.Marker, "Marker of version %d of %q by Stat", n, key)
		if i.Marker {
			_, err := f.s.Open(f.ctx, ref)
			f.fails(err, object.ErrIsMarker, "open a delete marker")
		} else {
			_, data, err := Read(f.ctx, f.s, ref)
			f.ok(err, "read %q", i.Version)
			what = string(data[:1])
		}
		if i.Version == object.NullVersion {
			what = "0" + what
		}
		out = append(out, what)
	}
	// The current version has to be the first, or nothing.
	if len(p.Objects) == 0 {
		i := f.gone(bucket, key)
		same(f, i.Marker, false, "Marker where nothing is")
	} else if first := p.Objects[0]; first.Marker {
		i := f.gone(bucket, key)
		if !i.Marker || i.Version != first.Version || i.Modified.IsZero() {
			f.Fatalf("Stat of a deleted key gives %+v, expected the marker %+v", i, first)
		}
	} else {
		i, err := f.s.Stat(f.ctx, object.Ref{Bucket: bucket, Key: key})
		f.ok(err, "stat")
		same(f, i.Version, first.Version, "the current version")
	}
	return strings.Join(out, " ")
}

// word makes content that begins with a letter and lies inline or not.
func word(letter string, n int) []byte {
	return append([]byte(letter), Bytes(uint64(letter[0]), n-1)...)
}

// remove deletes a key or one version of it.
func (f *fixture) remove(bucket, key, version string) object.Deleted {
	f.Helper()
	d, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: bucket, Key: key, Version: version}})
	f.ok(err, "delete %q version %q", key, version)
	return d
}

// bothSizes runs a test with content that stores keep inline and with larger one.
func bothSizes(body func(f *fixture, n int)) func(f *fixture) {
	return func(f *fixture) {
		for _, n := range []int{10, 100_000} {
			body(f, n)
			bs, err := f.s.ListBuckets(f.ctx)
			f.ok(err, "list buckets")
			f.restart()
			for _, b := range bs {
				all := f.versions(b.Name)
				for _, i := range all {
					d := f.remove(b.Name, i.Key, i.Version)
					same(f, d.Existed, true, "Existed of %q version %q", i.Key, i.Version)
				}
				f.ok(f.s.DeleteBucket(f.ctx, b.Name), "delete bucket, all of whose versions were deleted")
			}
		}
	}
}

var versionTests = []test{
	{"off replaces", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		same(f, f.put("b", "k", word("a", n)).Version, object.NullVersion, "version")
		same(f, f.put("b", "k", word("b", n)).Version, object.NullVersion, "version")
		same(f, f.history("b", "k"), "0b", "history")
		f.holds(object.Ref{Bucket: "b", Key: "k", Version: object.NullVersion}, word("b", n))
		_, err := f.s.Stat(f.ctx, object.Ref{Bucket: "b", Key: "k", Version: "01H0000000000000000000000"})
		f.fails(err, object.ErrNoSuchVersion, "a version that never was")
		_, err = f.s.Open(f.ctx, object.Ref{Bucket: "b", Key: "none", Version: object.NullVersion})
		f.fails(err, object.ErrNoSuchVersion, "the null version of nothing")
	})},
	{"enabled adds", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		a, b, c := f.put("b", "k", word("a", n)), f.put("b", "k", word("b", n)), f.put("b", "k", word("c", n))
		if a.Version == b.Version || b.Version == c.Version || a.Version == c.Version || !a.Versioned() || !b.Versioned() {
			f.Fatalf("versions %q, %q, %q", a.Version, b.Version, c.Version)
		}
		same(f, f.history("b", "k"), "c b a", "history")
		f.holds(object.Ref{Bucket: "b", Key: "k", Version: a.Version}, word("a", n))
		f.holds(object.Ref{Bucket: "b", Key: "k", Version: b.Version}, word("b", n))
		f.holds(object.Ref{Bucket: "b", Key: "k"}, word("c", n))
		_, err := f.s.Stat(f.ctx, object.Ref{Bucket: "b", Key: "other", Version: a.Version})
		f.fails(err, object.ErrNoSuchVersion, "another key's version")
		_, err = f.s.Stat(f.ctx, object.Ref{Bucket: "b", Key: "k", Version: object.NullVersion})
		f.fails(err, object.ErrNoSuchVersion, "a null version that is not there")
		f.restart()
		d := f.put("b", "k", word("d", n))
		if d.Version == a.Version || d.Version == b.Version || d.Version == c.Version {
			f.Fatal("a version identifier was given twice")
		}
		same(f, f.history("b", "k"), "d c b a", "history after a restart")
	})},
	{"delete marker hides and is removed", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		f.put("b", "k", word("a", n))
		m := f.remove("b", "k", "")
		if !m.Marker || !m.Existed || m.Version == "" || m.Version == object.NullVersion {
			f.Fatalf("%+v", m)
		}
		same(f, f.history("b", "k"), "x a", "history")
		same(f, len(f.keys("b")), 0, "current keys")
		m2 := f.remove("b", "k", "")
		if !m2.Marker || m2.Version == m.Version {
			f.Fatalf("a second marker: %+v", m2)
		}
		same(f, f.history("b", "k"), "x x a", "history")
		f.put("b", "k", word("b", n))
		same(f, f.history("b", "k"), "b x x a", "history")
		d := f.remove("b", "k", m2.Version)
		if !d.Marker || !d.Existed || d.Version != m2.Version {
			f.Fatalf("removing a marker: %+v", d)
		}
		same(f, f.history("b", "k"), "b x a", "history")
		b, err := f.s.Stat(f.ctx, object.Ref{Bucket: "b", Key: "k"})
		f.ok(err, "stat")
		f.remove("b", "k", b.Version)
		same(f, f.history("b", "k"), "x a", "history")
		f.remove("b", "k", m.Version)
		same(f, f.history("b", "k"), "a", "history after the last marker was removed")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, word("a", n))
		same(f, strings.Join(f.keys("b"), " "), "k", "current keys")
	})},
	{"delete of the current version shows the one before", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		var ids []string
		for _, l := range []string{"a", "b", "c", "d"} {
			ids = append(ids, f.put("b", "k", word(l, n)).Version)
		}
		d := f.remove("b", "k", ids[3])
		if d.Marker || !d.Existed || d.Version != ids[3] {
			f.Fatalf("%+v", d)
		}
		same(f, f.history("b", "k"), "c b a", "history")
		f.remove("b", "k", ids[1])
		same(f, f.history("b", "k"), "c a", "history")
		f.restart()
		f.remove("b", "k", ids[2])
		same(f, f.history("b", "k"), "a", "history")
		d = f.remove("b", "k", ids[2])
		same(f, d.Existed, false, "Existed of a version removed twice")
		f.remove("b", "k", ids[0])
		same(f, f.history("b", "k"), "", "history")
		same(f, len(f.keys("b")), 0, "current keys")
	})},
	{"null version among others", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", word("a", n))
		f.versioning("b", object.VersioningEnabled)
		same(f, f.history("b", "k"), "0a", "history")
		bID := f.put("b", "k", word("b", n)).Version
		same(f, f.history("b", "k"), "b 0a", "history")
		f.holds(object.Ref{Bucket: "b", Key: "k", Version: object.NullVersion}, word("a", n))
		f.versioning("b", object.VersioningSuspended)
		same(f, f.put("b", "k", word("c", n)).Version, object.NullVersion, "version")
		same(f, f.history("b", "k"), "0c b", "history: the null version is replaced and becomes current")
		f.put("b", "k", word("d", n))
		same(f, f.history("b", "k"), "0d b", "history")
		m := f.remove("b", "k", "")
		if !m.Marker || !m.Existed || m.Version != object.NullVersion {
			f.Fatalf("deleted while suspended: %+v", m)
		}
		same(f, f.history("b", "k"), "0x b", "history: a null marker replaces the null version")
		f.remove("b", "k", "")
		same(f, f.history("b", "k"), "0x b", "history")
		f.versioning("b", object.VersioningEnabled)
		f.put("b", "k", word("e", n))
		same(f, f.history("b", "k"), "e 0x b", "history")
		f.versioning("b", object.VersioningSuspended)
		f.put("b", "k", word("f", n))
		same(f, f.history("b", "k"), "0f e b", "history: the null marker deep down is replaced")
		f.versioning("b", object.VersioningEnabled)
		f.put("b", "k", word("g", n))
		same(f, f.history("b", "k"), "g 0f e b", "history")
		f.versioning("b", object.VersioningSuspended)
		f.remove("b", "k", "")
		same(f, f.history("b", "k"), "0x g e b", "history")
		f.restart()
		d := f.remove("b", "k", object.NullVersion)
		if !d.Marker || !d.Existed || d.Version != object.NullVersion {
			f.Fatalf("removing the null marker: %+v", d)
		}
		same(f, f.history("b", "k"), "g e b", "history")
		d = f.remove("b", "k", object.NullVersion)
		same(f, d.Existed, false, "Existed of a null version that is gone")
		f.remove("b", "k", bID)
		same(f, f.history("b", "k"), "g e", "history")
	})},
	{"suspended delete of what is not there", func(f *fixture) {
		f.bucket("b", object.VersioningSuspended, object.ETagMD5)
		m := f.remove("b", "k", "")
		if !m.Marker || m.Existed || m.Version != object.NullVersion {
			f.Fatalf("%+v", m)
		}
		same(f, f.history("b", "k"), "0x", "history")
		f.put("b", "k", []byte("a"))
		same(f, f.history("b", "k"), "0a", "history")
		f.versioning("b", object.VersioningEnabled)
		m = f.remove("b", "other", "")
		if !m.Marker || m.Existed || m.Version == object.NullVersion {
			f.Fatalf("%+v", m)
		}
		same(f, f.history("b", "other"), "x", "history")
	}},
	{"attributes of one version", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		a := f.put("b", "k", []byte("a"))
		b := f.put("b", "k", []byte("b"))
		m := f.remove("b", "k", "")
		set := func(version string) error {
			return f.s.SetAttributes(f.ctx, object.Ref{Bucket: "b", Key: "k", Version: version},
				func(as map[string]string) error { as["tag"] = version; return nil })
		}
		f.ok(set(a.Version), "an old version")
		f.fails(set(""), object.ErrNoSuchKey, "a deleted key")
		if err := set(m.Version); err == nil {
			f.Fatal("a delete marker was given attributes")
		}
		same(f, f.holds(object.Ref{Bucket: "b", Key: "k", Version: a.Version}, []byte("a")).Attributes["tag"], a.Version,
			"attribute")
		same(f, len(f.holds(object.Ref{Bucket: "b", Key: "k", Version: b.Version}, []byte("b")).Attributes), 0,
			"attributes of the other version")
		f.remove("b", "k", m.Version)
		f.ok(set(b.Version), "the current version by its name")
		same(f, f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("b")).Attributes["tag"], b.Version, "attribute")
		same(f, f.history("b", "k"), "b a", "history")
	}},
	{"many of one key, beside its neighbours", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		for n := range 30 {
			for _, k := range []string{"k", "k\x00", "k\x00\x00", "k/", "kk", "j\xff"} {
				f.put("b", k, []byte(fmt.Sprintf("%s %d", k, n)))
			}
		}
		all := f.versions("b")
		same(f, len(all), 180, "versions")
		n := map[string]int{}
		for _, i := range all {
			_, data, err := Read(f.ctx, f.s, object.Ref{Bucket: "b", Key: i.Key, Version: i.Version})
			f.ok(err, "read")
			n[i.Key]++
			same(f, string(data), fmt.Sprintf("%s %d", i.Key, 30-n[i.Key]), "content")
		}
	}},
}

var deleteTests = []test{
	{"in a bucket without versions", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", word("a", n))
		same(f, f.remove("b", "k", ""), object.Deleted{Existed: true}, "deleted")
		same(f, f.remove("b", "k", "").Existed, false, "Existed of what is gone")
		f.put("b", "k", word("b", n))
		same(f, f.remove("b", "k", "no-such-version").Existed, false, "Existed of no such version")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, word("b", n))
		d := f.remove("b", "k", object.NullVersion)
		if !d.Existed || d.Marker {
			f.Fatalf("%+v", d)
		}
		f.gone("b", "k")
	})},
	{"many at once", bothSizes(func(f *fixture, n int) {
		for _, v := range []object.Versioning{object.VersioningOff, object.VersioningEnabled} {
			b := "b" + string(v)
			f.bucket(b, v, object.ETagMD5)
			for i := range 20 {
				f.put(b, fmt.Sprint(i), word("a", n))
			}
			old := f.put(b, "versions", word("a", n))
			f.put(b, "versions", word("b", n))
			var ds []object.Deletion
			for i := range 10 {
				ds = append(ds, object.Deletion{Ref: object.Ref{Bucket: b, Key: fmt.Sprint(i)}})
			}
			ds = append(ds,
				object.Deletion{Ref: object.Ref{Bucket: b, Key: "none"}},
				object.Deletion{Ref: object.Ref{Bucket: b, Key: "10"}, Condition: object.Condition{IfMatch: "0123"}},
				object.Deletion{Ref: object.Ref{Bucket: b, Key: "missing"}, Condition: object.Condition{IfMatch: "*"}},
				object.Deletion{Ref: object.Ref{Bucket: b, Key: "11"}, Condition: object.Condition{IfMatch: MD5(word("a", n))}},
				object.Deletion{Ref: object.Ref{Bucket: b, Key: "versions", Version: old.Version}},
				object.Deletion{Ref: object.Ref{Bucket: b, Key: "0"}},
			)
			out, errs := f.s.DeleteMany(f.ctx, b, ds)
			same(f, len(out), len(ds), "results")
			same(f, len(errs), len(ds), "errors")
			for i, d := range ds {
				switch d.Key {
				case "10":
					f.fails(errs[i], object.ErrPrecondition, "a condition that fails")
				case "missing":
					f.fails(errs[i], object.ErrNoSuchKey, "a condition on nothing")
				default:
					f.ok(errs[i], "%q", d.Key)
					if d.Key == "none" || i == len(ds)-1 {
						same(f, out[i].Existed, false, "Existed of %q", d.Key)
					} else {
						same(f, out[i].Existed, true, "Existed of %q", d.Key)
					}
				}
			}
			same(f, strings.Join(f.keys(b), " "), map[object.Versioning]string{
				object.VersioningOff:     "10 12 13 14 15 16 17 18 19",
				object.VersioningEnabled: "10 12 13 14 15 16 17 18 19 versions",
			}[v], "current keys")
			same(f, f.history(b, "0"), map[object.Versioning]string{object.VersioningOff: "",
				object.VersioningEnabled: "x x a"}[v], "a key deleted twice")
			same(f, f.history(b, "versions"), map[object.Versioning]string{object.VersioningOff: "",
				object.VersioningEnabled: "b"}[v], "one version deleted")
		}
		out, errs := f.s.DeleteMany(f.ctx, "b", nil)
		same(f, len(out)+len(errs), 0, "results of nothing")
	})},
}
