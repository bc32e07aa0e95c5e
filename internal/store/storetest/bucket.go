// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

var errMine = errors.New("an error of the test's own")

var bucketTests = []test{
	{"made and listed in order", func(f *fixture) {
		before := time.Now().Add(-time.Minute)
		for _, n := range []string{"b", "a.b", "c", "a-b", "a"} {
			f.bucket(n, object.VersioningOff, object.ETagMD5)
		}
		bs, err := f.s.ListBuckets(f.ctx)
		f.ok(err, "list")
		var names []string
		for _, b := range bs {
			names = append(names, b.Name)
			if b.Created.Before(before) || b.Created.After(time.Now().Add(time.Minute)) {
				f.Fatalf("%s was created at %v", b.Name, b.Created)
			}
		}
		same(f, strings.Join(names, " "), "a a-b a.b b c", "names")
		f.fails(f.s.CreateBucket(f.ctx, object.Bucket{Name: "a"}), object.ErrBucketExists, "a second a")
		f.fails(f.s.CreateBucket(f.ctx, object.Bucket{Name: ""}), object.ErrInvalidName, "no name")
	}},
	{"keeps settings and shares nothing", func(f *fixture) {
		doc := []byte("<policy/>")
		given := object.Bucket{Name: "b", Owner: "AKIA", Created: time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC),
			Versioning: object.VersioningEnabled, ETag: object.ETagCRC64,
			Settings: map[string][]byte{"policy": doc, "": {}, "\x00\xff": {0}}}
		f.ok(f.s.CreateBucket(f.ctx, given), "create")
		doc[0] = 'X'
		given.Settings["more"] = nil
		b, err := f.s.Bucket(f.ctx, "b")
		f.ok(err, "bucket")
		if b.Owner != "AKIA" || !b.Created.Equal(given.Created) || b.Versioning != object.VersioningEnabled ||
			b.ETag != object.ETagCRC64 ||
			len(b.Settings) != 3 || string(b.Settings["policy"]) != "<policy/>" ||
			!bytes.Equal(b.Settings["\x00\xff"], []byte{0}) {
			f.Fatalf("%+v", b)
		}
	}},
	{"changed", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		old, err := f.s.Bucket(f.ctx, "b")
		f.ok(err, "bucket")
		created := old.Created
		var kept *object.Bucket
		f.ok(f.s.UpdateBucket(f.ctx, "b", func(b *object.Bucket) error {
			b.Name, b.Created, b.Owner = "other", time.Time{}, "me"
			b.Versioning = object.VersioningEnabled
			b.Settings = map[string][]byte{"acl": []byte("private")}
			kept = b
			return nil
		}), "update")
		kept.Owner, kept.Settings["acl"][0] = "you", 'X'
		b, err := f.s.Bucket(f.ctx, "b")
		f.ok(err, "bucket")
		if b.Name != "b" || !b.Created.Equal(created) || b.Owner != "me" || b.Versioning != object.VersioningEnabled ||
			string(b.Settings["acl"]) != "private" {
			f.Fatalf("%+v", b)
		}
		if old.Owner != "" || old.Versioning != object.VersioningOff {
			f.Fatalf("what was handed out before changed: %+v", old)
		}
		err = f.s.UpdateBucket(f.ctx, "b", func(b *object.Bucket) error {
			b.Owner, b.Settings["acl"][0] = "nobody", 'Y'
			return errMine
		})
		f.fails(err, errMine, "an update that fails")
		b, err = f.s.Bucket(f.ctx, "b")
		f.ok(err, "bucket")
		same(f, b.Owner+string(b.Settings["acl"]), "meprivate", "after an update that failed")
		_ = f.s.UpdateBucket(f.ctx, "b", func(b *object.Bucket) error { b.Versioning = object.VersioningOff; return nil })
		b, err = f.s.Bucket(f.ctx, "b")
		f.ok(err, "bucket")
		if b.Versioning == object.VersioningOff {
			f.Fatal("versioning was turned off again")
		}
	}},
	{"updates lose none", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 10 {
					if err := f.s.UpdateBucket(f.ctx, "b", func(b *object.Bucket) error {
						if b.Settings == nil {
							b.Settings = map[string][]byte{}
						}
						b.Settings[fmt.Sprintf("%d.%d", g, i)] = []byte{1}
						return nil
					}); err != nil {
						f.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b, err := f.s.Bucket(f.ctx, "b")
		f.ok(err, "bucket")
		same(f, len(b.Settings), 80, "settings")
	}},
	{"missing", func(f *fixture) {
		_, err := f.s.Bucket(f.ctx, "b")
		f.fails(err, object.ErrNoSuchBucket, "bucket")
		f.fails(f.s.UpdateBucket(f.ctx, "b", func(*object.Bucket) error { f.Error("called"); return nil }),
			object.ErrNoSuchBucket, "update")
		f.fails(f.s.DeleteBucket(f.ctx, "b"), object.ErrNoSuchBucket, "delete")
		ref := object.Ref{Bucket: "b", Key: "k"}
		_, err = f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Body: bytes.NewReader(nil)})
		f.fails(err, object.ErrNoSuchBucket, "put")
		_, err = f.s.Stat(f.ctx, ref)
		f.fails(err, object.ErrNoSuchBucket, "stat")
		_, err = f.s.Open(f.ctx, ref)
		f.fails(err, object.ErrNoSuchBucket, "open")
		_, err = f.s.Delete(f.ctx, object.Deletion{Ref: ref})
		f.fails(err, object.ErrNoSuchBucket, "delete object")
		ds, errs := f.s.DeleteMany(f.ctx, "b", []object.Deletion{{Ref: ref}, {Ref: ref}})
		same(f, len(ds), 2, "results")
		same(f, len(errs), 2, "errors")
		f.fails(errs[0], object.ErrNoSuchBucket, "delete many")
		f.fails(errs[1], object.ErrNoSuchBucket, "delete many")
		f.fails(f.s.SetAttributes(f.ctx, ref, func(map[string]string) error { return nil }), object.ErrNoSuchBucket,
			"attributes")
		_, err = f.s.List(f.ctx, object.List{Bucket: "b"})
		f.fails(err, object.ErrNoSuchBucket, "list")
		_, err = f.s.CreateUpload(f.ctx, "b", "k", nil)
		f.fails(err, object.ErrNoSuchBucket, "create upload")
		_, err = f.s.GetUpload(f.ctx, "b", "k", "id")
		f.fails(err, object.ErrNoSuchBucket, "get upload")
		_, err = f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "k", Upload: "id", Number: 1,
			Body: bytes.NewReader(nil)})
		f.fails(err, object.ErrNoSuchBucket, "put part")
		_, _, err = f.s.ListParts(f.ctx, "b", "k", "id", 0, 1)
		f.fails(err, object.ErrNoSuchBucket, "list parts")
		_, err = f.s.CompleteUpload(f.ctx, object.Complete{Bucket: "b", Key: "k", Upload: "id",
			Parts: []object.CompletedPart{{Number: 1}}})
		f.fails(err, object.ErrNoSuchBucket, "complete")
		f.fails(f.s.AbortUpload(f.ctx, "b", "k", "id"), object.ErrNoSuchBucket, "abort")
		_, err = f.s.ListUploads(f.ctx, object.UploadList{Bucket: "b"})
		f.fails(err, object.ErrNoSuchBucket, "list uploads")
		f.bucket("a", object.VersioningOff, object.ETagMD5)
		f.put("a", "k", nil)
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "a", Key: "k"}, Bucket: "b", Key: "k"})
		f.fails(err, object.ErrNoSuchBucket, "copy to")
		_, err = f.s.Copy(f.ctx, object.Copy{From: ref, Bucket: "a", Key: "k"})
		f.fails(err, object.ErrNoSuchBucket, "copy from")
		id, err := f.s.CreateUpload(f.ctx, "a", "k", nil)
		f.ok(err, "create upload")
		_, err = f.s.CopyPart(f.ctx, object.CopyPart{From: ref, N: -1, Bucket: "a", Key: "k", Upload: id, Number: 1})
		f.fails(err, object.ErrNoSuchBucket, "copy part from")
	}},
	{"deleted only when empty", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		one := f.put("b", "k", []byte("one"))
		f.fails(f.s.DeleteBucket(f.ctx, "b"), object.ErrBucketNotEmpty, "with an object")
		d, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}})
		f.ok(err, "delete")
		f.fails(f.s.DeleteBucket(f.ctx, "b"), object.ErrBucketNotEmpty, "with a version and a marker")
		_, err = f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k", Version: one.Version}})
		f.ok(err, "delete the version")
		f.fails(f.s.DeleteBucket(f.ctx, "b"), object.ErrBucketNotEmpty, "with a marker")
		_, err = f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k", Version: d.Version}})
		f.ok(err, "delete the marker")
		f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete")
		_, err = f.s.Bucket(f.ctx, "b")
		f.fails(err, object.ErrNoSuchBucket, "bucket")
	}},
	{"deletion takes uploads along", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		id, err := f.s.CreateUpload(f.ctx, "b", "k", nil)
		f.ok(err, "create upload")
		f.part("b", "k", id, 1, Bytes(1, 100_000))
		f.part("b", "k", id, 2, Bytes(2, 200))
		f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete")
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		_, err = f.s.GetUpload(f.ctx, "b", "k", id)
		f.fails(err, object.ErrNoSuchUpload, "the upload of a bucket before")
		ups, err := allUploads(f.ctx, f.s, object.UploadList{Bucket: "b"})
		f.ok(err, "list uploads")
		same(f, len(ups), 0, "uploads")
	}},
	{"made again it is another", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", []byte("old"))
		_, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}})
		f.ok(err, "delete")
		f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete bucket")
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		f.gone("b", "k")
		f.put("b", "k", []byte("new"))
		f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("new"))
	}},
	{"do not see each other", func(f *fixture) {
		for _, n := range []string{"a", "b", "ab"} {
			f.bucket(n, object.VersioningOff, object.ETagMD5)
		}
		f.put("a", "bk", []byte("a"))
		f.put("ab", "k", []byte("ab"))
		f.gone("b", "bk")
		if ks := f.keys("b"); len(ks) != 0 {
			f.Fatalf("%q", ks)
		}
		if ks := f.keys("a"); !slices.Equal(ks, []string{"bk"}) {
			f.Fatalf("%q", ks)
		}
		f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete")
		f.holds(object.Ref{Bucket: "a", Key: "bk"}, []byte("a"))
	}},
	{"two stores at once", func(f *fixture) {
		other := f.target.Open(f.T)
		defer func() { f.ok(other.Close(), "close") }()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", Bytes(1, 50_000))
		_, err := other.Bucket(f.ctx, "b")
		f.fails(err, object.ErrNoSuchBucket, "in another store")
		f.ok(other.CreateBucket(f.ctx, object.Bucket{Name: "b"}), "create")
		_, err = other.Stat(f.ctx, object.Ref{Bucket: "b", Key: "k"})
		f.fails(err, object.ErrNoSuchKey, "in another store")
	}},
	{"closed store", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		s := f.s
		f.s = nil
		f.ok(s.Close(), "close")
		_, err := s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Body: bytes.NewReader(nil)})
		f.fails(err, object.ErrClosed, "put")
		_, err = s.Stat(f.ctx, object.Ref{Bucket: "b", Key: "k"})
		f.fails(err, object.ErrClosed, "stat")
		_, err = s.List(f.ctx, object.List{Bucket: "b"})
		f.fails(err, object.ErrClosed, "list")
		f.fails(s.CreateBucket(f.ctx, object.Bucket{Name: "c"}), object.ErrClosed, "create bucket")
		_, err = s.CreateUpload(f.ctx, "b", "k", nil)
		f.fails(err, object.ErrClosed, "create upload")
		f.fails(s.PutRecord(f.ctx, "kind", "n", nil), object.ErrClosed, "put record")
	}},
}

