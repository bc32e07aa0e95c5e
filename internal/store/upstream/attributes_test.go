// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// lockSettings are the settings of a bucket of the front end with object lock.
func lockSettings() map[string][]byte {
	return map[string][]byte{"lock": []byte(`{"Enabled":true}`)}
}

// bucket returns a bucket of our own server, probed.
func bucket(t *testing.T, b object.Bucket) (*upstream.Bucket, object.Store) {
	t.Helper()
	endpoint, store := serve(t)
	b.Name = "bucket"
	if err := store.CreateBucket(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	up, err := upstream.New(upstream.Options{Endpoint: endpoint, Bucket: "bucket",
		Credentials: s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret})})
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return up, store
}

// TestAttributesTravel writes every attribute of the front end, and reads it back.
func TestAttributesTravel(t *testing.T) {
	b, _ := bucket(t, object.Bucket{Versioning: object.VersioningEnabled, Settings: lockSettings()})
	s := b.Through("local", nil)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	doc, err := json.Marshal(map[string]any{"Mode": "GOVERNANCE", "RetainUntilDate": until})
	if err != nil {
		t.Fatal(err)
	}
	attrs := map[string]string{
		object.AttrType: "text/plain", object.AttrEncoding: "gzip", object.AttrDisposition: "inline",
		object.AttrLanguage: "de", object.AttrCache: "no-store", object.AttrExpires: "Wed, 21 Oct 2026 07:28:00 GMT",
		object.AttrMeta + "a": "1", object.AttrMeta + "long-name": "x y", object.AttrTags: `{"k":"v w","ü":"="}`,
		object.AttrHold: "1",
	}
	put := object.Put{Bucket: "local", Key: "k", Size: 3, Body: strings.NewReader("abc"), Attributes: attrs,
		SumAlgorithm: "CRC32", Finish: func(object.Written) (map[string]string, error) {
			return map[string]string{object.AttrSumAlgo: "CRC32", object.AttrSumType: "FULL_OBJECT",
				object.AttrSum: crc32Of([]byte("abc"))}, nil
		}}
	i, err := s.Put(t.Context(), put)
	if err != nil {
		t.Fatal(err)
	}
	same := func(want map[string]string) {
		t.Helper()
		got, err := s.Stat(t.Context(), object.Ref{Bucket: "local", Key: "k", Version: i.Version})
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range want {
			if got.Attributes[k] != v {
				t.Errorf("%s is %q, expected %q", k, got.Attributes[k], v)
			}
		}
	}
	same(attrs)
	same(map[string]string{object.AttrSumAlgo: "CRC32", object.AttrSumType: "FULL_OBJECT",
		object.AttrSum: crc32Of([]byte("abc"))})
	ref := object.Ref{Bucket: "local", Key: "k", Version: i.Version}
	if err := s.SetAttributes(t.Context(), ref, func(a map[string]string) error {
		a[object.AttrTags], a[object.AttrRetention], a[object.AttrHold] = `{"new":"tag"}`, string(doc), "0"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	same(map[string]string{object.AttrTags: `{"new":"tag"}`, object.AttrHold: "0", object.AttrType: "text/plain"})
	got, err := s.Stat(t.Context(), ref)
	if err != nil || !strings.Contains(got.Attributes[object.AttrRetention], until.Format("2006-01-02T15:04:05Z")) {
		t.Errorf("retention is %q, error %v", got.Attributes[object.AttrRetention], err)
	}
	if err := s.SetAttributes(t.Context(), ref,
		func(a map[string]string) error { delete(a, object.AttrTags); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Stat(t.Context(), ref); err != nil || got.Attributes[object.AttrTags] != "" {
		t.Errorf("tags are %q, error %v", got.Attributes[object.AttrTags], err)
	}
	err = s.SetAttributes(t.Context(), ref, func(a map[string]string) error { a[object.AttrType] = "x/y"; return nil })
	if r := (*object.Refusal)(nil); !errors.As(err, &r) || r.Status != 501 {
		t.Errorf("a change of the content type: %v", err)
	}
	if _, err := s.Delete(t.Context(), object.Deletion{Ref: ref}); err == nil {
		t.Error("a version under retention was deleted")
	}
}

// TestVersionsTravel reads, lists and deletes versions and delete markers.
func TestVersionsTravel(t *testing.T) {
	b, _ := bucket(t, object.Bucket{Versioning: object.VersioningEnabled})
	s := b.Through("local", nil)
	ctx := t.Context()
	if v, err := b.Versioning(ctx); err != nil || v != object.VersioningEnabled {
		t.Fatalf("versioning %q, error %v", v, err)
	}
	var versions []string
	for _, text := range []string{"one", "two"} {
		i, err := s.Put(ctx, object.Put{Bucket: "local", Key: "k", Size: 3, Body: strings.NewReader(text)})
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, i.Version)
	}
	d, err := s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: "local", Key: "k"}})
	if err != nil || !d.Marker || d.Version == "" {
		t.Fatalf("%+v, error %v", d, err)
	}
	i, err := s.Stat(ctx, object.Ref{Bucket: "local", Key: "k"})
	if !errors.Is(err, object.ErrNoSuchKey) || !i.Marker || i.Version != d.Version && i.Version != "" {
		t.Errorf("a deleted key: %+v, error %v", i, err)
	}
	if i, err := s.Stat(ctx, object.Ref{Bucket: "local", Key: "k", Version: d.Version}); err != nil || !i.Marker {
		t.Errorf("a delete marker: %+v, error %v", i, err)
	}
	if _, err := s.Open(ctx, object.Ref{Bucket: "local", Key: "k", Version: d.Version}); !errors.Is(err,
		object.ErrIsMarker) {
		t.Errorf("open of a delete marker: %v", err)
	}
	a, err := b.Stat(ctx, "k", versions[0], "")
	if err != nil || a.Identity.Version != versions[0] {
		t.Errorf("an old version: %+v, error %v", a, err)
	}
	if _, err := s.Delete(ctx, object.Deletion{
		Ref: object.Ref{Bucket: "local", Key: "k", Version: d.Version}}); err != nil {
		t.Error(err)
	}
	if i, err := s.Stat(ctx, object.Ref{Bucket: "local", Key: "k"}); err != nil || i.Version != versions[1] {
		t.Errorf("after the marker was removed: %+v, error %v", i, err)
	}
}

