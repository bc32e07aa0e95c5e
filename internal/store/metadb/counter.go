// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/store/record"
)

// counting is Pebble's merge operator for counts: addition.
var counting = &pebble.Merger{
	Name: "nebulaio.counts",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		c, err := record.DecodeCounts(value)
		return &sum{c}, err
	},
}

type sum struct{ record.Counts }

func (s *sum) MergeNewer(value []byte) error {
	c, err := record.DecodeCounts(value)
	s.Add(c)
	return err
}

func (s *sum) MergeOlder(value []byte) error { return s.MergeNewer(value) }

func (s *sum) Finish(bool) ([]byte, io.Closer, error) { return s.Encode(), nil, nil }
