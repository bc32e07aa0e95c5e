// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestPartsAreListedWholeOrNotAtAll lists the parts of uploads that another request ends meanwhile.
func TestPartsAreListedWholeOrNotAtAll(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	makeBucket(t, s, object.Bucket{Name: "b"})
	const parts = 3
	for range 60 {
		id, err := s.CreateUpload(t.Context(), "b", "k", nil)
		must(t, err)
		for n := 1; n <= parts; n++ {
			putPart(t, s, "b", "k", id, n, []byte{byte(n)})
		}
		ended := make(chan error)
		go func() { ended <- s.AbortUpload(t.Context(), "b", "k", id) }()
		for {
			found, _, err := s.ListParts(t.Context(), "b", "k", id, 0, 10)
			if errors.Is(err, object.ErrNoSuchUpload) {
				break
			}
			must(t, err)
			if len(found) != parts {
				t.Fatalf("%d parts, expected %d", len(found), parts)
			}
		}
		must(t, <-ended)
	}
	closed(t, s)
}
