// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// TestLocksAreThoseOfTheUpstream changes the lock and the versioning state of a bucket, and overrides a retention.
func TestLocksAreThoseOfTheUpstream(t *testing.T) {
	b, _ := bucket(t, object.Bucket{Versioning: object.VersioningEnabled, Settings: lockSettings()})
	s, set, ctx := b.Through("local", nil), upstream.SettingsOf(b), t.Context()
	lock := func(want object.Lock) {
		t.Helper()
		if l, err := set.Lock(ctx); err != nil || l == nil || *l != want {
			t.Errorf("the lock is %+v, expected %+v: %v", l, want, err)
		}
	}
	lock(object.Lock{})
	for _, next := range []object.Lock{{Mode: "GOVERNANCE", Days: 3}, {Mode: "COMPLIANCE", Years: 1}, {}} {
		if err := set.SetLock(ctx, next); err != nil {
			t.Fatal(err)
		}
		lock(next)
	}
	if err := set.SetVersioning(ctx, object.VersioningSuspended); err == nil {
		t.Error("versioning was suspended in a bucket with object lock")
	}
	if v, err := set.Versioning(ctx); err != nil || v != object.VersioningEnabled {
		t.Errorf("the state is %q: %v", v, err)
	}
	until, err := json.Marshal(map[string]any{"Mode": "GOVERNANCE", "RetainUntilDate": time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var locked []object.Deletion
	for range 3 {
		i, err := s.Put(ctx, object.Put{Bucket: "local", Key: "k", Size: 1, Body: strings.NewReader("x"),
			Attributes: map[string]string{object.AttrRetention: string(until)}})
		if err != nil {
			t.Fatal(err)
		}
		locked = append(locked, object.Deletion{Ref: object.Ref{Bucket: "local", Key: "k", Version: i.Version}})
	}
	if _, err := s.Delete(ctx, locked[0]); err == nil {
		t.Error("a locked version was deleted")
	}
	locked[0].Bypass, locked[2].Bypass = true, true
	if _, err := s.Delete(ctx, locked[0]); err != nil {
		t.Errorf("a deletion that overrides the retention: %v", err)
	}
	if _, failures := s.DeleteMany(ctx, "local", locked[1:]); failures[0] == nil || failures[1] != nil {
		t.Errorf("two deletions, of which the second overrides the retention: %v", failures)
	}
}

// TestABucketWithoutLock has no lock, and refuses what needs one.
func TestABucketWithoutLock(t *testing.T) {
	b, _ := bucket(t, object.Bucket{})
	s, set, ctx := b.Through("local", nil), upstream.SettingsOf(b), t.Context()
	if l, err := set.Lock(ctx); l != nil || err != nil {
		t.Errorf("the lock is %+v: %v", l, err)
	}
	if err := set.SetLock(ctx, object.Lock{Mode: "GOVERNANCE", Days: 1}); err == nil {
		t.Error("a bucket without versions was locked")
	}
	_, err := s.Put(ctx, object.Put{Bucket: "local", Key: "k", Size: 1, Body: strings.NewReader("x"),
		Attributes: map[string]string{object.AttrHold: "1"}})
	if r := (*object.Refusal)(nil); !errors.As(err, &r) || r.Code != "InvalidRequest" {
		t.Errorf("a PUT with a legal hold: %v", err)
	}
	if err := set.SetVersioning(ctx, "On"); !errs.Is(err, errs.Invalid) {
		t.Errorf("an unknown state: %v", err)
	}
	if err := set.SetVersioning(ctx, object.VersioningEnabled); err != nil {
		t.Fatal(err)
	}
	if v, err := set.Versioning(ctx); err != nil || v != object.VersioningEnabled {
		t.Errorf("the state is %q: %v", v, err)
	}
	if r := (*object.Refusal)(nil); !errors.As(set.DeleteNothing(ctx), &r) || r.Code != "MalformedXML" {
		t.Error("our server accepts a list of deletions without an object")
	}
}

// twoParts writes an object of two parts and returns its content.
func twoParts(t *testing.T, s *upstream.Through, key string) []byte {
	t.Helper()
	data := storetest.Bytes(7, 5<<20+9)
	id, err := s.CreateUpload(t.Context(), "local", key, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := object.Complete{Bucket: "local", Key: key, Upload: id}
	for i, p := range [][]byte{data[:5<<20], data[5<<20:]} {
		part, err := s.PutPart(t.Context(), object.PutPart{Bucket: "local", Key: key, Upload: id, Number: i + 1,
			Size: int64(len(p)), Body: bytes.NewReader(p)})
		if err != nil {
			t.Fatal(err)
		}
		c.Parts = append(c.Parts, object.CompletedPart{Number: i + 1, ETag: part.ETag})
	}
	if _, err := s.CompleteUpload(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPartsOfAnObject reads one part: of an upstream that lists parts, of one that only answers HEAD for a part, and of
// one that ignores part numbers.
func TestPartsOfAnObject(t *testing.T) {
	lists, _ := bucket(t, object.Bucket{})
	data := twoParts(t, lists.Through("local", nil), "k")
	with := func(found map[upstream.Ability]upstream.Finding) *upstream.Bucket {
		b, err := upstream.New(upstream.Options{Endpoint: strings.TrimSuffix(lists.Origin(), "/bucket/"), Bucket: "bucket",
			Credentials:  s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret}),
			Capabilities: upstream.Capabilities{Probed: time.Now(), Findings: found}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	heads := with(map[upstream.Ability]upstream.Finding{upstream.PartNumber: {Proven: true}})
	ignores := with(map[upstream.Ability]upstream.Finding{upstream.PartNumber: {}})
	stat := func(b *upstream.Bucket, part int) (object.Info, error) {
		return b.Through("local", nil).Stat(object.Detailed(t.Context(), part), object.Ref{Bucket: "local", Key: "k"})
	}
	if i, err := stat(lists, 2); err != nil || len(i.Parts) != 2 || i.Parts[1].Size != 9 || i.Part != nil {
		t.Errorf("the parts are %+v, the part %+v: %v", i.Parts, i.Part, err)
	}
	for n, want := range []object.Range{{N: 5 << 20}, {Off: 5 << 20, N: 9}} {
		i, err := stat(heads, n+1)
		if err != nil || i.Part == nil || *i.Part != (object.PartRange{Range: want, Count: 2}) {
			t.Errorf("part %d is %+v: %v", n+1, i.Part, err)
		}
	}
	if i, err := stat(heads, 3); err == nil {
		t.Errorf("part 3 of 2 is %+v", i.Part)
	}
	whole := object.PartRange{Range: object.Range{N: int64(len(data))}}
	if i, err := stat(ignores, 2); err != nil || i.Part == nil || *i.Part != whole {
		t.Errorf("the upstream ignores part numbers, and the part is %+v: %v", i.Part, err)
	}
}

// TestAnUploadOutlivesARestart begins an upload at one node and completes it at another, which knows nothing about it.
func TestAnUploadOutlivesARestart(t *testing.T) {
	before, _ := bucket(t, object.Bucket{})
	s := before.Through("local", nil)
	id, err := s.CreateUpload(t.Context(), "local", "k", map[string]string{object.AttrType: "x/y"})
	if err != nil {
		t.Fatal(err)
	}
	part, err := s.PutPart(t.Context(), object.PutPart{Bucket: "local", Key: "k", Upload: id, Number: 1, Size: 3,
		Body: strings.NewReader("abc")})
	if err != nil {
		t.Fatal(err)
	}
	after, err := upstream.New(upstream.Options{Endpoint: strings.TrimSuffix(before.Origin(), "/bucket/"),
		Bucket: "bucket", Credentials: s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret}),
		Capabilities: before.Capabilities()})
	if err != nil {
		t.Fatal(err)
	}
	again := after.Through("local", nil)
	if u, err := again.GetUpload(t.Context(), "local", "k", id); err != nil || !u.Forgotten {
		t.Errorf("the upload is %+v: %v", u, err)
	}
	i, err := again.CompleteUpload(t.Context(), object.Complete{Bucket: "local", Key: "k", Upload: id,
		Parts: []object.CompletedPart{{Number: 1, ETag: part.ETag}}})
	if err != nil || i.Size != 3 {
		t.Fatalf("the completion: %+v, %v", i, err)
	}
	got, err := again.Stat(t.Context(), object.Ref{Bucket: "local", Key: "k"})
	if err != nil || got.ETag != i.ETag || got.Attributes[object.AttrType] != "x/y" {
		t.Errorf("the object is %+v: %v", got, err)
	}
}
