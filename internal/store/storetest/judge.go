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

// errHeld is the error of the judge keeps.
var errHeld = errors.New("the version is held")

// keeps is a judge that lets no version go that has the attribute "hold".
func keeps(c object.Change) (map[string]string, error) {
	if c.Removed != nil && c.Removed.Attributes["hold"] != "" {
		return nil, errHeld
	}
	return nil, nil
}

// heldRounds is how often a hold and a removal of one version meet.
const heldRounds = 400

// writer makes a new version of a key with a judge.
type writer func(f *fixture, bucket, key string, judge object.Judge) (object.Info, error)

// writers are all ways that the store has to make a new version of a key. A store
// that is not on the operating system's files has no drafts.
func (f *fixture) writers() map[string]writer {
	f.Helper()
	all := maps.Clone(allWriters)
	const name = "a-look-at-the-store"
	f.bucket(name, object.VersioningOff, object.ETagMD5)
	d, err := f.s.(object.Handles).NewDraft(f.ctx, object.Draft{Bucket: name, Key: "k"})
	if errs.Is(err, errs.Unsupported) {
		delete(all, "draft")
	} else {
		f.ok(err, "new draft")
		f.ok(d.Abort(), "abort")
	}
	f.ok(f.s.DeleteBucket(f.ctx, name), "delete bucket")
	return all
}

var allWriters = map[string]writer{
	"put": func(f *fixture, bucket, key string, judge object.Judge) (object.Info, error) {
		return f.s.Put(f.ctx, object.Put{Bucket: bucket, Key: key, Size: 3, Body: bytes.NewReader([]byte("new")),
			Judge: judge})
	},
	"copy": func(f *fixture, bucket, key string, judge object.Judge) (object.Info, error) {
		f.put(bucket, "source", []byte("from"))
		return f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: bucket, Key: "source"}, Bucket: bucket, Key: key,
			Attributes: map[string]string{}, Judge: judge})
	},
	"copy onto itself": func(f *fixture, bucket, key string, judge object.Judge) (object.Info, error) {
		return f.s.Copy(f.ctx, object.Copy{From: object.Ref{Bucket: bucket, Key: key}, Bucket: bucket, Key: key,
			Attributes: map[string]string{"own": "1"}, Judge: judge})
	},
	"complete": func(f *fixture, bucket, key string, judge object.Judge) (object.Info, error) {
		id, err := f.s.CreateUpload(f.ctx, bucket, key, nil)
		f.ok(err, "create upload")
		_, err = f.s.PutPart(f.ctx, object.PutPart{Bucket: bucket, Key: key, Upload: id, Number: 1, Size: 4,
			Body: bytes.NewReader([]byte("part"))})
		f.ok(err, "put part")
		i, err := f.s.CompleteUpload(f.ctx, object.Complete{Bucket: bucket, Key: key, Upload: id,
			Parts: []object.CompletedPart{{Number: 1}}, Judge: judge})
		if err != nil {
			_, err := f.s.GetUpload(f.ctx, bucket, key, id)
			f.ok(err, "an upload whose completion was refused")
			f.ok(f.s.AbortUpload(f.ctx, bucket, key, id), "abort")
		}
		return i, err
	},
	"draft": func(f *fixture, bucket, key string, judge object.Judge) (object.Info, error) {
		w := f.draft(bucket, key, 5, func(d *object.Draft) { d.Judge = judge })
		f.filled(w, []byte("draft"))
		return w.Commit(f.ctx, Seal([]byte("draft")))
	},
}

