// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// TestPowerLossesOfEncryptedStores takes the power away after each few acknowledged writes of encrypted objects and
// parts. Every acknowledged object decrypts afterwards, and no other object is there in part.
func TestPowerLossesOfEncryptedStores(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	mem := vfs.NewCrashableMem()
	s := encryptedOn(t, crashOptions(mem))
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b", ETag: object.ETagMD5,
		Settings: map[string][]byte{object.SettingEncryption: []byte(`{"kind":"AES256"}`)}}); err != nil {
		t.Fatal(err)
	}
	content := func(i, n int) []byte { return encryptedBytes(n + i)[i:] }
	sizes := []int{0, 1, 200, 299, 300, 5000, 70_000, 200_000}
	written := map[string][]byte{}
	for round := range 12 {
		for i := range 5 {
			key := fmt.Sprintf("%d-%d", round, i)
			b := content(round, sizes[r.IntN(len(sizes))])
			if i == 4 {
				uploaded(t, s, key, b)
			} else if _, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: key, Size: int64(len(b)),
				Body: bytes.NewReader(b)}); err != nil {
				t.Fatal(err)
			}
			written[key] = b
		}
		// A write that is cut off leaves nothing.
		_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "cut", Size: 100_000,
			Body: bytes.NewReader(content(round, 60_000))})
		if !errors.Is(err, object.ErrIncompleteBody) {
			t.Fatalf("a short body: %v", err)
		}
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
		again := encryptedOn(t, crashOptions(after))
		for key, want := range written {
			if got, err := readSealed(t.Context(), again, key); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("round %d: %s of %d bytes: %d bytes, %v", round, key, len(want), len(got), err)
			}
		}
		page, err := again.List(t.Context(), object.List{Bucket: "b"})
		if err != nil || len(page.Objects) != len(written) {
			t.Fatalf("round %d: %d objects, expected %d: %v", round, len(page.Objects), len(written), err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		k, err := disk.Check(context.Background(), crashOptions(after), check.Options{Content: true})
		if err != nil || k.Found > 0 {
			t.Fatalf("round %d: %v, %+v", round, err, k.Problems)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// uploaded writes an object as one part.
func uploaded(t *testing.T, s object.Store, key string, b []byte) {
	t.Helper()
	id, err := s.CreateUpload(t.Context(), "b", key, nil)
	if err == nil {
		_, err = s.PutPart(t.Context(), object.PutPart{Bucket: "b", Key: key, Upload: id, Number: 1, Size: int64(len(b)),
			Body: bytes.NewReader(b)})
	}
	if err == nil {
		_, err = s.CompleteUpload(t.Context(), object.Complete{Bucket: "b", Key: key, Upload: id,
			Parts: []object.CompletedPart{{Number: 1}}})
	}
	if err != nil {
		t.Fatal(err)
	}
}