var recordTests = []test{
	{"written, replaced, listed, removed", func(f *fixture) {
		for _, k := range recordKinds {
			for _, n := range []string{"b", "a", "a/b", "\x00", "a\x00b", "\xff\xff", strings.Repeat("n", 500)} {
				f.ok(f.s.PutRecord(f.ctx, k, n, []byte(k+n)), "put")
			}
		}
		given := []byte("mine")
		f.ok(f.s.PutRecord(f.ctx, "kind", "a", given), "replace")
		given[0] = 'X'
		got, err := f.s.Record(f.ctx, "kind", "a")
		f.ok(err, "record")
		same(f, string(got), "mine", "value")
		got[0] = 'Y'
		got, err = f.s.Record(f.ctx, "kind", "a")
		f.ok(err, "record")
		same(f, string(got), "mine", "value after the caller changed what it got")
		got, err = f.s.Record(f.ctx, "k\x00", "\xff\xff")
		f.ok(err, "record")
		same(f, string(got), "k\x00\xff\xff", "value")
		f.ok(f.s.DeleteRecord(f.ctx, "other", "a/b"), "delete")
		f.fails(f.s.DeleteRecord(f.ctx, "other", "a/b"), object.ErrNoSuchRecord, "delete twice")
		_, err = f.s.Record(f.ctx, "other", "a/b")
		f.fails(err, object.ErrNoSuchRecord, "deleted")
		_, err = f.s.Record(f.ctx, "kin", "da")
		f.fails(err, object.ErrNoSuchRecord, "never written")
		names, err := f.s.RecordNames(f.ctx, "other")
		f.ok(err, "names")
		if want := []string{"\x00", "a", "a\x00b", "b", strings.Repeat("n", 500), "\xff\xff"}; !slices.Equal(names, want) {
			f.Fatalf("%q, expected %q", names, want)
		}
		names, err = f.s.RecordNames(f.ctx, "oth")
		f.ok(err, "names")
		same(f, len(names), 0, "names of a kind without records")
	}},
	{"bounds", func(f *fixture) {
		f.ok(f.s.PutRecord(f.ctx, "kind", "empty", nil), "no bytes")
		v, err := f.s.Record(f.ctx, "kind", "empty")
		f.ok(err, "record")
		same(f, len(v), 0, "length")
		f.ok(f.s.PutRecord(f.ctx, "kind", "large", Bytes(1, 1<<20)), "1 MiB")
		v, err = f.s.Record(f.ctx, "kind", "large")
		f.ok(err, "record")
		if !bytes.Equal(v, Bytes(1, 1<<20)) {
			f.Fatal("1 MiB came back as something else")
		}
		f.fails(f.s.PutRecord(f.ctx, "kind", "larger", Bytes(1, 1<<20+1)), object.ErrTooLarge, "1 MiB and a byte")
		f.fails(f.s.PutRecord(f.ctx, "", "n", nil), object.ErrInvalidName, "no kind")
		f.fails(f.s.PutRecord(f.ctx, "kind", "", nil), object.ErrInvalidName, "no name")
	}},
}
