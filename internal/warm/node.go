// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// NodeOptions say how a node is warmed.
type NodeOptions struct {
	// Pin makes the node keep the objects: "forever", a duration such as "24h", or "" for no pin.
	Pin string
	// Objects is the number of objects at once; 0 means 8.
	Objects int
	// Progress, if not nil, is called with the bytes in the node's cache so far, on any goroutine.
	Progress func(bytes int64)
	// Wait pauses between two questions about one object; nil means 300 ms. Wait returns the reason why ctx has ended.
	Wait func(ctx context.Context) error
}

// NodeResult counts what a node holds after it was warmed.
type NodeResult struct {
	Objects  int64            `json:"objects"`
	Bytes    int64            `json:"bytes"`
	Pinned   int64            `json:"pinned"`
	Verified map[string]int64 `json:"verified"` // number of objects by what the node compared
}

// pollEvery is the pause between two questions about one object.
const pollEvery = 300 * time.Millisecond

func pollPause(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Node makes a node fetch the files of a plan into its cache, and waits until all are whole. The tree of the plan is
// the node's own upstream bucket. The first object that fails ends the others.
func Node(ctx context.Context, p Plan, o NodeOptions) (NodeResult, error) {
	if o.Objects == 0 {
		o.Objects = 8
	}
	if o.Wait == nil {
		o.Wait = pollPause
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &nodeWork{c: p.From.Client, bucket: p.From.Bucket, o: o, result: NodeResult{Verified: map[string]int64{}}}
	work := make(chan place.Entry)
	var wait sync.WaitGroup
	for range o.Objects {
		wait.Go(func() {
			for e := range work {
				if err := w.one(ctx, e); err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
	for _, e := range p.Entries {
		select {
		case work <- e:
		case <-ctx.Done():
		}
	}
	close(work)
	wait.Wait()
	if ctx.Err() != nil {
		return w.result, errs.Wrap("warm", p.From.String(), context.Cause(ctx))
	}
	return w.result, nil
}

type nodeWork struct {
	c      *s3.Client
	bucket string
	o      NodeOptions

	mu     sync.Mutex
	cached int64
	result NodeResult
}

// one warms one object. The node works on; one asks how far it is.
func (w *nodeWork) one(ctx context.Context, e place.Entry) error {
	for before := int64(0); ; {
		got, err := w.c.Admin().Warm(ctx, w.bucket, e.Name, w.o.Pin)
		if err != nil {
			return err
		}
		w.add(got.Cached - before)
		before = got.Cached
		if got.Whole {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.result.Objects++
			w.result.Bytes += got.Size
			w.result.Verified[got.Verified]++
			if got.Pinned {
				w.result.Pinned++
			}
			return nil
		}
		if err := w.o.Wait(ctx); err != nil {
			return errs.Wrap("warm", s3.URL(w.bucket, e.Name), err)
		}
	}
}

// add counts bytes that came into the cache since the last answer.
func (w *nodeWork) add(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cached += n
	if w.o.Progress != nil {
		w.o.Progress(w.cached)
	}
}
