// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
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
	byCRC64  = "crc64nvme"
	byCRC32C = "crc32c"
	byMD5    = "md5"
	byLength = "length+etag"
)

// proving is the longest time that a proof waits for the upstream's description.
const proving = 10 * time.Second

// sumFor returns the hash that has to be computed while the content arrives, or nil if the checksums of the blocks are
// enough or nothing can be compared. The caller holds v.mu.
func (v *version) sumFor() hash.Hash {
	switch a := v.about; {
	case a == nil || a.HasCRC64 || v.id.Size == 0:
		return nil
	case a.HasCRC32C:
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case looksLikeMD5(v.id.ETag):
		return md5.New() //nolint:gosec // compared with the upstream's own MD5
	}
	return nil
}

// looksLikeMD5 reports whether an ETag can be the MD5 of the content.
func looksLikeMD5(etag string) bool {
	return len(etag) == 2*md5.Size && strings.Trim(etag, "0123456789abcdef") == ""
}

// prove compares the whole content with what the upstream says about it. If the content is wrong, prove drops the entry
// and returns the reason. The parameter f is the flight that made the content whole.
func (v *version) prove(f *flight) error {
	v.mu.Lock()
	a := v.about
	v.mu.Unlock()
	if a == nil { // a neighbour asked for the content by its identity alone
		ctx, cancel := context.WithTimeout(v.b.s.fetches, proving)
		defer cancel()
		got, err := v.b.From.Stat(ctx, v.id.Key, v.id.Version, "")
		if err != nil || got.Identity != v.id {
			return nil // there is nothing to compare with: the next reader tries again
		}
		a = &got
		v.learn(a)
	}
	how, err := v.compare(a, f.sum)
	if err != nil {
		v.b.s.counts.wrong.Add(1)
		return v.condemn(err)
	}
	if how != "" {
		v.entry.Proven(how)
	}
	return nil
}

// compare returns how the content was compared, or an error of kind Corrupt if it is wrong.
func (v *version) compare(a *upstream.About, sum hash.Hash) (string, error) {
	wrong := func(how, got, want string) error {
		return wrongReply(v.b.name(v.id.Key), fmt.Sprintf("the content differs from the upstream's checksum: its %s is %s, "+
			"expected %s", how, got, want))
	}
	if a.HasCRC64 {
		got, err := v.crc64()
		if err != nil {
			return "", nil // a block was dropped in the meantime: the content is not whole
		}
		if got != a.CRC64 {
			return "", wrong(byCRC64, fmt.Sprintf("%016x", got), fmt.Sprintf("%016x", a.CRC64))
		}
		return byCRC64, nil
	}
	if sum == nil {
		return byLength, nil
	}
	got := hex.EncodeToString(sum.Sum(nil))
	if a.HasCRC32C {
		if want := fmt.Sprintf("%08x", a.CRC32C); got != want {
			return "", wrong(byCRC32C, got, want)
		}
		return byCRC32C, nil
	}
	b := v.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if got == v.id.ETag {
		b.md5 = true
		return byMD5, nil
	}
	if b.md5 && a.Parts == 0 { // this upstream makes ETags of MD5s
		return "", wrong(byMD5, got, v.id.ETag)
	}
	return byLength, nil
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
