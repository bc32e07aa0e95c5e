// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// Counts are the numbers of objects, versions and bytes in a bucket. Each batch of metadata changes adds
// what it changes in these numbers with a Pebble merge. Counts are exact even after a crash, and reading them needs no
// scan.
type Counts struct {
	Objects  int64 // keys with a current version that is not a delete marker
	Versions int64 // noncurrent versions, without delete markers
	Markers  int64 // delete markers
	Bytes    int64 // bytes of content of all versions
	Inline   int64 // bytes of content that is stored inside the metadata; Bytes includes them
	Files    int64 // versions with their content in a data file
	Uploads  int64 // multipart uploads in progress
	Parts    int64 // bytes of the parts of multipart uploads in progress
}

func (c *Counts) fields() [8]*int64 {
	return [8]*int64{&c.Objects, &c.Versions, &c.Markers, &c.Bytes, &c.Inline, &c.Files, &c.Uploads, &c.Parts}
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	mine, theirs := c.fields(), d.fields()
	for i := range mine {
		*mine[i] += *theirs[i]
	}
}

// Encode returns the record of the counts.
func (c Counts) Encode() []byte {
	p := make(codec.Encoder, 0, 24)
	p.Byte(Format)
	for _, f := range c.fields() {
		p.Int(*f)
	}
	return p
}

// DecodeCounts decodes a record that Counts.Encode wrote.
func DecodeCounts(b []byte) (Counts, error) {
	var c Counts
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "counts"); err != nil {
		return c, err
	}
	for _, f := range c.fields() {
		*f = t.Int()
	}
	if !t.Done() {
		return Counts{}, Unreadable("counts", b)
	}
	return c, nil
}

// Hold adds the version v to the counts if sign is 1, and subtracts it if sign is -1.
func (c *Counts) Hold(v *Version, current bool, sign int64) {
	switch {
	case v.Marker():
		c.Markers += sign
		return
	case current:
		c.Objects += sign
	default:
		c.Versions += sign
	}
	c.Bytes += sign * v.Size
	if v.Inline() {
		c.Inline += sign * v.Size
	}
	if v.File != 0 {
		c.Files += sign
	}
}
