// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"crypto/md5" //nolint:gosec // S3 servers name content by its MD5
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// Ways in which the whole content was compared, as x-nebulaio-verified shows them.
const (
	byCRC64  = "crc64nvme" // or "crc32c" or "crc32": upstream.Sum32 has their names
	byMD5    = "md5"
	byLength = "length+etag"
)

// proving is the longest time that a proof waits for the upstream's description.
const proving = 10 * time.Second

// alsoMD5 is the largest size in bytes of content whose MD5 is compared although the upstream names a CRC. For small
// content, the MD5 costs little, and it also shows a wrong ETag.
const alsoMD5 = 8 * blockSize

// waitMD5 is the largest size in bytes of content whose readers of ranges wait for the comparison of its MD5. An MD5 is
// computed at about 0.7 GB/s, slower than content arrives. Readers of the whole content always wait.
const waitMD5 = 16 * blockSize

// mostComparing is the largest number of large contents on the disk that are compared at the same time.
const mostComparing = 2

// sumFor returns the hash that has to be computed while the content arrives, or nil if the checksums of the blocks are
// enough or nothing can be compared. The caller holds v.mu.
func (c *comparison) sumFor() hash.Hash {
	v := c.v
	if v.id.Size == 0 {
		return nil
	}
	a := v.about
	known := a != nil && a.Sums()
	if v.md5ETag() && (v.id.Size <= alsoMD5 || !known) {
		return md5.New() //nolint:gosec // compared with the upstream's own MD5
	}
	if a != nil && !a.HasCRC64 {
		if s, ok := a.Sum32(); ok {
			return s.New()
		}
	}
	return nil
}

// md5ETag reports whether the ETag should be the MD5 of the content.
func (c *comparison) md5ETag() bool { return looksLikeMD5(c.v.id.ETag) && !c.v.b.otherETags() }

// otherETags reports whether the ETags of the upstream are known to be no MD5s.
func (b *bucket) otherETags() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.noMD5
}

// looksLikeMD5 reports whether an ETag can be the MD5 of the content.
func looksLikeMD5(etag string) bool {
	return len(etag) == 2*md5.Size && strings.Trim(etag, "0123456789abcdef") == ""
}

// judge compares the CRC-64/NVME and another hash of whole content with what the upstream says about the content. The
// hash may be nil. judge returns how the content was compared, or an error if the content is wrong.
func (b *bucket) judge(a *upstream.About, crc uint64, sum hash.Hash) (string, error) {
	wrong := func(how, got, want string) error {
		return wrongReply(b.name(a.Identity.Key), fmt.Sprintf("the content differs from the upstream's checksum: its %s is "+
			"%s, expected %s", how, got, want))
	}
	how := byLength
	if a.HasCRC64 {
		if crc != a.CRC64 {
			return "", wrong(byCRC64, fmt.Sprintf("%016x", crc), fmt.Sprintf("%016x", a.CRC64))
		}
		how = byCRC64
	}
	if sum == nil {
		return how, nil
	}
	got := hex.EncodeToString(sum.Sum(nil))
	if sum.Size() == crc32.Size {
		s, ok := a.Sum32()
		if want := s.String(); ok && got != want {
			return "", wrong(s.Name, got, want)
		}
		return s.Name, nil
	}
	want, isMD5 := a.MD5()
	if !isMD5 {
		return how, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case got == want:
		b.md5, b.noMD5, b.suspects = true, false, nil
		if how == byLength {
			how = byMD5
		}
		return how, nil
	case b.noMD5:
		return how, nil
	case !b.md5 && b.doubts(a.Identity, crc):
		b.noMD5, b.suspects = true, nil
		return how, nil
	}
	return "", wrong(byMD5, got, want)
}

// A server whose ETags look like MD5s and are none is recognized by several contents: a fault on the way may damage one
// content in the same way at each read.
const (
	enoughSuspects = 3  // contents that came twice with the same bytes, and have another MD5 than their ETag
	mostSuspects   = 64 // contents that are remembered
)

// suspect is content whose MD5 is not its ETag.
type suspect struct {
	crc   uint64 // of the bytes that came last
	again bool   // a second read gave the same bytes
}

// doubts records content whose MD5 is not its ETag, and reports whether the ETags of this upstream are no MD5s. The
// caller holds b.mu.
func (b *bucket) doubts(id object.Identity, crc uint64) bool {
	before, seen := b.suspects[id]
	if b.suspects == nil || !seen && len(b.suspects) >= mostSuspects {
		b.suspects = map[object.Identity]suspect{}
	}
	b.suspects[id] = suspect{crc, seen && before.crc == crc}
	n := 0
	for _, s := range b.suspects {
		if s.again {
			n++
		}
	}
	return n >= enoughSuspects
}

// plausible returns an error if the description of empty content contradicts itself: a reply with a wrong length of 0
// would make an entry that needs no byte and so is never compared.
func (b *bucket) plausible(a *upstream.About) error {
	if a.Identity.Size != 0 || a.Marker {
		return nil
	}
	empty := md5.New() //nolint:gosec // compared with the upstream's own MD5
	if s, ok := a.Sum32(); ok && s.Value != 0 {
		return wrongReply(b.name(a.Identity.Key), "the length is 0, and the "+s.Name+" is that of other content")
	}
	_, err := b.judge(a, 0, empty)
	return err
}

// crc64 joins the checksums of the blocks to that of the whole content.
func (v *version) crc64() (uint64, error) {
	sums, err := v.entry.Sums(0, blockCount(v.id.Size))
	if err != nil {
		return 0, err
	}
	var whole uint64
	for i, sum := range sums {
		whole = v.b.s.join.After(whole, v.length(int64(i))) ^ sum
	}
	return whole, nil
}

// wrongReply returns the error for content of the upstream that is wrong.
func wrongReply(name, why string) error {
	return &errs.Error{Kind: errs.Corrupt, Op: "read", Name: name, Err: layout.Both{Sentinel: object.ErrWrongReply,
		Cause: &object.Refusal{Kind: errs.Corrupt, Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable",
			Message: "The upstream sent wrong bytes: " + why + "."}},
		Fix: "read the object again; if it differs again, the object is damaged on the upstream"}
}