var judgeTests = []test{
	{"a judge sees what a write replaces, and refuses it", func(f *fixture) {
		for _, state := range []object.Versioning{object.VersioningOff, object.VersioningSuspended,
			object.VersioningEnabled} {
			for name, write := range f.writers() {
				b := fmt.Sprintf("%s-%d", name, len(state))
				f.bucket(b, object.VersioningOff, object.ETagMD5)
				f.put(b, "k", []byte("held"), func(p *object.Put) { p.Attributes = map[string]string{"hold": "1"} })
				if state != object.VersioningOff {
					f.versioning(b, state)
				}
				var seen *object.Info
				_, err := write(f, b, "k", func(c object.Change) (map[string]string, error) {
					seen = c.Removed
					same(f, c.Bucket.Versioning, state, "%s: the bucket's versioning", b)
					return keeps(c)
				})
				if state == object.VersioningEnabled {
					f.ok(err, "%s", b)
					if seen != nil {
						f.Errorf("%s: a write that only adds a version removes %+v", b, seen)
					}
					continue
				}
				f.fails(err, errHeld, "%s", b)
				if seen == nil || seen.Version != object.NullVersion || seen.Key != "k" || seen.ETag != MD5([]byte("held")) {
					f.Errorf("%s: the judge saw %+v", b, seen)
				}
				i := f.holds(object.Ref{Bucket: b, Key: "k"}, []byte("held"))
				same(f, i.Attributes["hold"], "1", "%s: the attribute", b)
			}
		}
	}},
	{"a judge sees an old null version", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", []byte("held"), func(p *object.Put) { p.Attributes = map[string]string{"hold": "1"} })
		f.versioning("b", object.VersioningEnabled)
		f.put("b", "k", []byte("above"))
		f.versioning("b", object.VersioningSuspended)
		for name, write := range f.writers() {
			_, err := write(f, "b", "k", keeps)
			f.fails(err, errHeld, "%s", name)
		}
		_, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}, Judge: keeps})
		f.fails(err, errHeld, "a delete marker that replaces the null version")
		f.holds(object.Ref{Bucket: "b", Key: "k", Version: object.NullVersion}, []byte("held"))
		f.holds(object.Ref{Bucket: "b", Key: "k"}, []byte("above"))
	}},
	{"what a judge returns becomes attributes", func(f *fixture) {
		for name, write := range f.writers() {
			f.bucket(name, object.VersioningEnabled, object.ETagMD5)
			f.put(name, "k", []byte("old"))
			i, err := write(f, name, "k", func(c object.Change) (map[string]string, error) {
				return map[string]string{"until": string(c.Bucket.Versioning)}, nil
			})
			f.ok(err, "%s", name)
			same(f, i.Attributes["until"], "Enabled", "%s: of the reply", name)
			i, err = f.s.Stat(f.ctx, object.Ref{Bucket: name, Key: "k"})
			f.ok(err, "stat")
			same(f, i.Attributes["until"], "Enabled", "%s: of the object", name)
			_, err = write(f, name, "k", func(object.Change) (map[string]string, error) {
				return map[string]string{"a": string(make([]byte, object.MaxAttributes))}, nil
			})
			f.fails(err, object.ErrTooLarge, "%s: too many attributes", name)
		}
	}},
	{"a judge of a write sees the bucket as it is then", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		id, err := f.s.CreateUpload(f.ctx, "b", "part", nil)
		f.ok(err, "create upload")
		_, err = f.s.PutPart(f.ctx, object.PutPart{Bucket: "b", Key: "part", Upload: id, Number: 1, Size: 4,
			Body: bytes.NewReader([]byte("part"))})
		f.ok(err, "put part")
		judge := func(c object.Change) (map[string]string, error) {
			return map[string]string{"rule": string(c.Bucket.Settings["rule"])}, nil
		}
		var w object.Drafting
		if f.writers()["draft"] != nil {
			w = f.draft("b", "draft", 5, func(d *object.Draft) { d.Judge = judge })
			f.filled(w, []byte("draft"))
		}
		f.ok(f.s.UpdateBucket(f.ctx, "b", func(b *object.Bucket) error {
			b.Settings = map[string][]byte{"rule": []byte("late")}
			return nil
		}), "update bucket")
		if w != nil {
			i, err := w.Commit(f.ctx, Seal([]byte("draft")))
			f.ok(err, "commit")
			same(f, i.Attributes["rule"], "late", "of the draft")
		}
		i, err := f.s.CompleteUpload(f.ctx, object.Complete{Bucket: "b", Key: "part", Upload: id,
			Parts: []object.CompletedPart{{Number: 1}}, Judge: judge})
		f.ok(err, "complete")
		same(f, i.Attributes["rule"], "late", "of the upload")
	}},
	{"a judge refuses some of many deletions", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		held := f.put("b", "held", []byte("1"), func(p *object.Put) { p.Attributes = map[string]string{"hold": "1"} })
		free := f.put("b", "free", []byte("2"))
		marker, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "gone"}, Judge: keeps})
		f.ok(err, "a delete marker")
		done, fails := f.s.DeleteMany(f.ctx, "b", []object.Deletion{
			{Ref: object.Ref{Bucket: "b", Key: "held", Version: held.Version}, Judge: keeps},
			{Ref: object.Ref{Bucket: "b", Key: "free", Version: free.Version}, Judge: keeps},
			{Ref: object.Ref{Bucket: "b", Key: "gone", Version: marker.Version},
				Judge: func(c object.Change) (map[string]string, error) {
					if c.Removed != nil {
						f.Errorf("a delete marker was shown as content: %+v", c.Removed)
					}
					return nil, nil
				}},
			{Ref: object.Ref{Bucket: "b", Key: "held"}, Judge: keeps},
		})
		f.fails(fails[0], errHeld, "the version that is held")
		for i, err := range fails[1:] {
			f.ok(err, "deletion %d", i+1)
			same(f, done[i+1].Existed, true, "deletion %d", i+1)
		}
		f.holds(object.Ref{Bucket: "b", Key: "held", Version: held.Version}, []byte("1"))
	}},
	{"a condition is judged before the judge", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		f.put("b", "k", []byte("x"), func(p *object.Put) { p.Attributes = map[string]string{"hold": "1"} })
		_, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"},
			Condition: object.Condition{IfMatch: "other"}, Judge: keeps})
		f.fails(err, object.ErrPrecondition, "delete")
	}},
	{"a hold and a removal never both succeed", func(f *fixture) {
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		kept, removed := 0, 0
		for round := range heldRounds {
			key := fmt.Sprint("k", round%8)
			v := f.put("b", key, []byte("x"))
			ref := object.Ref{Bucket: "b", Key: key, Version: v.Version}
			var wg sync.WaitGroup
			var held, gone error
			start := make(chan struct{})
			racers := []func(){
				func() {
					held = f.s.SetAttributes(f.ctx, ref, func(a map[string]string) error {
						a["hold"] = "1"
						return nil
					})
				},
				func() { _, gone = f.s.Delete(f.ctx, object.Deletion{Ref: ref, Judge: keeps}) },
			}
			for i := range racers {
				race := racers[(i+round)%2] // the one that was started last tends to win
				wg.Go(func() {
					<-start
					race()
				})
			}
			close(start)
			wg.Wait()
			switch {
			case held == nil && errors.Is(gone, errHeld):
				kept++
				f.holds(ref, []byte("x"))
			case errors.Is(held, object.ErrNoSuchVersion) && gone == nil:
				removed++
			default:
				f.Fatalf("round %d: the hold says %v, the removal says %v", round, held, gone)
			}
		}
		f.Logf("%d of %d were kept, %d removed", kept, heldRounds, removed)
	}},
}
