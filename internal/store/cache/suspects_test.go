// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"crypto/md5" //nolint:gosec // S3 servers name content by its MD5
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// TestETagsThatAreNoMD5s: an upstream whose ETags look like MD5s is believed to make them in another way only after
// three contents came twice with the same bytes. One content that is always damaged in the same way stays wrong.
func TestETagsThatAreNoMD5s(t *testing.T) {
	about := func(key string) *upstream.About {
		etag := md5.Sum([]byte("not the content of " + key)) //nolint:gosec // as above
		return &upstream.About{Identity: object.Identity{Key: key, ETag: hex.EncodeToString(etag[:])}}
	}
	judge := func(b *bucket, key string, crc uint64) error {
		sum := md5.New() //nolint:gosec // as above
		fmt.Fprint(sum, key, crc)
		_, err := b.judge(about(key), crc, sum)
		return err
	}
	b := &bucket{}
	for i := range 100 {
		if judge(b, "a", 1) == nil {
			t.Fatalf("read %d of one content whose MD5 is not its ETag was believed", i)
		}
	}
	for i := range uint64(10) {
		if judge(b, "b", i) == nil || judge(b, "c", i) == nil {
			t.Fatal("contents that came with other bytes each time were believed")
		}
	}
	if judge(b, "b", 9) == nil {
		t.Fatal("two contents were enough")
	}
	if err := judge(b, "c", 9); err != nil {
		t.Fatalf("three contents came twice with the same bytes: %v", err)
	}
	if err := judge(b, "d", 4); err != nil {
		t.Fatalf("the ETags of this upstream are no MD5s: %v", err)
	}

	b = &bucket{}
	right := md5.Sum([]byte("right")) //nolint:gosec // as above
	sum := md5.New()                  //nolint:gosec // as above
	fmt.Fprint(sum, "right")
	id := object.Identity{Key: "r", ETag: hex.EncodeToString(right[:])}
	if how, err := b.judge(&upstream.About{Identity: id}, 7, sum); err != nil || how != byMD5 {
		t.Fatalf("right content: %q, %v", how, err)
	}
	for i := range 200 {
		for range 3 {
			if judge(b, fmt.Sprint(i), 1) == nil {
				t.Fatal("an ETag of this upstream is an MD5, so that others are, too")
			}
		}
	}
}
