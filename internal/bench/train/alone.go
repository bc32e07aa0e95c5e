// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/report"
)

// errEnough ends a phase that has measured long enough.
var errEnough = errors.New("measured long enough")

// apart returns the range of samples that the loader reads alone, and how many of its batches are warm-up. The run
// does not read this range, if the data set has enough samples.
func (r *rig) apart(places int) (s stretch, warm int) {
	used := int64(r.Warmup+r.Steps) * int64(r.Batch)
	s = stretch{batches: r.Alone + places}
	if used+int64(r.Batch) <= r.layout.total {
		s.from = used
		s.batches = int(min(int64(s.batches), (r.layout.total-used)/int64(r.Batch)))
	} else if r.route == report.RouteBuffered && !r.Drop {
		r.note("the data set is not larger than the run: what the loader reads alone is read again by the run and may " +
			"then come from the page cache")
	}
	return s, min(places, s.batches-1)
}

// Rounds of the loader alone. Some come before the run and some after it, so
// that a change of the storage's speed in between widens the spread.
const (
	roundsBefore = 3
	roundsAfter  = 2
)

// loaderAlone measures the loader in n rounds while nothing else happens. Each
// round adds its seconds per batch to t.
func (r *rig) loaderAlone(ctx context.Context, t *record.Train, n int) error {
	places, done, err := r.placesAlone()
	defer done()
	if err != nil {
		return err
	}
	began := r.hooks.now()
	for i := range n {
		if err := r.cool(); err != nil {
			return err
		}
		seconds, err := r.loaderRound(ctx, places, func(k, of int) {
			if r.Progress != nil {
				r.Progress("loader alone", i*of+k, n*of)
			}
		})
		if err != nil {
			return err
		}
		t.IsolatedRounds = append(t.IsolatedRounds, seconds)
		t.Isolated = median(t.IsolatedRounds)
		if r.hooks.now().Sub(began) > aloneTime {
			return nil // slow storage: more rounds would take too long
		}
	}
	return nil
}

// loaderRound returns the seconds that the loader takes for a batch in one round. The first batches, one for each
// slot, are left out, because they fill the pipeline and touch new memory. The run leaves out its first batches too.
func (r *rig) loaderRound(ctx context.Context, places []*place, progress func(done, total int)) (float64, error) {
	s, warm := r.apart(len(places))
	g := newGroup(ctx)
	free, out := make(chan *place, len(places)), make(chan *place, len(places))
	for _, pl := range places {
		free <- pl
	}
	start := r.hooks.now()
	if r.Memory == Loader {
		if err := loadByLoader(r, g, s, free, out); err != nil {
			return 0, err
		}
	} else if r.Memory == Engine && r.Host != nil {
		r.loadByEngine(g, r.Host, s, free, out, nil)
	} else {
		if r.Memory == Engine {
			r.note("the loader was measured alone with %d threads that read, not with the engine: no host device was given",
				r.Workers)
		}
		r.load(g, s, free, out)
	}
	var seconds float64
	g.run(func() error {
		from, left := start, 0
		for k := range s.batches {
			pl, ok := take(g, out)
			if !ok {
				return nil
			}
			if _, ok := take(g, pl.loaded); !ok && g.ctx.Err() != nil {
				return nil
			}
			now := r.hooks.now()
			late := now.Sub(start) > aloneTime/roundsBefore
			progress(k+1, s.batches)
			if k+1 <= warm && (k+1 == warm || late) && left == 0 {
				from, left = now, k+1
				warm = left // late: storage is slow, and one batch has to do
			} else {
				seconds = now.Sub(from).Seconds() / float64(k+1-left)
				if late {
					pl.giveBack()
					return errEnough
				}
			}
			pl.giveBack()
			free <- pl
		}
		return nil
	})
	if err := g.wait(); err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	return seconds, nil
}

// placesAlone returns the slots that the loader fills when it runs alone. done frees them.
func (r *rig) placesAlone() (places []*place, done func(), err error) {
	if r.Memory == Loader {
		for range r.hostPlaces() {
			places = append(places, &place{})
		}
		return places, func() {}, nil
	}
	if r.Memory != Engine || r.Host == nil {
		return r.places[:r.hostPlaces()], func() {}, nil
	}
	done = func() {
		for _, pl := range places {
			_ = pl.dev.Free() // host memory: there is no driver to fail
		}
	}
	for range r.hostPlaces() {
		b, err := r.Host.Alloc(r.slotBytes())
		if err != nil {
			return nil, done, err
		}
		places = append(places, &place{dev: b})
	}
	return places, done, nil
}

// copyGroup is the number of copies that are queued before the host waits. Waiting for each copy would measure the
// wait.
const copyGroup = 4

// copyAlone measures the copy of a batch while nothing else happens, from the
// same kind of memory as in the run. Each group of copies is a round.
func (r *rig) copyAlone(ctx context.Context, t *record.Train) error {
	some := r.places[:r.hostPlaces()]
	m := some[0].copied
	queue := func(n int) error {
		var all []error
		for i := range n {
			pl := some[i%len(some)]
			all = append(all, r.copies.CopyIn(pl.dev.Ptr(), pl.host.Bytes()[:r.slotBytes()]))
		}
		all = append(all, m.Record(), m.Wait())
		return errs.Wrap("copy a batch to", r.Device.Info().ID, errors.Join(all...))
	}
	// Each place's memory is touched before the clock starts.
	if err := queue(len(some)); err != nil {
		return err
	}
	start, done := r.hooks.now(), 0
	for last := start; done < r.Alone; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n := min(copyGroup, r.Alone-done)
		if err := queue(n); err != nil {
			return err
		}
		done += n
		now := r.hooks.now()
		t.CopyRounds = append(t.CopyRounds, now.Sub(last).Seconds()/float64(n))
		last = now
		if r.Progress != nil {
			r.Progress("copy alone", done, r.Alone)
		}
		if now.Sub(start) > aloneTime {
			break
		}
	}
	t.Copy = median(t.CopyRounds)
	return nil
}
