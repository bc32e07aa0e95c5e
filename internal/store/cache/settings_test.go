// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

// TestTheNullVersionCanChange: a version of a key never changes, but a write without versioning replaces the null
// version.
func TestTheNullVersionCanChange(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{})
	for _, size := range []int{100_000, 100_001} {
		f.put(t, "a", content(6, size))
		c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: "a", Version: object.NullVersion})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Info().Size; got != int64(size) {
			t.Errorf("the null version has %d bytes, expected %d", got, size)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.set(func() { f.down = true })
	r.clock.Add(7200)
	if _, err := r.Store.Stat(t.Context(), object.Ref{Bucket: bucket, Key: "a", Version: object.NullVersion}); err == nil {
		t.Error("the null version was described after the time of StaleIfError")
	}
}

// TestDetailsComeFromTheUpstream: tags and locks can change without a new ETag.
func TestDetailsComeFromTheUpstream(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{NeverChanges: func(string) bool { return true }})
	f.put(t, "a", []byte("abc"))
	ref := object.Ref{Bucket: bucket, Key: "a"}
	attribute := func(ctx context.Context, want string) {
		t.Helper()
		if i, err := r.Store.Stat(ctx, ref); err != nil || i.Attributes[object.AttrTags] != want {
			t.Errorf("tags %q, expected %q: %v", i.Attributes[object.AttrTags], want, err)
		}
	}
	attribute(t.Context(), "")
	if err := f.Store.SetAttributes(t.Context(), ref, func(a map[string]string) error {
		a[object.AttrTags] = `{"k":"v"}`
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	attribute(t.Context(), "")
	attribute(object.Detailed(t.Context(), 0), `{"k":"v"}`)
	f.set(func() { f.down = true })
	attribute(object.Detailed(t.Context(), 0), "") // what the cache knows
}

// settled is an upstream with settings.
type settled struct {
	object.Upstream
	state object.Versioning
}

func (s *settled) SetVersioning(_ context.Context, v object.Versioning) error {
	s.state = v
	return nil
}

// TestSettingsOfAReadOnlyBucket are not changed.
func TestSettingsOfAReadOnlyBucket(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		f := newFar(t)
		r := newRig(t, f, cache.Rules{})
		pass := &settled{}
		s := cache.New(cache.Options{Local: model.NewIn(t.TempDir()), Files: r.files,
			Buckets: []cache.Bucket{{Name: bucket, From: f, Pass: passing{f}, Settings: pass,
				Rules: cache.Rules{ReadOnly: readOnly}}}})
		err := s.Upstream(bucket).SetVersioning(t.Context(), object.VersioningEnabled)
		if readOnly != errs.Is(err, errs.Permission) || readOnly == (pass.state == object.VersioningEnabled) {
			t.Errorf("read-only %v: %v, the state is %q", readOnly, err, pass.state)
		}
		if s.Upstream("other") != nil {
			t.Error("a bucket of the local store has an upstream")
		}
	}
}
