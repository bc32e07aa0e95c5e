// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// tick is the time between two looks at the configurations of all buckets.
const tick = time.Minute

// Store is what a Worker needs of a store.
type Store interface {
	object.Buckets
	object.Lister
	object.Records
	object.Noter
	// ListUploads is that of object.Uploads.
	ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error)
}

// Options are the parts of a Worker.
type Options struct {
	Store    Store
	Now      func() time.Time // clock; nil means time.Now
	Calendar Calendar
	Rate     int64 // largest number of removals per second; 0 means no limit
	Log      *slog.Logger
	// Observe, if not nil, is called with what was done after each durable step, on the goroutine of the pass.
	Observe func(done Counts)
	// Ended, if not nil, is called at the end of each pass, on the goroutine of the pass.
	Ended func(at time.Time, err error)
}

// Worker removes what the lifecycle rules of all buckets say. At most one pass of a Worker runs at a time.
type Worker struct {
	Options
	one chan struct{} // holds a value while a pass runs
}

// New returns a Worker.
func New(o Options) *Worker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Observe == nil {
		o.Observe = func(Counts) {}
	}
	if o.Ended == nil {
		o.Ended = func(time.Time, error) {}
	}
	return &Worker{Options: o, one: make(chan struct{}, 1)}
}

// Run makes the passes that are needed, until ctx ends. A bucket needs a pass once after each midnight UTC, because all
// days of rules end at midnight. A bucket also needs a pass if its rules have changed, or if its last pass did not end.
func (w *Worker) Run(ctx context.Context) {
	pause := tick
	if d := w.Calendar.Day; d > 0 {
		pause = min(tick, d/10)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := w.Due(ctx); err != nil && ctx.Err() == nil {
			w.Log.Warn("a lifecycle pass failed", "error", err, "fix", "the server tries again")
		}
		timer.Reset(pause)
	}
}

// Due makes the passes that are needed now. If the pass of a bucket fails, Due goes on with the next bucket and returns
// the first error at the end.
func (w *Worker) Due(ctx context.Context) error {
	buckets, err := w.Store.ListBuckets(ctx)
	if err != nil {
		return err
	}
	first := forget(ctx, w.Store, buckets)
	for i := range buckets {
		b := &buckets[i]
		doc, has := b.Settings[Setting]
		if !has || b.OnUpstream() {
			continue
		}
		r, err := reportOf(ctx, w.Store, b)
		if err == nil && w.needs(r, doc) {
			_, err = w.exclusively(ctx, func() (*Report, error) { return w.pass(ctx, b, r, doc, nil) })
		}
		if err != nil && first == nil && !errors.Is(err, object.ErrNoSuchBucket) {
			first = err
		}
		if ctx.Err() != nil {
			return errs.Wrap("apply lifecycle rules", b.Name, context.Cause(ctx))
		}
	}
	return first
}

// needs reports whether a bucket needs a pass.
func (w *Worker) needs(r *Report, doc []byte) bool {
	if r.Pass == nil || r.Pass.Ended == nil || r.Config != digest(doc) || w.Calendar.Day > 0 {
		return true
	}
	now := w.Now()
	return r.Pass.Started.Before(now.UTC().Truncate(24*time.Hour)) || r.Pass.Started.After(now.Add(time.Hour))
}

// RunNow makes a whole pass over one bucket, or over all buckets with lifecycle rules if bucket is "", and returns the
// reports. If dry is true, RunNow only counts what is due. If progress is not nil, RunNow calls it from time to time.
// RunNow waits for a pass in progress. RunNow fails with object.ErrNoSuchBucket if the bucket does not exist, and with
// kind NotFound if it has no lifecycle rules.
func (w *Worker) RunNow(ctx context.Context, bucket string, dry bool, progress func(Report)) ([]Report, error) {
	const op = "apply lifecycle rules"
	buckets, err := w.Store.ListBuckets(ctx)
	if err != nil {
		return nil, err
	}
	found := false
	all := []Report{}
	for i := range buckets {
		b := &buckets[i]
		if bucket != "" && b.Name != bucket {
			continue
		}
		found = true
		doc, has := b.Settings[Setting]
		if !has || b.OnUpstream() {
			if bucket != "" {
				return nil, errs.New(errs.NotFound, op, bucket, "the bucket has no lifecycle rules").
					WithFix("put a lifecycle configuration")
			}
			continue
		}
		r, err := w.exclusively(ctx, func() (*Report, error) {
			r, err := reportOf(ctx, w.Store, b)
			if err != nil {
				return nil, err
			}
			r.Pass, r.DryRun = nil, dry
			return w.pass(ctx, b, r, doc, progress)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
	}
	if !found && bucket != "" {
		return nil, object.Fail(op, bucket, object.ErrNoSuchBucket, "")
	}
	return all, nil
}

// exclusively calls do while no other pass runs.
func (w *Worker) exclusively(ctx context.Context, do func() (*Report, error)) (*Report, error) {
	select {
	case w.one <- struct{}{}:
	case <-ctx.Done():
		return nil, errs.Wrap("apply lifecycle rules", "", context.Cause(ctx))
	}
	defer func() { <-w.one }()
	return do()
}

// wait keeps to the rate after n removals.
func (w *Worker) wait(ctx context.Context, n int) error {
	if w.Rate <= 0 || n == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(n) * time.Second / time.Duration(w.Rate))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
