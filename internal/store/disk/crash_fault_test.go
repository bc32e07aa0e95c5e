// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// actor does the steps of a scenario to one store, whose identifiers it remembers.
type actor struct {
	s        object.Store
	versions map[string]string
	uploads  map[string]string
}

func newActor(s object.Store) *actor {
	return &actor{s, map[string]string{}, map[string]string{}}
}

// action is one request of a scenario.
type action struct {
	name string
	do   func(ctx context.Context, a *actor) error
}

func put(bucket, key string, n int) action {
	return action{fmt.Sprintf("put %s/%s of %d bytes", bucket, key, n), func(ctx context.Context, a *actor) error {
		data := storetest.Bytes(uint64(n), n)
		i, err := a.s.Put(ctx, object.Put{Bucket: bucket, Key: key, Size: int64(n), Body: bytes.NewReader(data),
			Attributes: map[string]string{"n": fmt.Sprint(n)}})
		a.versions[fmt.Sprint(bucket, key, n)] = i.Version
		return err
	}}
}

func part(upload string, number, n int) action {
	return action{fmt.Sprintf("part %d of %s, %d bytes", number, upload, n), func(ctx context.Context, a *actor) error {
		data := storetest.Bytes(uint64(n+number), n)
		_, err := a.s.PutPart(ctx, object.PutPart{Bucket: "o", Key: upload, Upload: a.uploads[upload], Number: number,
			Size: int64(n), Body: bytes.NewReader(data)})
		return err
	}}
}

func begin(upload string) action {
	return action{"begin " + upload, func(ctx context.Context, a *actor) (err error) {
		a.uploads[upload], err = a.s.CreateUpload(ctx, "o", upload, nil)
		return err
	}}
}

func complete(upload string, numbers ...int) action {
	return action{"complete " + upload, func(ctx context.Context, a *actor) error {
		c := object.Complete{Bucket: "o", Key: upload, Upload: a.uploads[upload]}
		for _, n := range numbers {
			c.Parts = append(c.Parts, object.CompletedPart{Number: n})
		}
		_, err := a.s.CompleteUpload(ctx, c)
		return err
	}}
}

func copyTo(from, to string, as map[string]string) action {
	return action{"copy " + from + " to " + to, func(ctx context.Context, a *actor) error {
		_, err := a.s.Copy(ctx, object.Copy{From: object.Ref{Bucket: "o", Key: from}, Bucket: "o", Key: to, Attributes: as})
		return err
	}}
}

func remove(bucket, key, version string) action {
	return action{"delete " + bucket + "/" + key + " " + version, func(ctx context.Context, a *actor) error {
		_, err := a.s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: bucket, Key: key, Version: a.versions[version]}})
		return err
	}}
}

// directory is the directory bucket of a scenario.
const directory = "d--z1--x-s3"

func makeDirectory() action {
	return action{"create bucket " + directory, func(ctx context.Context, a *actor) error {
		return a.s.CreateBucket(ctx, object.Bucket{Name: directory})
	}}
}

func appendTo(key string, off int64, n int) action {
	return action{fmt.Sprintf("append %d bytes to %s at %d", n, key, off), func(ctx context.Context, a *actor) error {
		_, err := a.s.(object.Directories).Append(ctx, object.Append{Bucket: directory, Key: key, Offset: off, Size: int64(n),
			Body: bytes.NewReader(storetest.Bytes(uint64(n), n))})
		return err
	}}
}

func renameTo(from, to string) action {
	return action{"rename " + from + " to " + to, func(ctx context.Context, a *actor) error {
		return a.s.(object.Directories).Rename(ctx, object.Rename{Bucket: directory, From: from, To: to, Token: from + to})
	}}
}

