// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"sync"

	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Doomed is an object, or one version of it, that a Removal deletes.
type Doomed struct {
	s3.Doomed
	Size int64 // as the listing said
}

// Removal deletes objects of one bucket, many at a time. The methods of a Removal belong to a single goroutine.
type Removal struct {
	client *s3.Client
	bucket string
	each   func(Doomed, error)

	mu    sync.Mutex // held while each runs
	next  []Doomed
	room  chan struct{}
	wait  sync.WaitGroup
	ctx   context.Context //nolint:containedctx // of the whole removal, which is one call to its caller
	end   context.CancelCauseFunc
	wrong error
}

// removals is the number of requests of a Removal at once.
const removals = 4

// NewRemoval returns a Removal, which the caller closes. After each request, the Removal calls each for every object of
// the request, one call at a time, with the object's error or nil.
func NewRemoval(ctx context.Context, c *s3.Client, bucket string, each func(d Doomed, err error)) *Removal {
	r := &Removal{client: c, bucket: bucket, each: each, room: make(chan struct{}, removals)}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r
}

// Add adds an object. If an earlier request has failed as a whole, Add fails.
func (r *Removal) Add(d Doomed) error {
	if r.next = append(r.next, d); len(r.next) < s3.MostDeletes {
		return nil
	}
	return r.send()
}

func (r *Removal) send() error {
	some := r.next
	r.next = nil
	names := make([]s3.Doomed, len(some))
	for i, d := range some {
		names[i] = d.Doomed
	}
	select {
	case r.room <- struct{}{}:
	case <-r.ctx.Done():
		return r.failed()
	}
	r.wait.Go(func() {
		defer func() { <-r.room }()
		fails, err := r.client.Admin().DeleteMany(r.ctx, r.bucket, names)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			if r.wrong == nil {
				r.wrong = err
			}
			r.end(err)
			return
		}
		for i, d := range some {
			r.each(d, fails[i])
		}
	})
	return nil
}

// failed returns the error that ended the removal.
func (r *Removal) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		return r.wrong
	}
	return context.Cause(r.ctx)
}

// Close sends what was added and waits for all requests. Close returns the first error of a request as a whole. If
// abandon is set, Close leaves out objects that were not sent yet.
func (r *Removal) Close(abandon bool) error {
	var err error
	if len(r.next) > 0 && !abandon {
		err = r.send()
	}
	r.wait.Wait()
	r.end(nil)
	if r.wrong != nil {
		return r.wrong
	}
	return err
}
