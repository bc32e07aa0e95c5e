// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

var _ object.Journal = (*Store)(nil)

// DefaultJournalLimit is the value of Options.JournalLimit if none is set.
const DefaultJournalLimit = 1_000_000

// journal keeps the queues of changes. The entries of a change are part of its batch. Concurrent changes commit in any
// order, so a reader sees only entries below the lowest number whose commit has not ended: no entry appears behind a
// reader's back. A journal is embedded in its Store.
type journal struct {
	s       *Store
	order   sync.Mutex // held while numbers are assigned, which may need a commit
	mu      sync.Mutex // never held during a commit: the commit of another change needs it
	top     uint64     // highest number of an entry
	pending []uint64   // numbers of entries whose commit has not ended, ascending
	queues  map[string]*queue
	moved   chan struct{} // closed when a commit with entries ends; nil while nobody waits
}

// queue is what waits for one consumer.
type queue struct {
	waiting  int64
	newest   uint64 // highest number of a durable entry
	acked    uint64 // entries up to this number were removed
	lost     int64
	lastLost int64      // in milliseconds
	removing sync.Mutex // one removal at a time
}

// entered is an entry of a change that is not committed yet.
type entered struct {
	entry     object.JournalEntry
	consumers []string
	labels    []string
}

// journalKind is the kind of the records that count lost entries.
const journalKind = "journal"

// maxRequester is the largest length in bytes of one field of an entry's requester.
const maxRequester = 256

// add adds an entry to a change, if the bucket asks for it. v is the version that was written or removed.
func (j *journal) add(ctx context.Context, t *tx, kind object.ChangeKind, key string, v *record.Version) {
	rules := t.bk.rules.Load()
	if rules == nil {
		return
	}
	from := object.RequesterOf(ctx)
	n := entered{}
	for i := range *rules {
		r := &(*rules)[i]
		if !slices.Contains(n.consumers, r.Consumer) && r.Matches(kind, key, from.Principal) {
			n.consumers, n.labels = append(n.consumers, r.Consumer), append(n.labels, r.Label)
		}
	}
	if len(n.consumers) == 0 {
		return
	}
	for _, f := range []*string{&from.Principal, &from.Remote, &from.RequestID, &from.HostID, &from.Agent} {
		*f = (*f)[:min(len(*f), maxRequester)]
	}
	b := t.bk.settings.Load()
	n.entry = object.JournalEntry{Time: record.Time(t.s.now()), Kind: kind, Bucket: b.Name, Owner: b.Owner, Key: key,
		Version: t.s.names.Version(v), Versioned: b.Versioning != object.VersioningOff, Marker: v.Marker(), Size: v.Size,
		ETag: v.ETag, By: from}
	t.entries = append(t.entries, n)
}

// begin numbers the entries of a change and adds them to its batch; it sets t.err if that fails. The caller calls ended
// with the result of the commit. Entries whose outcome is unknown stay hidden, until they are durable or the store is
// opened again.
func (j *journal) begin(t *tx) (ended func(error)) {
	seqs := make([]uint64, 0, len(t.entries))
	j.order.Lock()
	for range t.entries {
		seq, err := t.s.seqs.take(t.s)
		if err != nil {
			t.err = err
			break
		}
		seqs = append(seqs, seq)
	}
	j.mu.Lock()
	j.pending = append(j.pending, seqs...)
	if len(seqs) > 0 {
		j.top = seqs[len(seqs)-1]
	}
	j.mu.Unlock()
	j.order.Unlock()
	for i, seq := range seqs {
		n := &t.entries[i]
		for k, consumer := range n.consumers {
			n.entry.Label = n.labels[k]
			t.set(record.JournalKey(consumer, seq), record.EncodeJournal(&n.entry))
		}
	}
	return func(err error) { j.end(t.entries, seqs, err == nil) }
}

// end shows the entries of a commit that succeeded, and forgets those of a commit that failed.
func (j *journal) end(entries []entered, seqs []uint64, committed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, seq := range seqs {
		if at, ok := slices.BinarySearch(j.pending, seq); ok {
			j.pending = slices.Delete(j.pending, at, at+1)
		}
		if !committed {
			continue
		}
		for _, consumer := range entries[i].consumers {
			q := j.queue(consumer)
			q.waiting++
			q.newest = max(q.newest, seq)
		}
	}
	j.wakeHeld()
}

