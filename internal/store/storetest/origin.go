// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// long is a time of another server, long before the test.
var long = time.Date(2021, 3, 4, 5, 6, 7, 891_000_000, time.UTC)

// copied writes a copy of a version of another server.
func (f *fixture) copied(bucket, key string, data []byte, o object.Origin) (object.Info, error) {
	return f.s.Put(f.ctx, object.Put{Bucket: bucket, Key: key, Size: int64(len(data)), Body: bytes.NewReader(data),
		Origin: &o})
}

var originTests = []test{
	{"a copy keeps time, ETag and order", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		a, err := f.copied("b", "k", word("a", n), object.Origin{Modified: long, ETag: "d41d8cd98f00b204e9800998ecf8427e-2"})
		f.ok(err, "copy to an empty key")
		same(f, a.Modified, long, "time of the copy")
		same(f, a.ETag, "d41d8cd98f00b204e9800998ecf8427e-2", "ETag of the copy")
		d, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"},
			Origin: &object.Origin{Modified: long.Add(time.Second), Newest: a.Version}})
		f.ok(err, "copy of a delete marker")
		c, err := f.copied("b", "k", word("c", n), object.Origin{Modified: long.Add(-time.Hour), Newest: d.Version})
		f.ok(err, "copy with an earlier time")
		same(f, c.Modified, long.Add(-time.Hour), "an earlier time")
		same(f, c.ETag, f.put("b", "other", word("c", n)).ETag, "ETag that the store computes")
		f.restart()
		same(f, f.history("b", "k"), "c x a", "history")
		all := f.versions("b")
		same(f, all[1].Modified, long.Add(time.Second), "time of the delete marker")
	})},
	{"a repeated copy adds nothing", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		o := object.Origin{Modified: long}
		a, err := f.copied("b", "k", word("a", n), o)
		f.ok(err, "copy")
		_, err = f.copied("b", "k", word("a", n), o)
		f.fails(err, object.ErrPrecondition, "the same copy again")
		o.Newest = a.Version
		m := object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}, Origin: &o}
		_, err = f.s.Delete(f.ctx, m)
		f.ok(err, "copy of a delete marker")
		_, err = f.s.Delete(f.ctx, m)
		f.fails(err, object.ErrPrecondition, "the same delete marker again")
		_, err = f.copied("b", "k", word("b", n), object.Origin{Modified: long, Newest: "no-such-version"})
		f.fails(err, object.ErrPrecondition, "a copy after an unknown version")
		same(f, f.history("b", "k"), "x a", "history")
	})},
	{"a copy is the null version if its origin was", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		a, err := f.copied("b", "k", word("a", n), object.Origin{Modified: long, Null: true})
		f.ok(err, "null version in a bucket with versions")
		same(f, a.Version, object.NullVersion, "version")
		b, err := f.copied("b", "k", word("b", n), object.Origin{Modified: long, Newest: a.Version})
		f.ok(err, "version above the null version")
		f.ok(f.s.UpdateBucket(f.ctx, "b", func(b *object.Bucket) error {
			b.Versioning = object.VersioningSuspended
			return nil
		}), "suspend")
		c, err := f.copied("b", "k", word("c", n), object.Origin{Modified: long, Newest: b.Version})
		f.ok(err, "version in a bucket whose versioning is suspended")
		same(f, f.history("b", "k"), "c b 0a", "history")
		_, err = f.copied("b", "k", word("d", n), object.Origin{Modified: long, Null: true, Newest: c.Version})
		f.ok(err, "another null version")
		same(f, f.history("b", "k"), "0d c b", "history after another null version")
	})},
	{"a bucket without versions keeps one copy", bothSizes(func(f *fixture, n int) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		_, err := f.copied("b", "k", word("a", n), object.Origin{Modified: long})
		f.ok(err, "first copy")
		b, err := f.copied("b", "k", word("b", n), object.Origin{Modified: long, Newest: object.NullVersion})
		f.ok(err, "second copy")
		same(f, b.Modified, long, "time")
		same(f, f.history("b", "k"), "0b", "history")
	})},
}
