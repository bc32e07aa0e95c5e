// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/replication/rules"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// link replicates one bucket to one bucket of a target.
type link struct {
	rules.Link
	w      *Worker
	server *versions.Server
	cancel context.CancelFunc
	ours   bool // the target is a NebulaIO server, which keeps times and adds no version twice

	mu sync.Mutex
	st Status
}

// failed records the error of a try.
func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Tries++
	l.st.LastError, l.st.LastTry, l.st.Healthy = err.Error(), time.Now(), false
}

// refused records the error of a version that the target refuses for good.
func (l *link) refused(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.LastError, l.st.LastTry = err.Error(), time.Now()
}

// works records that a batch was copied.
func (l *link) works() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Healthy = true
}

const (
	// batchSize is the largest number of changes that are copied before they are acknowledged.
	batchSize = 256
	// batchWorkers is the number of keys that are copied at the same time.
	batchWorkers = 8
	// recordKind is the kind of the records that say which batch is on its way.
	recordKind = "replication-batch"
)

// batch is the record of the changes that are on their way. The record is written before the first of them is sent, so
// that after a crash the versions at the target tell which of them have arrived.
type batch struct {
	Done uint64 `json:"done"` // changes up to this one have been copied
	Last uint64 `json:"last"` // last change of the batch
	// Newest has the newest version of each key at the target before the batch; empty if the key had none.
	Newest map[string]string `json:"newest"`
}

// run copies changes until ctx ends.
func (l *link) run(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; {
		err := l.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			l.works()
			failed = 0
			continue
		}
		l.failed(err)
		if failed++; failed == 1 || failed%20 == 0 {
			l.w.o.Log.Warn("replication waits for its target", "bucket", l.Bucket, "target", l.Target, "error", err,
				"failures", failed)
		}
		pause := min(l.w.o.MostPause, 100*time.Millisecond<<min(failed-1, 16))
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
	}
}

// step copies one batch of changes and acknowledges it.
func (l *link) step(ctx context.Context) error {
	if err := l.w.o.Store.WaitJournal(ctx, l.Consumer(), 0); err != nil {
		return err
	}
	all, err := l.w.o.Store.ReadJournal(ctx, l.Consumer(), 0, batchSize)
	if err != nil || len(all) == 0 {
		return err
	}
	if err := l.meet(ctx); err != nil {
		return err
	}
	b, some, err := l.begin(ctx, all)
	if err != nil {
		return err
	}
	if err := l.each(ctx, b, some); err != nil {
		return err
	}
	return l.w.o.Store.AckJournal(ctx, l.Consumer(), b.Last)
}

// meet looks at the bucket of the target, which needs versions.
func (l *link) meet(ctx context.Context) error {
	body, h, err := l.server.Admin().Ask(ctx, "read versioning of", s3.Request{Method: http.MethodGet, Bucket: l.To,
		Query: url.Values{"versioning": {""}}}, s3.MostSetting)
	if err != nil {
		return err
	}
	if !strings.Contains(string(body), "<Status>Enabled</Status>") {
		return errs.New(errs.Invalid, "replicate to", s3.URL(l.To, ""), "the bucket has no versioning").
			WithFix("enable versioning of the bucket at the target")
	}
	l.ours = h.Get("Server") == "NebulaIO"
	return nil
}

// begin returns the batch of the first changes: the one that was on its way before a crash, or a new one.
func (l *link) begin(ctx context.Context, all []object.JournalEntry) (*batch, []object.JournalEntry, error) {
	b := &batch{}
	raw, err := l.w.o.Store.Record(ctx, recordKind, l.Consumer())
	if err == nil {
		err = json.Unmarshal(raw, b)
	} else if errors.Is(err, object.ErrNoSuchRecord) {
		err = nil
	}
	if err != nil {
		return nil, nil, err
	}
	old := b.Last >= all[0].Seq && b.Newest != nil
	if !old {
		b = &batch{Done: b.Last, Last: all[len(all)-1].Seq}
	}
	var some []object.JournalEntry
	for _, e := range all {
		if e.Seq > b.Done && e.Seq <= b.Last && (len(some) == 0 || some[len(some)-1].Seq != e.Seq) {
			some = append(some, e)
		}
	}
	if old {
		return b, some, nil
	}
	if b.Newest, err = l.newest(ctx, some); err != nil {
		return nil, nil, err
	}
	if raw, err = json.Marshal(b); err != nil {
		return nil, nil, err
	}
	return b, some, l.w.o.Store.PutRecord(ctx, recordKind, l.Consumer(), raw)
}

// newest asks the target for the newest versions of the keys of some changes.
func (l *link) newest(ctx context.Context, some []object.JournalEntry) (map[string]string, error) {
	keys := map[string]string{}
	for _, e := range some {
		keys[e.Key] = ""
	}
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	var mu sync.Mutex
	err := parallel(ctx, len(names), func(ctx context.Context, i int) error {
		k, err := l.server.Of(ctx, l.To, names[i])
		mu.Lock()
		defer mu.Unlock()
		keys[names[i]] = k.Newest()
		return err
	})
	return keys, err
}

// parallel calls do for each of n numbers, several at a time, and returns the first error. After an error, the other
// calls go on.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var first error
	work := make(chan int)
	for range min(n, batchWorkers) {
		group.Go(func() {
			for i := range work {
				if err := do(ctx, i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
	return first
}

// each copies the changes of a batch: the keys at the same time, the changes of one key in order.
func (l *link) each(ctx context.Context, b *batch, some []object.JournalEntry) error {
	byKey := map[string][]object.JournalEntry{}
	var names []string
	for _, e := range some {
		if byKey[e.Key] == nil {
			names = append(names, e.Key)
		}
		byKey[e.Key] = append(byKey[e.Key], e)
	}
	return parallel(ctx, len(names), func(ctx context.Context, i int) error {
		return l.key(ctx, names[i], b.Newest[names[i]], byKey[names[i]])
	})
}
