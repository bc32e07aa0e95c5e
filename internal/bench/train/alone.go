// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// errEnough ends a phase that has measured long enough.
var errEnough = errors.New("measured long enough")

// apart is the stretch that the loader reads alone: where the run will not
// come, if the data set has so many samples.
func (r *rig) apart() stretch {
	used := int64(r.Warmup+r.Steps) * int64(r.Batch)
	s := stretch{batches: r.Alone}
	if used+int64(r.Batch) <= r.layout.total {
		s.from = used
		s.batches = int(min(int64(s.batches), (r.layout.total-used)/int64(r.Batch)))
	} else if r.route == transfer.RouteBuffered && !r.Drop {
		r.note("the data set is not larger than the run: what the loader reads alone is read again by the run and may then come from the page cache")
	}
	return s
}

// loaderAlone is the seconds that the loader takes for a batch when nothing
// else happens.
func (r *rig) loaderAlone(ctx context.Context) (float64, error) {
	if err := r.cool(); err != nil {
		return 0, err
	}
	s := r.apart()
	g := newGroup(ctx)
	places, done, err := r.placesAlone()
	defer done()
	if err != nil {
		return 0, err
	}
	free, out := make(chan *place, len(places)), make(chan *place, len(places))
	for _, pl := range places {
		free <- pl
	}
	start := r.hooks.now()
	if r.Memory == Engine && r.Host != nil {
		r.loadByEngine(g, r.Host, s, free, out, nil)
	} else {
		if r.Memory == Engine {
			r.note("the loader was measured alone with %d threads that read, not with the engine: no host device was given", r.Workers)
		}
		r.load(g, s, free, out)
	}
	var seconds float64
	g.run(func() error {
		for k := range s.batches {
			pl, ok := take(g, out)
			if !ok {
				return nil
			}
			if _, ok := take(g, pl.loaded); !ok && g.ctx.Err() != nil {
				return nil
			}
			spent := r.hooks.now().Sub(start)
			seconds = spent.Seconds() / float64(k+1)
			if r.Progress != nil {
				r.Progress("loader alone", k+1, s.batches)
			}
			if spent > aloneTime {
				return errEnough
			}
			free <- pl
		}
		return nil
	})
	if err := g.wait(); err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	return seconds, nil
}

// placesAlone is where the loader puts its batches when it runs alone; done
// gives back what was taken for that.
func (r *rig) placesAlone() (places []*place, done func(), err error) {
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

// copyGroup is how many copies are queued before the host waits: waiting for
// each would measure the wait.
const copyGroup = 4

// copyAlone is the seconds that the copy of a batch takes when nothing else
// happens, from the same kind of memory as in the run.
func (r *rig) copyAlone(ctx context.Context) (float64, error) {
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
	if err := queue(1); err != nil { // the first one is not like the others
		return 0, err
	}
	start, done := r.hooks.now(), 0
	for done < r.Alone {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		n := min(copyGroup, r.Alone-done)
		if err := queue(n); err != nil {
			return 0, err
		}
		done += n
		if r.Progress != nil {
			r.Progress("copy alone", done, r.Alone)
		}
		if r.hooks.now().Sub(start) > aloneTime {
			break
		}
	}
	return r.hooks.now().Sub(start).Seconds() / float64(done), nil
}