// queue returns the queue of a consumer. The caller holds the lock.
func (j *journal) queue(consumer string) *queue {
	q := j.queues[consumer]
	if q == nil {
		q = &queue{}
		j.queues[consumer] = q
	}
	return q
}

// load counts the entries of all consumers when the store is opened.
func (j *journal) load() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queues, j.pending = map[string]*queue{}, nil
	err := j.s.each(record.KindJournal, func(k, _ []byte) error {
		consumer, seq, ok := record.SplitJournalKey(k)
		if !ok {
			j.s.background(record.Unreadable("journal key", k))
			return nil
		}
		q := j.queue(consumer)
		q.waiting++
		q.newest = max(q.newest, seq)
		j.top = max(j.top, seq)
		return nil
	})
	if err != nil {
		return err
	}
	prefix := record.Key(journalKind, "")
	return metadb.Each(j.s.db, prefix, record.After(prefix), func(k, b []byte) error {
		q := j.queue(string(k[len(prefix):]))
		in := codec.Decoder{Rest: b}
		version, lost, last := in.Byte(), in.Int(), in.Int()
		if version != record.Format || !in.Done() {
			j.s.background(record.Unreadable("lost journal entries", b))
			return nil
		}
		q.lost, q.lastLost = lost, last
		return nil
	})
}

// horizon returns the number below which no entry can appear any more. The caller holds the lock.
func (j *journal) horizon() uint64 {
	if len(j.pending) > 0 {
		return j.pending[0]
	}
	return j.top + 1
}

// ReadJournal implements object.Journal.
func (j *journal) ReadJournal(ctx context.Context, consumer string, after uint64,
	limit int) ([]object.JournalEntry, error) {
	const op = "read journal"
	s := j.s
	end, err := s.begin(ctx, op, consumer)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := checkConsumer(op, consumer); err != nil {
		return nil, err
	}
	j.mu.Lock()
	horizon := j.horizon()
	from := after
	if q := j.queues[consumer]; q != nil {
		from = max(from, q.acked)
	}
	j.mu.Unlock()
	var out []object.JournalEntry
	if from >= horizon {
		return nil, nil
	}
	err = metadb.Each(s.db, record.JournalKey(consumer, from+1), record.JournalKey(consumer, horizon),
		func(k, b []byte) error {
			if len(out) >= limit {
				return metadb.ErrStop
			}
			_, seq, ok := record.SplitJournalKey(k)
			if !ok {
				return record.Unreadable("journal key", k)
			}
			e, err := record.DecodeJournal(seq, b)
			if err != nil {
				return err
			}
			out = append(out, e)
			return ctx.Err()
		})
	if err == metadb.ErrStop {
		err = nil
	}
	return out, err
}

func checkConsumer(op, consumer string) error {
	if consumer == "" || len(consumer) > object.MaxConsumer {
		return object.Fail(op, consumer, object.ErrInvalidName,
			fmt.Sprintf("a consumer of %d bytes, expected 1 to %d", len(consumer), object.MaxConsumer))
	}
	return nil
}

// WaitJournal implements object.Journal.
func (j *journal) WaitJournal(ctx context.Context, consumer string, after uint64) error {
	for {
		if j.s.closed.Load() {
			return object.Fail("wait for journal", consumer, object.ErrClosed, "")
		}
		j.mu.Lock()
		if j.moved == nil {
			j.moved = make(chan struct{})
		}
		moved := j.moved
		q := j.queues[consumer]
		worth := q != nil && q.newest > after
		j.mu.Unlock()
		if worth {
			some, err := j.ReadJournal(ctx, consumer, after, 1)
			if err != nil || len(some) > 0 {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-moved:
		}
	}
}

// wake lets all waiting consumers look again.
func (j *journal) wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wakeHeld()
}

// wakeHeld is wake for a caller that holds the lock.
func (j *journal) wakeHeld() {
	if j.moved != nil {
		close(j.moved)
		j.moved = nil
	}
}