// scenario does a little of everything that changes a store.
var scenario = []action{
	{"create bucket o", func(ctx context.Context, a *actor) error {
		return a.s.CreateBucket(ctx, object.Bucket{Name: "o"})
	}},
	{"create bucket v", func(ctx context.Context, a *actor) error {
		return a.s.CreateBucket(ctx, object.Bucket{Name: "v", Versioning: object.VersioningEnabled, ETag: object.ETagCRC64})
	}},
	put("o", "small", 100), put("o", "large", 1000), put("o", "large", 1001), put("v", "k", 10), put("v", "k", 1200),
	put("v", "k", 11),
	copyTo("large", "copy", nil), copyTo("large", "large", map[string]string{"new": "1"}), copyTo("small", "copy", nil),
	remove("o", "small", ""), remove("v", "k", ""), remove("v", "k", "vk1200"),
	begin("place"), part("place", 1, 700), part("place", 2, 700), part("place", 3, 50), complete("place", 1, 2, 3),
	begin("splice"), part("splice", 2, 600), part("splice", 1, 900), part("splice", 2, 601), complete("splice", 1, 2),
	begin("abort"), part("abort", 1, 700),
	{"abort", func(ctx context.Context, a *actor) error {
		return a.s.AbortUpload(ctx, "o", "abort", a.uploads["abort"])
	}},
	{"attributes", func(ctx context.Context, a *actor) error {
		return a.s.SetAttributes(ctx, object.Ref{Bucket: "o", Key: "large"},
			func(m map[string]string) error { m["set"] = "1"; return nil })
	}},
	{"record", func(ctx context.Context, a *actor) error { return a.s.PutRecord(ctx, "kind", "n", []byte("v")) }},
	{"versioning", func(ctx context.Context, a *actor) error {
		return a.s.UpdateBucket(ctx, "o", func(b *object.Bucket) error {
			b.Versioning = object.VersioningSuspended
			return nil
		})
	}},
	put("o", "large", 1002),
	{"delete many", func(ctx context.Context, a *actor) error {
		_, errs := a.s.DeleteMany(ctx, "o", []object.Deletion{{Ref: object.Ref{Key: "place"}},
			{Ref: object.Ref{Key: "splice"}}})
		return errors.Join(errs...)
	}},
	makeDirectory(), appendTo("log", 0, 100), appendTo("log", 100, 900), appendTo("log", 1000, 500),
	renameTo("log", "done"),
	appendTo("done", 1500, 70_000), put(directory, "other", 2000), renameTo("other", "done"),
	{"delete record", func(ctx context.Context, a *actor) error { return a.s.DeleteRecord(ctx, "kind", "n") }},
	{"delete bucket", func(ctx context.Context, a *actor) error { return a.s.DeleteBucket(ctx, "empty") }},
}

// fault fails the file system's steps from the k-th on that match.
type fault struct {
	err   error
	once  bool
	match func(step) bool

	armed atomic.Bool
	n     atomic.Int64
	at    int64
	hit   atomic.Bool
	where atomic.Pointer[step]
}

func (f *fault) before(s step) error {
	if !f.armed.Load() || !f.match(s) {
		return nil
	}
	n := f.n.Add(1)
	if n < f.at || f.once && n > f.at {
		return nil
	}
	if f.hit.CompareAndSwap(false, true) {
		f.where.Store(&s)
	}
	return f.err
}

func changes(s step) bool {
	switch s.op {
	case "read", "open", "list", "lock":
		return false
	}
	return true
}

func ofContent(s step) bool {
	return changes(s) && (strings.Contains(s.path, "/tmp") || strings.Contains(s.path, "/data"))
}

// TestEachStepFails fails each step of the file system in turn, once or from
// then on, while a scenario runs. A request that fails leaves no trace, what
// was acknowledged stays, and after a restart the store is whole.
func TestEachStepFails(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	for _, x := range []struct {
		name   string
		err    error
		once   bool
		match  func(step) bool
		stride int
	}{
		{"one error", syscall.EIO, true, changes, 1},
		{"errors from then on", syscall.EIO, false, changes, 3},
		{"one write without space", syscall.ENOSPC, true, ofContent, 1},
		{"no space for content from then on", syscall.ENOSPC, false, ofContent, 3},
		{"one error of reading", syscall.EIO, true, func(s step) bool {
			return s.op == "read" &&
				ofContent(step{"", s.path, ""})
		}, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			runs := 0
			for k := int64(1); ; k += int64(x.stride) {
				f := &fault{err: x.err, once: x.once, match: x.match, at: k}
				if err := faultRun(t.Context(), f); err != nil {
					t.Fatalf("step %d (%v): %v", k, f.where.Load(), err)
				}
				if !f.hit.Load() {
					break
				}
				runs++
			}
			if runs == 0 {
				t.Fatal("no step failed")
			}
			t.Logf("%d runs", runs)
		})
	}
}