// TestProbesLeaveNothing probes buckets of every kind.
func TestProbesLeaveNothing(t *testing.T) {
	for _, v := range []object.Versioning{object.VersioningOff, object.VersioningEnabled} {
		t.Run("versioning "+string(v), func(t *testing.T) {
			_, store := bucket(t, object.Bucket{Versioning: v})
			page, err := store.List(t.Context(), object.List{Bucket: "bucket", Versions: true})
			if err != nil || len(page.Objects) > 0 {
				t.Errorf("%d versions are left, error %v", len(page.Objects), err)
			}
			ups, err := store.ListUploads(t.Context(), object.UploadList{Bucket: "bucket"})
			if err != nil || len(ups.Uploads) > 0 {
				t.Errorf("%d uploads are left, error %v", len(ups.Uploads), err)
			}
		})
	}
	b, store := bucket(t, object.Bucket{Versioning: object.VersioningEnabled, Settings: lockSettings()})
	if err := store.UpdateBucket(t.Context(), "bucket", func(b *object.Bucket) error {
		b.Settings["lock"] = []byte(`{"Enabled":true,"DefaultRetention":{"Mode":"COMPLIANCE","Days":1}}`)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "locks every new object") {
		t.Errorf("probe of a bucket that locks every object: %v", err)
	}
}

// TestCapabilitiesAreKept writes and reads the record of an upstream.
func TestCapabilitiesAreKept(t *testing.T) {
	b, _ := bucket(t, object.Bucket{})
	doc, err := json.Marshal(b.Capabilities())
	if err != nil {
		t.Fatal(err)
	}
	var again upstream.Capabilities
	if err := json.Unmarshal(doc, &again); err != nil {
		t.Fatal(err)
	}
	if !again.Has(upstream.PutIfMatch) || again.Probed.IsZero() || again.Has("no such ability") {
		t.Errorf("%+v", again)
	}
}

// TestUnprovenConditionsAreRefused asks an upstream that ignores conditions: nothing is written.
func TestUnprovenConditionsAreRefused(t *testing.T) {
	b, store := bucket(t, object.Bucket{})
	unproven, err := upstream.New(upstream.Options{Endpoint: strings.TrimSuffix(b.Origin(), "/bucket/"), Bucket: "bucket",
		Credentials:  s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret}),
		Capabilities: upstream.Capabilities{Probed: time.Now()}})
	if err != nil {
		t.Fatal(err)
	}
	s := unproven.Through("local", nil)
	for name, c := range map[string]object.Condition{"if none match": {IfNoneMatch: "*"}, "if match": {IfMatch: "x"}} {
		_, err := s.Put(t.Context(), object.Put{Bucket: "local", Key: "k", Size: 1, Body: strings.NewReader("x"),
			Condition: c})
		if r := (*object.Refusal)(nil); !errors.As(err, &r) || r.Status != 501 {
			t.Errorf("put %s: %v", name, err)
		}
	}
	if _, err := store.Stat(context.Background(), object.Ref{Bucket: "bucket", Key: "k"}); !errors.Is(err,
		object.ErrNoSuchKey) {
		t.Errorf("something was written: %v", err)
	}
}
