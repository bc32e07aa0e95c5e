// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// journalBatch limits how many entries are removed in one step.
const journalBatch = 1000

// AckJournal implements object.Journal.
func (j *journal) AckJournal(ctx context.Context, consumer string, through uint64) error {
	const op = "acknowledge journal"
	s := j.s
	end, err := s.begin(ctx, op, consumer)
	if err != nil {
		return err
	}
	defer end()
	if err := checkConsumer(op, consumer); err != nil {
		return err
	}
	if err := s.writable(op, consumer); err != nil {
		return err
	}
	j.mu.Lock()
	through = min(through, j.horizon()-1)
	q := j.queues[consumer]
	j.mu.Unlock()
	if q == nil {
		return nil
	}
	q.removing.Lock()
	defer q.removing.Unlock()
	for {
		keys, err := j.oldest(q, consumer, through, journalBatch)
		if err != nil || len(keys) == 0 {
			return err
		}
		b := s.db.NewBatch()
		if err := deleteKeys(b, keys); err != nil {
			return errs.Wrap(op, consumer, err)
		}
		if err := s.apply(op, consumer, b, nil); err != nil {
			return err
		}
		j.removed(q, keys)
	}
}

func deleteKeys(b *pebble.Batch, keys [][]byte) error {
	for _, k := range keys {
		if err := b.Delete(k, nil); err != nil {
			return err
		}
	}
	return nil
}

// oldest returns the keys of the oldest entries of a queue, up to and including the number through. The caller holds
// q.removing.
func (j *journal) oldest(q *queue, consumer string, through uint64, limit int) (keys [][]byte, err error) {
	j.mu.Lock()
	from := q.acked + 1
	j.mu.Unlock()
	if through < from {
		return nil, nil
	}
	err = metadb.Each(j.s.db, record.JournalKey(consumer, from), record.JournalKey(consumer, through+1),
		func(k, _ []byte) error {
			if keys = append(keys, slices.Clone(k)); len(keys) >= limit {
				return metadb.ErrStop
			}
			return nil
		})
	if err == metadb.ErrStop {
		err = nil
	}
	return keys, err
}

// removed counts entries that were removed from the beginning of a queue.
func (j *journal) removed(q *queue, keys [][]byte) {
	var freed int64
	for _, k := range keys {
		freed += int64(len(k)) + recordCost
	}
	j.s.sweeper.freed.Add(freed)
	_, last, _ := record.SplitJournalKey(keys[len(keys)-1])
	j.mu.Lock()
	defer j.mu.Unlock()
	q.waiting -= int64(len(keys))
	q.acked = max(q.acked, last)
}

// trim drops the oldest entries of queues that are too long. Background work of the store calls it.
func (j *journal) trim(ctx context.Context) {
	j.mu.Lock()
	long := map[string]*queue{}
	for name, q := range j.queues {
		if q.waiting > j.s.opts.JournalLimit {
			long[name] = q
		}
	}
	j.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(long)) {
		n, err := j.shorten(ctx, name, long[name])
		if err != nil && ctx.Err() == nil {
			j.s.background(errs.Wrap("shorten journal", name, err))
		}
		if n > 0 && j.s.opts.Events.JournalDropped != nil {
			j.s.opts.Events.JournalDropped(name, n)
		}
	}
}

// shorten drops the oldest entries of one queue, and counts them durably in the same step.
func (j *journal) shorten(ctx context.Context, consumer string, q *queue) (dropped int64, err error) {
	q.removing.Lock()
	defer q.removing.Unlock()
	for ctx.Err() == nil {
		j.mu.Lock()
		excess := q.waiting - j.s.opts.JournalLimit
		lost := q.lost
		through := j.horizon() - 1
		j.mu.Unlock()
		if excess <= 0 {
			return dropped, nil
		}
		keys, err := j.oldest(q, consumer, through, int(min(excess, journalBatch)))
		if err != nil || len(keys) == 0 {
			return dropped, err
		}
		now := j.s.now()
		lost += int64(len(keys))
		b := j.s.db.NewBatch()
		if err := deleteKeys(b, keys); err != nil {
			return dropped, err
		}
		p := codec.Encoder{}
		p.Byte(record.Format)
		p.Int(lost)
		p.Int(now)
		if err := b.Set(record.Key(journalKind, consumer), p, nil); err != nil {
			return dropped, err
		}
		if err := j.s.apply("shorten journal", consumer, b, nil); err != nil {
			return dropped, err
		}
		j.removed(q, keys)
		j.mu.Lock()
		q.lost, q.lastLost = lost, now
		j.mu.Unlock()
		dropped += int64(len(keys))
	}
	return dropped, nil
}

// JournalQueues implements object.Journal.
func (j *journal) JournalQueues(ctx context.Context) ([]object.JournalQueue, error) {
	j.mu.Lock()
	var out []object.JournalQueue
	for _, name := range slices.Sorted(maps.Keys(j.queues)) {
		q := j.queues[name]
		one := object.JournalQueue{Consumer: name, Waiting: q.waiting, Lost: q.lost}
		if q.lastLost != 0 {
			one.LastLost = record.Time(q.lastLost)
		}
		out = append(out, one)
	}
	j.mu.Unlock()
	for i := range out {
		if out[i].Waiting == 0 {
			continue
		}
		first, err := j.ReadJournal(ctx, out[i].Consumer, 0, 1)
		if err != nil {
			return nil, err
		}
		if len(first) > 0 {
			out[i].Oldest = first[0].Time
		}
	}
	return out, nil
}

// ForgetJournal implements object.Journal.
func (j *journal) ForgetJournal(ctx context.Context, consumer string) error {
	const op = "forget journal"
	s := j.s
	end, err := s.begin(ctx, op, consumer)
	if err != nil {
		return err
	}
	defer end()
	if err := checkConsumer(op, consumer); err != nil {
		return err
	}
	j.mu.Lock()
	q := j.queue(consumer)
	through := min(j.horizon()-1, q.newest)
	j.mu.Unlock()
	q.removing.Lock()
	defer q.removing.Unlock()
	b := s.db.NewBatch()
	if err := b.DeleteRange(record.JournalKey(consumer, 0), record.JournalKey(consumer, through+1), nil); err != nil {
		return errs.Wrap(op, consumer, err)
	}
	if err := b.Delete(record.Key(journalKind, consumer), nil); err != nil {
		return errs.Wrap(op, consumer, err)
	}
	if err := s.apply(op, consumer, b, nil); err != nil {
		return err
	}
	// Changes that were committed meanwhile have added entries, which stay.
	j.mu.Lock()
	defer j.mu.Unlock()
	q.waiting, q.lost, q.lastLost, q.acked = 0, 0, 0, through
	if q.newest <= through {
		delete(j.queues, consumer)
		return nil
	}
	return metadb.Each(s.db, record.JournalKey(consumer, through+1), record.After(record.JournalPrefix(consumer)),
		func(k, _ []byte) error {
			if _, seq, ok := record.SplitJournalKey(k); ok && seq < j.horizon() {
				q.waiting++
			}
			return nil
		})
}
