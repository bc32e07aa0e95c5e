// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// numbers assigns ascending numbers, each once in the life of the store. The mark in the metadata is above all
// assigned numbers, and durable before the first of them is used. The mark is raised by a whole reserve at a time.
type numbers struct {
	key     []byte
	reserve uint64
	mu      sync.Mutex
	next    uint64
	mark    uint64
}

// The reserves. A crash skips the rest of one reserve at most.
const (
	fileReserve     = 4096
	sequenceReserve = 1 << 16
	bucketReserve   = 1
)

// begin reads the mark and puts the next one into b.
func (n *numbers) begin(r pebble.Reader, b *pebble.Batch) error {
	v, err := metadb.Get(r, n.key)
	if err != nil {
		return err
	}
	n.next = 1
	if v != nil {
		if len(v) != 8 {
			return record.Unreadable("mark", v)
		}
		n.next = binary.BigEndian.Uint64(v)
	}
	n.mark = n.next + n.reserve
	return b.Set(n.key, binary.BigEndian.AppendUint64(nil, n.mark), nil)
}

// take assigns the next number.
func (n *numbers) take(s *Store) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.mark {
		b := s.db.NewBatch()
		if err := b.Set(n.key, binary.BigEndian.AppendUint64(nil, n.mark+n.reserve), nil); err != nil {
			return 0, err
		}
		if err := s.apply("reserve numbers", string(n.key), b, nil); err != nil {
			return 0, err
		}
		n.mark += n.reserve
	}
	n.next++
	return n.next - 1, nil
}

// raise raises a mark that is damaged and too low: a number in use must not be assigned again, because its records
// would be overwritten. It reads only the last key of each kind that contains such a number.
func (s *Store) raise(n *numbers, b *pebble.Batch) error {
	var highest uint64
	if n == &s.bucketIDs {
		for _, bk := range s.buckets {
			highest = max(highest, bk.id)
		}
	}
	kinds := map[*numbers][]byte{&s.fileIDs: {record.KindFile, record.KindGone},
		&s.seqs:      {record.KindData, record.KindParts, record.KindPart},
		&s.bucketIDs: {record.KindObject, record.KindVersion, record.KindCounts}}
	for _, kind := range kinds[n] {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
		if err != nil {
			return metadb.WrapRead("", err)
		}
		top := highest
		if it.Last() {
			last, _ := record.NumberOf(it.Key())
			top = max(top, last)
		}
		if err := metadb.WrapRead("", it.Close()); err != nil {
			if !errs.Is(err, errs.Corrupt) {
				return err
			}
			// Something other than the mark is damaged. What is readable is served.
			s.background(err)
		}
		if top < n.next || top >= record.Plausible {
			continue
		}
		s.background(errs.New(errs.Corrupt, "open store", string(n.key[1:]),
			fmt.Sprintf("the mark is %d and %d is in use; it was raised", n.next, top)).
			WithFix("stop the server and run nebulaio store check"))
		n.next = top + 1
		n.mark = n.next + n.reserve
		if err := b.Set(n.key, binary.BigEndian.AppendUint64(nil, n.mark), nil); err != nil {
			return err
		}
	}
	return nil
}
