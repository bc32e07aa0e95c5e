// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// conditionCase is a condition and what comes of it where there is an object,
// where there is none and where the current version is a delete marker.
type conditionCase struct {
	name    string
	cond    object.Condition
	there   error
	missing error
}

// conditionCases are made for the object that i describes.
func conditionCases(i object.Info) []conditionCase {
	size, other := i.Size, i.Size+1
	at, second, later := i.Modified, i.Modified.Truncate(time.Second), i.Modified.Add(2*time.Second)
	no := object.ErrPrecondition
	gone := object.ErrNoSuchKey
	return []conditionCase{
		{"none", object.Condition{}, nil, nil},
		{"if match", object.Condition{IfMatch: i.ETag}, nil, gone},
		{"if match any", object.Condition{IfMatch: "*"}, nil, gone},
		{"if match another", object.Condition{IfMatch: "0123"}, no, gone},
		{"if none match any", object.Condition{IfNoneMatch: "*"}, no, nil},
		{"if none match", object.Condition{IfNoneMatch: i.ETag}, no, nil},
		{"if none match another", object.Condition{IfNoneMatch: "0123"}, nil, nil},
		{"if size", object.Condition{IfSize: &size}, nil, gone},
		{"if another size", object.Condition{IfSize: &other}, no, gone},
		{"if modified", object.Condition{IfModified: &at}, nil, gone},
		{"if modified in that second", object.Condition{IfModified: &second}, nil, gone},
		{"if modified at another time", object.Condition{IfModified: &later}, no, gone},
		{"all at once", object.Condition{IfMatch: i.ETag, IfNoneMatch: "0123", IfSize: &size, IfModified: &at}, nil, gone},
		{"all but one", object.Condition{IfMatch: i.ETag, IfSize: &other, IfModified: &at}, no, gone},
	}
}

var conditionTests = []test{
	{"of puts", func(f *fixture) { f.conditions(f.tryPut) }},
	{"of copies", func(f *fixture) { f.conditions(f.tryCopy) }},
	{"of completions", func(f *fixture) { f.conditions(f.tryComplete) }},
	{"of deletions", func(f *fixture) { f.conditions(f.tryDelete) }},
	{"of a copy's source", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		old := f.put("b", "from", []byte("old"))
		f.put("b", "from", []byte("newer"))
		for n, c := range conditionCases(old) {
			key := fmt.Sprint(n)
			_, err := f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "from", Version: old.Version},
				FromCondition: c.cond, Bucket: "b", Key: key})
			f.expect(err, c.there, c.name)
			if c.there != nil {
				f.gone("b", key)
			} else {
				f.holds(object.Ref{Bucket: "b", Key: key}, []byte("old"))
			}
		}
	}},
	{"a failed condition changes nothing", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		f.put("b", "k", []byte("old"))
		before := f.dump()
		no := object.Condition{IfMatch: "0123"}
		for _, n := range []int{0, 10, 100_000} {
			_, err := f.s.Put(f.ctx, object.Put{Bucket: "b", Key: "k", Size: int64(n), Body: bytes.NewReader(Bytes(1, n)),
				Condition: no})
			f.fails(err, object.ErrPrecondition, "put")
		}
		_, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}, Condition: no})
		f.fails(err, object.ErrPrecondition, "delete")
		_, err = f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "k", Condition: no})
		f.fails(err, object.ErrPrecondition, "copy")
		if d := Diff(before, f.dump()); d != "" {
			f.Fatalf("changed:\n%s", d)
		}
	}},
	{"a completion that fails keeps the upload", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", []byte("old"))
		id, err := f.s.CreateUpload(f.ctx, "b", "k", nil)
		f.ok(err, "create")
		f.part("b", "k", id, 1, []byte("new"))
		c := object.Complete{Bucket: "b", Key: "k", Upload: id, Parts: []object.CompletedPart{{Number: 1}},
			Condition: object.Condition{IfNoneMatch: "*"}}
		_, err = f.s.CompleteUpload(f.ctx, c)
		f.fails(err, object.ErrPrecondition, "complete")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("old"))
		c.Condition = object.Condition{IfMatch: MD5([]byte("old"))}
		_, err = f.s.CompleteUpload(f.ctx, c)
		f.ok(err, "complete")
		f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("new"))
	}},
}

// expect ends the test unless err is want, or both are nil.
func (f *fixture) expect(err, want error, what string) {
	f.Helper()
	if want == nil {
		f.ok(err, "%s", what)
		return
	}
	f.fails(err, want, "%s", what)
}

// conditions tries every condition, in every state of versioning, on an object,
// on nothing and on a delete marker.
func (f *fixture) conditions(try func(bucket, key string, c object.Condition) error) {
	for _, v := range []object.Versioning{object.VersioningOff, object.VersioningEnabled, object.VersioningSuspended} {
		b := "b" + string(v)
		f.bucket(b, v, object.ETagMD5)
		for n, c := range conditionCases(object.Info{}) {
			what := fmt.Sprintf("%s, versioning %q", c.name, v)
			key := fmt.Sprint(n)
			i := f.put(b, key, []byte("content"))
			now := conditionCases(i)[n]
			f.expect(try(b, key, now.cond), now.there, what+", an object")
			key += "/missing"
			i.Modified = time.Now()
			f.expect(try(b, key, conditionCases(i)[n].cond), c.missing, what+", nothing")
			if v == object.VersioningOff {
				continue
			}
			key += "/marker"
			i = f.put(b, key, []byte("content"))
			_, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: b, Key: key}})
			f.ok(err, "delete")
			f.expect(try(b, key, conditionCases(i)[n].cond), c.missing, what+", a delete marker")
		}
	}
}

func (f *fixture) tryPut(bucket, key string, c object.Condition) error {
	_, err := f.s.Put(f.ctx, object.Put{Bucket: bucket, Key: key, Size: 3, Body: bytes.NewReader([]byte("new")),
		Condition: c})
	return err
}

func (f *fixture) tryCopy(bucket, key string, c object.Condition) error {
	f.put(bucket, "from", []byte("from"))
	_, err := f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: bucket, Key: "from"}, Bucket: bucket, Key: key,
		Condition: c})
	return err
}

func (f *fixture) tryComplete(bucket, key string, c object.Condition) error {
	id, err := f.s.CreateUpload(f.ctx, bucket, key, nil)
	f.ok(err, "create upload")
	f.part(bucket, key, id, 1, []byte("part"))
	_, err = f.s.CompleteUpload(f.ctx, object.Complete{Bucket: bucket, Key: key, Upload: id,
		Parts: []object.CompletedPart{{Number: 1}}, Condition: c})
	return err
}

func (f *fixture) tryDelete(bucket, key string, c object.Condition) error {
	_, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: bucket, Key: key}, Condition: c})
	return err
}
