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

<<<<<<< HEAD
// Removal deletes objects of one bucket, many at a time. Only one goroutine at a time may use a Removal.
=======
// Removal deletes objects of one bucket, many at a time. One goroutine may use a Removal.
>>>>>>> places
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

<<<<<<< HEAD
// NewRemoval returns a Removal. The Removal calls the function each for every object after the request that deleted it,
// one call at a time, with the object's error or nil. The caller calls Close.
=======
// NewRemoval returns a Removal, which the caller closes. After each request, the Removal calls each for every object of
// the request, one call at a time, with the object's error or nil.
>>>>>>> places
func NewRemoval(ctx context.Context, c *s3.Client, bucket string, each func(d Doomed, err error)) *Removal {
	r := &Removal{client: c, bucket: bucket, each: each, room: make(chan struct{}, removals)}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r
}

<<<<<<< HEAD
// Add adds an object. Add fails if an earlier request has failed as a whole.
=======
// Add adds an object. If an earlier request has failed as a whole, Add fails.
>>>>>>> places
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

<<<<<<< HEAD
// Close sends what was added and waits for all requests. Close returns the first error of a request as a whole; errors
// of single objects are given to the function each. After an error of the walk that added objects, abandon leaves out the rest.
=======
// Close sends what was added and waits for all requests. Close returns the first error of a request as a whole. If
// abandon is set, Close leaves out objects that were not sent yet.
>>>>>>> places
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
