// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Dispatcher sends the journal entries of each target to the target.
type Dispatcher struct {
	journal object.Journal
	store   string
	region  string
	targets []*running

	// Retry is the time after the first failed try; the time doubles up to MaxRetry. The caller may change both before
	// Run.
	Retry, MaxRetry time.Duration
	// Failed, if not nil, is called after each failed try. Failed must be quick.
	Failed func(target string, err error)

	after func(time.Duration) <-chan time.Time // time.After, except in tests
}

// Status is the state of one target.
type Status struct {
	Target    string
	Type      string
	Delivered int64 // events that the target has confirmed since the start of the server
	Failures  int64 // failed tries since the start of the server
	LastError string
	LastTry   time.Time // of the last failed try
	Healthy   bool      // whether the last try succeeded
}

// running is a target with its state.
type running struct {
	s      Settings
	target Target

	mu sync.Mutex
	st Status
}

// pageSize is the largest number of events that are sent together.
const pageSize = 100

// NewDispatcher opens the targets. The parameters store and region are parts of each event. The caller calls Run, and
// then Close.
func NewDispatcher(j object.Journal, store, region string, targets []Settings) (*Dispatcher, error) {
	d := &Dispatcher{journal: j, store: store, region: region, Retry: time.Second, MaxRetry: 30 * time.Second,
		after: time.After}
	for _, s := range targets {
		t, err := Open(s)
		if err != nil {
			d.Close()
			return nil, err
		}
		d.targets = append(d.targets, &running{s: s, target: t,
			st: Status{Target: s.Name, Type: s.Type, Healthy: true}})
	}
	return d, nil
}

// Run sends events until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, t := range d.targets {
		all.Go(func() { d.serve(ctx, t) })
	}
	all.Wait()
}

// Close closes the targets after Run has returned.
func (d *Dispatcher) Close() {
	for _, t := range d.targets {
		t.target.Close()
	}
}

// Status returns the states of the targets, ordered as the settings.
func (d *Dispatcher) Status() []Status {
	var all []Status
	for _, t := range d.targets {
		t.mu.Lock()
		all = append(all, t.st)
		t.mu.Unlock()
	}
	return all
}

// Has reports whether there is a target for the journal's queue with this name.
func (d *Dispatcher) Has(consumer string) bool {
	return slices.ContainsFunc(d.targets, func(t *running) bool { return Consumer(t.s.Name) == consumer })
}

// serve sends the events of one target.
func (d *Dispatcher) serve(ctx context.Context, t *running) {
	var wait time.Duration
	for ctx.Err() == nil {
		err := d.step(ctx, t)
		if err == nil {
			wait = 0
			continue
		}
		if ctx.Err() != nil || errors.Is(err, object.ErrClosed) {
			return
		}
		t.mu.Lock()
		t.st.Failures++
		t.st.LastError, t.st.LastTry, t.st.Healthy = err.Error(), time.Now(), false
		t.mu.Unlock()
		if d.Failed != nil {
			d.Failed(t.s.Name, err)
		}
		wait = backoff(wait, d.Retry, d.MaxRetry)
		select {
		case <-ctx.Done():
		case <-d.after(max(wait, askedWait(err))):
		}
	}
}

// step waits for events, sends a page of them, and removes the confirmed ones from the queue.
func (d *Dispatcher) step(ctx context.Context, t *running) error {
	consumer := Consumer(t.s.Name)
	if err := d.journal.WaitJournal(ctx, consumer, 0); err != nil {
		return err
	}
	entries, err := d.journal.ReadJournal(ctx, consumer, 0, pageSize)
	if err != nil || len(entries) == 0 {
		return err
	}
	messages := make([]Message, len(entries))
	for i := range entries {
		if messages[i], err = newMessage(d.store, d.region, &entries[i]); err != nil {
			return err
		}
	}
	confirmed, sendErr := t.target.Send(ctx, messages)
	if confirmed > 0 {
		t.mu.Lock()
		t.st.Delivered += int64(confirmed)
		t.st.Healthy = sendErr == nil
		t.mu.Unlock()
		// The end of the server must not keep the confirmation from being recorded.
		if err := d.journal.AckJournal(context.WithoutCancel(ctx), consumer, entries[confirmed-1].Seq); err != nil {
			return err
		}
	}
	return sendErr
}