// faultRun runs the scenario with a fault.
func faultRun(ctx context.Context, f *fault) error {
	mem := vfs.NewMem()
	fs := &stepFS{FS: mem, before: f.before}
	o := crashOptions(fs)
	s, err := disk.Open(ctx, o)
	if err != nil {
		return err
	}
	m := newActor(model.New())
	a := newActor(s)
	f.armed.Store(true)
	var acknowledged []action
	var either []string // what is visible if a request whose outcome is not known did happen
	for _, x := range scenario {
		err := x.do(ctx, a)
		if err == nil {
			if either != nil {
				return fmt.Errorf("%s was acknowledged by a store that failed", x.name)
			}
			if err := x.do(ctx, m); err != nil {
				return fmt.Errorf("%s: the store did what the model refuses: %w", x.name, err)
			}
			acknowledged = append(acknowledged, x)
			continue
		}
		if !f.hit.Load() && storetest.Sentinel(err) == err { //nolint:errorlint // no sentinel at all
			return fmt.Errorf("%s: %w", x.name, err)
		}
		if errors.Is(err, syscall.ENOSPC) && !errors.Is(err, object.ErrNoSpace) {
			return fmt.Errorf("%s: no space, but not ErrNoSpace: %w", x.name, err)
		}
		if strings.Contains(err.Error(), "known after a restart") {
			if either != nil {
				return fmt.Errorf("%s: a second change whose outcome is not known: %w", x.name, err)
			}
			if either, err = ifDone(ctx, acknowledged, x); err != nil {
				return err
			}
		}
	}
	if f.match(step{op: "read", path: "store/data"}) {
		f.armed.Store(false) // what is compared has to be read
	}
	// A store that failed goes on reading, and may begin, once, to show what it is not sure of.
	err = sameAs(ctx, s, m, either)
	if err != nil && either != nil {
		err = sameAs(ctx, s, m, either)
	}
	if err != nil {
		return fmt.Errorf("before the restart: %w", err)
	}
	if f.once && f.hit.Load() && !strings.HasPrefix(f.where.Load().path, "store/meta") {
		if err := s.PutRecord(ctx, "probe", "after one error", nil); err != nil {
			return fmt.Errorf("a store that got over an error takes no changes: %w", err)
		}
	}
	f.armed.Store(false)
	_ = s.Close() // which says why the store failed
	if s, err = disk.Open(ctx, o); err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	if err := sameAs(ctx, s, m, either); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	if err := useIt(ctx, s); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	r, err := disk.Check(ctx, o, check.Options{})
	if err != nil || r.Found > 0 {
		return fmt.Errorf("check: %v, %d problems: %+v", err, r.Found, r.Problems)
	}
	return nil
}

// ifDone is what is visible after the requests that were acknowledged and one more.
func ifDone(ctx context.Context, acknowledged []action, x action) ([]string, error) {
	c := newActor(model.New())
	for _, y := range append(slices.Clone(acknowledged), x) {
		if err := y.do(ctx, c); err != nil && y.name != x.name {
			return nil, err
		}
	}
	return storetest.Dump(ctx, c.s, false)
}

// sameAs compares what is visible in a store with the model, or with what may be there instead.
func sameAs(ctx context.Context, s object.Store, m *actor, either []string) error {
	want, err := storetest.Dump(ctx, m.s, false)
	if err != nil {
		return err
	}
	got, err := storetest.Dump(ctx, s, false)
	if err != nil {
		return err
	}
	d := storetest.Diff(want, got)
	if d != "" && (either == nil || storetest.Diff(either, got) != "") {
		return fmt.Errorf("(- acknowledged, + found):\n%s", d)
	}
	return nil
}
