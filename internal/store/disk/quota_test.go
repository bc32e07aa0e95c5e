// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

func openQuotaStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir, Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// limitBucket sets the quota of a bucket, and removes it if q is nil.
func limitBucket(t *testing.T, s *Store, bucket string, q *object.Quota) {
	t.Helper()
	if err := s.UpdateBucket(t.Context(), bucket, func(b *object.Bucket) error {
		delete(b.Settings, object.SettingQuota)
		if q == nil {
			return nil
		}
		doc, err := json.Marshal(q)
		if b.Settings == nil {
			b.Settings = map[string][]byte{}
		}
		b.Settings[object.SettingQuota] = doc
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func tryPut(s *Store, bucket, key string, size int) error {
	_, err := s.Put(context.Background(), object.Put{Bucket: bucket, Key: key, Size: -1,
		Body: bytes.NewReader(make([]byte, size))})
	return err
}

func usageIn(t *testing.T, s *Store, bucket string) object.Usage {
	t.Helper()
	u, err := s.BucketUsage(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestQuotasUnderManyWriters lets 64 writers fill a bucket, and the buckets of an owner, up to their quotas. The quotas
// are never exceeded, and they can be used up to the last object.
func TestQuotasUnderManyWriters(t *testing.T) {
	dir := t.TempDir()
	s := openQuotaStore(t, dir)
	const size = 1000
	for _, name := range []string{"one", "two", "three"} {
		if err := s.CreateBucket(t.Context(), object.Bucket{Name: name, Owner: "alice"}); err != nil {
			t.Fatal(err)
		}
	}
	limitBucket(t, s, "one", &object.Quota{Bytes: 50 * size})
	limitBucket(t, s, "two", &object.Quota{Objects: 40})
	if err := s.SetOwnerQuota(t.Context(), "alice", &object.Quota{Bytes: 120 * size}); err != nil {
		t.Fatal(err)
	}
	var done, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := range 4 {
				for _, b := range []string{"one", "two", "three"} {
					switch err := tryPut(s, b, fmt.Sprintf("%d/%d", w, i), size); {
					case err == nil:
						done.Add(1)
					case errors.Is(err, object.ErrQuota):
						refused.Add(1)
					default:
						t.Error(err)
					}
					if u := usageIn(t, s, "one"); u.Bytes > 50*size {
						t.Errorf("the bucket holds %d bytes", u.Bytes)
					}
				}
			}
		})
	}
	wg.Wait()
	one, two := usageIn(t, s, "one"), usageIn(t, s, "two")
	all, err := s.OwnerUsage(t.Context(), "alice")
	if err != nil || one.Bytes > 50*size || two.Objects > 40 || all.Bytes != 120*size {
		t.Errorf("one %+v, two %+v, all %+v, %v", one, two, all, err)
	}
	if done.Load() != 120 || refused.Load() != 64*4*3-120 {
		t.Errorf("%d writes succeeded, %d were refused", done.Load(), refused.Load())
	}

	// The quotas survive a restart. What frees space is always allowed, and makes room.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openQuotaStore(t, dir)
	defer s.Close()
	if err := tryPut(s, "three", "more", 1); !errors.Is(err, object.ErrQuota) {
		t.Errorf("after a restart: %v", err)
	}
	page, err := s.List(t.Context(), object.List{Bucket: "three"})
	if err != nil || len(page.Objects) == 0 {
		t.Fatal(err)
	}
	key := page.Objects[0].Key
	if err := tryPut(s, "three", key, size); err != nil {
		t.Errorf("replacing an object by one of the same size: %v", err)
	}
	if err := tryPut(s, "three", key, size+1); !errors.Is(err, object.ErrQuota) {
		t.Errorf("replacing an object by a larger one: %v", err)
	}
	if _, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "three", Key: key}}); err != nil {
		t.Error(err)
	}
	if err := tryPut(s, "three", "more", size); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	if err := s.SetOwnerQuota(t.Context(), "alice", nil); err != nil {
		t.Fatal(err)
	}
	if err := tryPut(s, "three", "unlimited", 10*size); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

// TestPartsCountAgainstQuotas uploads parts into a bucket with a quota.
func TestPartsCountAgainstQuotas(t *testing.T) {
	s := openQuotaStore(t, t.TempDir())
	defer s.Close()
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	limitBucket(t, s, "b", &object.Quota{Bytes: 100})
	id, err := s.CreateUpload(t.Context(), "b", "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	part := func(n, size int) (object.PartInfo, error) {
		return s.PutPart(t.Context(), object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: n, Size: int64(size),
			Body: bytes.NewReader(make([]byte, size))})
	}
	one, err := part(1, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part(2, 41); !errors.Is(err, object.ErrQuota) {
		t.Errorf("a part beyond the quota: %v", err)
	}
	two, err := part(2, 40)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CompleteUpload(t.Context(), object.Complete{Bucket: "b", Key: "k", Upload: id,
		Parts: []object.CompletedPart{{Number: 1, ETag: one.ETag}, {Number: 2, ETag: two.ETag}}}); err != nil {
		t.Errorf("the completion needs no more space: %v", err)
	}
	if u := usageIn(t, s, "b"); u != (object.Usage{Bytes: 100, Objects: 1}) {
		t.Errorf("the bucket holds %+v", u)
	}
	copied := object.Copy{From: object.Ref{Bucket: "b", Key: "k"}, Bucket: "b", Key: "l"}
	if _, err := s.Copy(t.Context(), copied); !errors.Is(err, object.ErrQuota) {
		t.Errorf("a copy beyond the quota: %v", err)
	}
}
