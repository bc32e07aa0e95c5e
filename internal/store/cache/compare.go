// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"crypto/md5" //nolint:gosec // S3 servers name content by its MD5
	"hash"
	"io"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// vouched is content that was compared with what the upstream says about it.
type vouched struct {
	how string
	crc uint64 // CRC-64/NVME of the content
}

// comparison is what is known about the whole content of a version, and how it was compared. All fields but v are
// protected by version.mu.
type comparison struct {
	v       *version
	about   *upstream.About // nil if only the identity is known
	asking  bool            // a question about the checksum of the whole is open
	asked   bool            // the upstream has answered the question about the checksum of the whole
	vouched *vouched        // content that was compared; nil if none was
	// comparing means that the content on the disk is being compared in the background.
	comparing bool
}

// learn records what the upstream says about the version.
func (c *comparison) learn(about *upstream.About) {
	v := c.v
	if about == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.about == nil {
		v.about = about
	}
}

// described returns what the upstream says about the version, or nil if only the identity is known.
func (c *comparison) described() *upstream.About {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.about
}

// describe returns what the upstream says about the whole content, or nil if that is unknown. The second result is
// false if the upstream did not answer, so that a later question may tell more.
func (c *comparison) describe() (*upstream.About, bool) {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.asking { // for `proving` at most
		v.proved.Wait()
	}
	if a := v.about; a != nil && (a.Sums() || v.asked) {
		return a, true
	}
	// A neighbour asked by the identity alone, or the description came with a range: servers name the checksum of the
	// whole only in replies about the whole.
	v.asking = true
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(v.b.s.fetches, proving)
	got, err := v.b.From.Stat(ctx, v.id.Key, v.id.Version, "")
	cancel()
	v.mu.Lock()
	v.asking = false
	v.proved.Broadcast()
	if err != nil {
		return v.about, false
	}
	if v.asked = true; got.Identity == v.id {
		v.about = &got
	}
	return v.about, true
}

// prove compares the CRC-64/NVME and another hash of the whole content with what the upstream says. prove returns how
// the content was compared, or "" if nothing is known about it yet. If the content is wrong, prove drops the entry and
// returns the reason.
func (c *comparison) prove(crc uint64, sum hash.Hash) (string, error) {
	v := c.v
	a, answered := v.describe()
	if a == nil || !answered && sum == nil {
		return "", nil
	}
	how, err := v.b.judge(a, crc, sum)
	if err != nil {
		v.b.s.counts.wrong.Add(1)
		return "", v.condemn(err)
	}
	if how != byLength {
		v.mu.Lock()
		v.vouched = &vouched{how, crc}
		v.mu.Unlock()
	}
	return how, nil
}

// conclude records how the content of an entry was compared that has become whole. The parameters tell how the flight
// that made it whole compared its content, and the CRC-64/NVME of that content.
func (c *comparison) conclude(judged string, crc uint64) error {
	v := c.v
	own, err := v.crc64()
	if err != nil {
		return nil // a block was dropped in the meantime: the content is not whole
	}
	v.mu.Lock()
	before := v.vouched
	v.mu.Unlock()
	how := ""
	switch {
	case judged != "" && own == crc:
		how = judged
	case before != nil && own == before.crc:
		how = before.how
	default:
		if how, err = v.prove(own, nil); err != nil {
			return err
		}
	}
	if how == byLength && v.comparesOnDisk(own) || how == "" {
		return nil
	}
	v.entry.Proven(how)
	return nil
}

// wholeCRC returns the CRC-64/NVME of the right content, or of the content on the disk if nobody knows whether that is
// right. The second result is false if the disk has not all of it either.
func (c *comparison) wholeCRC() (uint64, bool) {
	v := c.v
	v.mu.Lock()
	a, known := v.about, v.vouched
	v.mu.Unlock()
	switch {
	case a != nil && a.HasCRC64:
		return a.CRC64, true
	case known != nil:
		return known.crc, true
	}
	own, err := v.crc64()
	return own, err == nil
}

// vouches reports whether the CRC-64/NVME of the right content is known.
func (c *comparison) vouches() bool {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.vouched != nil || v.about != nil && v.about.HasCRC64
}

// incomparable reports whether the upstream tells nothing that whole content can be compared with.
func (c *comparison) incomparable() bool {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tellsNothing() && !v.md5ETag()
}

// unheld reports whether readers of ranges get the last block before the content is compared.
func (c *comparison) unheld() bool {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tellsNothing() && (v.id.Size > waitMD5 || !v.md5ETag())
}

// tellsNothing reports whether the upstream names no checksum besides the ETag. The caller holds v.mu.
func (c *comparison) tellsNothing() bool {
	v := c.v
	a := v.about
	return a != nil && v.asked && !a.Sums()
}

// comparedBy returns how the whole content was compared, or "" if it was not.
func (v *version) comparedBy() string {
	if how := v.entry.Proof(); how != "" {
		return how
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.flights {
		f.mu.Lock()
		how := f.proof
		f.mu.Unlock()
		if how != "" {
			return how
		}
	}
	return ""
}

// fullyDescribed records that v.about is what the upstream says about the whole content.
func (c *comparison) fullyDescribed() {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = v.about != nil
}

// comparesOnDisk begins to compare content on the disk in the background, if the upstream tells something that needs
// all of its bytes: a CRC-32C, a CRC-32 or an MD5. The parameter is the CRC-64/NVME of the content. If the content is
// wrong, the entry is dropped. Until the end, the entry counts as not compared.
func (c *comparison) comparesOnDisk(crc uint64) bool {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.comparing {
		return true
	}
	if v.id.Size == 0 || v.about == nil {
		return false
	}
	var sum hash.Hash
	switch s, ok := v.about.Sum32(); {
	case ok:
		sum = s.New()
	case v.md5ETag():
		sum = md5.New() //nolint:gosec // compared with the upstream's own MD5
	default:
		return false
	}
	v.comparing = true
	about := v.about
	v.hold()
	v.b.s.running.Go(func() {
		defer v.release()
		v.compareOnDisk(about, crc, sum)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.comparing = false
		v.proved.Broadcast()
	})
	return true
}

// compareOnDisk compares content on the disk.
func (c *comparison) compareOnDisk(about *upstream.About, crc uint64, sum hash.Hash) {
	v := c.v
	s := v.b.s
	if v.id.Size > waitMD5 {
		select {
		case s.comparing <- struct{}{}:
			defer func() { <-s.comparing }()
		case <-s.fetches.Done():
			return
		}
	}
	all, err := v.entry.Section(object.Range{N: v.id.Size})
	if err != nil {
		return // a block was dropped
	}
	defer all.Close()
	if _, err := io.Copy(sum, &untilClosed{ctx: s.fetches, r: all}); err != nil {
		return // a damaged block is fetched again by its next reader
	}
	how, err := v.b.judge(about, crc, sum)
	if err != nil {
		s.counts.wrong.Add(1)
		_ = v.condemn(err) // logs the error
		return
	}
	v.mu.Lock()
	v.vouched = &vouched{how, crc}
	v.mu.Unlock()
	v.entry.Proven(how)
}

// untilClosed reads until a context ends.
type untilClosed struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u *untilClosed) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
