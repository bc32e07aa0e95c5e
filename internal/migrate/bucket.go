// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"sync"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// pair is one key of both servers.
type pair struct {
	number   int64
	from, to versions.Key
}

// bucket copies one bucket: first the settings that objects need, then the objects, then the other settings.
func (r *run) bucket(ctx context.Context, name string) (BucketReport, error) {
	b := &bucketRun{run: r, out: BucketReport{Name: name, Settings: []string{}, Notes: []Note{}, Failures: []Failure{}},
		done: map[int64]string{}}
	exists, err := b.prepare(ctx)
	if err != nil {
		return b.out, errs.Wrap("migrate", name, err)
	}
	if r.Journal != nil {
		if b.out.After = r.Journal.after(name); b.out.After != "" {
			b.out.Resumed = 1
		}
	}
	if err := b.objects(ctx, exists); err != nil {
		return b.out, errs.Wrap("migrate", name, err)
	}
	if err := b.settings(ctx); err != nil {
		return b.out, errs.Wrap("migrate", name, err)
	}
	if r.Journal != nil && !r.DryRun && b.out.Failed == 0 {
		err = r.Journal.passed(name, "", true)
	}
	return b.out, err
}

// bucketRun copies one bucket.
type bucketRun struct {
	*run
	mu  sync.Mutex
	out BucketReport
	// done has the keys that are finished, by number, from first on. All keys before first are finished.
	done  map[int64]string
	first int64
}

// objects walks the listings of both servers side by side, and gives each key to a worker.
func (b *bucketRun) objects(ctx context.Context, exists bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan pair)
	var group sync.WaitGroup
	for range b.Workers {
		group.Go(func() {
			for p := range work {
				b.one(ctx, p, cancel)
			}
		})
	}
	err := b.walk(ctx, exists, work)
	close(work)
	group.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// walk sends each key of the source, with the versions that the target has of it.
func (b *bucketRun) walk(ctx context.Context, exists bool, work chan<- pair) error {
	from := b.From.Keys(b.out.Name, b.Prefix, b.out.After)
	to := b.To.Keys(b.out.Name, b.Prefix, b.out.After)
	var at versions.Key // of the target
	for number := int64(0); ; number++ {
		k, err := from.Next(ctx)
		if err != nil || k.Name == "" {
			return err
		}
		for exists && (number == 0 && at.Name == "" || at.Name != "" && at.Name < k.Name) {
			if at, err = to.Next(ctx); err != nil {
				return err
			}
			if at.Name == "" {
				break
			}
		}
		p := pair{number: number, from: k, to: versions.Key{Name: k.Name}}
		if at.Name == k.Name {
			p.to = at
		}
		select {
		case work <- p:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// one copies one key. A target that is full or refuses the account ends the whole run.
func (b *bucketRun) one(ctx context.Context, p pair, cancel context.CancelCauseFunc) {
	if ctx.Err() != nil {
		return
	}
	c, err := b.key(ctx, b.out.Name, p.from, p.to, b.note)
	if err != nil && ctx.Err() != nil {
		return // the run ends, and the next one does this key
	}
	if err != nil {
		c.Failed = 1
		if kind := errs.KindOf(err); kind == errs.Permission {
			cancel(err)
			return
		}
	}
	b.told(b.out.Name, c)
	b.mu.Lock()
	b.out.Counts.add(c)
	if err != nil && len(b.out.Failures) < mostNotes {
		b.out.Failures = append(b.out.Failures, Failure{p.from.Name, err.Error()})
	}
	b.done[p.number] = p.from.Name
	after := ""
	for name, ok := b.done[b.first]; ok; name, ok = b.done[b.first] {
		delete(b.done, b.first)
		after = name
		b.first++
	}
	failed := b.out.Failed > 0
	b.mu.Unlock()
	// After a failure, the next run begins before the failed key.
	if after != "" && b.Journal != nil && !b.DryRun && !failed {
		if err := b.Journal.passed(b.out.Name, after, false); err != nil {
			cancel(err)
		}
	}
}

func (b *bucketRun) note(n Note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.out.Notes) < mostNotes {
		b.out.Notes = append(b.out.Notes, n)
	}
}
