// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// counts are what a bucket holds. They are kept under countsKey as a sum that
// every batch adds to with a merge, so that they are exact after a crash and
// cost neither a read nor a scan.
type counts struct {
	Objects  int64 // keys with a current version that is no delete marker
	Versions int64 // noncurrent versions that are no delete markers
	Markers  int64 // delete markers
	Bytes    int64 // of content, of current and noncurrent versions
	Inline   int64 // of these bytes, those that lie with the metadata
	Files    int64 // versions whose content is a file
	Uploads  int64 // uploads in progress
	Parts    int64 // bytes of their parts
}

func (c *counts) fields() [8]*int64 {
	return [8]*int64{&c.Objects, &c.Versions, &c.Markers, &c.Bytes, &c.Inline, &c.Files, &c.Uploads, &c.Parts}
}

func (c *counts) add(d counts) {
	mine, theirs := c.fields(), d.fields()
	for i := range mine {
		*mine[i] += *theirs[i]
	}
}

func (c counts) encode() []byte {
	p := make(put, 0, 24)
	p.byte(recordVersion)
	for _, f := range c.fields() {
		p.int(*f)
	}
	return p
}

func decodeCounts(b []byte) (counts, error) {
	var c counts
	t := take{b: b}
	if err := t.version("counts"); err != nil {
		return c, err
	}
	for _, f := range c.fields() {
		*f = t.int()
	}
	if !t.done() {
		return counts{}, badRecord("counts", b)
	}
	return c, nil
}

// hold counts a version, current or not, sign times.
func (c *counts) hold(v *version, current bool, sign int64) {
	switch {
	case v.marker():
		c.Markers += sign
		return
	case current:
		c.Objects += sign
	default:
		c.Versions += sign
	}
	c.Bytes += sign * v.size
	if v.inline() {
		c.Inline += sign * v.size
	}
	if v.file != 0 {
		c.Files += sign
	}
}

// counting is Pebble's merger of counts: addition.
var counting = &pebble.Merger{
	Name: "nebulaio.counts",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		c, err := decodeCounts(value)
		return &sum{c}, err
	},
}

type sum struct{ counts }

func (s *sum) MergeNewer(value []byte) error {
	c, err := decodeCounts(value)
	s.add(c)
	return err
}

func (s *sum) MergeOlder(value []byte) error { return s.MergeNewer(value) }

func (s *sum) Finish(bool) ([]byte, io.Closer, error) { return s.encode(), nil, nil }

// loadCounts reads what a bucket holds.
func loadCounts(r pebble.Reader, bucket uint64) (counts, error) {
	b, closer, err := r.Get(countsKey(bucket))
	if errors.Is(err, pebble.ErrNotFound) {
		return counts{}, nil
	}
	if err != nil {
		return counts{}, metaErr("", err)
	}
	defer func() { _ = closer.Close() }()
	return decodeCounts(b)
}
