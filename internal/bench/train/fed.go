// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/loader"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// loadByLoader hands places out when the loader of training data has their batches on the device. The loader ends with
// the group.
func loadByLoader(r *rig, g *group, s stretch, free <-chan *place, out chan<- *place) error {
	set, err := samplesOf(r)
	if err != nil {
		return err
	}
	mixing := order.Mixing{Shuffle: order.Stored}
	if r.Pattern == Random {
		mixing.Shuffle = order.Full
	}
	total := r.layout.total
	state := order.State{Seed: r.Seed, Epoch: s.from / total, Position: s.from % total}
	l, err := loader.New(loader.Options{Set: set, Open: openAll, Engine: r.Engine, Device: r.Device, Columns: []int{0},
		Mixing: mixing, Split: order.Split{Batch: int64(r.Batch)}, State: state, Route: r.route, Cache: report.CacheAuto})
	if err != nil {
		return err
	}
	g.run(func() (err error) {
		defer func() {
			stats := l.Stats()
			for route, bytes := range stats.Routes {
				r.took.add(route, bytes)
			}
			if failed := l.Close(); err == nil {
				err = failed
			}
		}()
		for k := range s.batches {
			pl, err := nextPlace(r, g, s, k, free)
			if pl == nil {
				return err
			}
			b, err := l.Next(g.ctx)
			if err != nil {
				if g.ctx.Err() != nil {
					return nil
				}
				return err
			}
			pl.fed, pl.readyAt = b, r.hooks.now()
			close(pl.loaded)
			close(pl.ready)
			if !give(g, out, pl) {
				pl.giveBack()
				return nil
			}
		}
		return nil
	})
	return nil
}

// samplesOf returns the samples of all files as a data set.
func samplesOf(r *rig) (*dataset.Set, error) {
	var tables []*sample.Table
	for i, f := range r.Files {
		end := r.layout.total
		if i+1 < len(r.Files) {
			end = r.layout.first[i+1]
		}
		t := sample.NewTable(f.Path(), f.Size(), []string{"sample"}, int(end-r.layout.first[i]))
		for n := r.layout.first[i]; n < end; n++ {
			_, off := r.layout.at(n)
			if err := t.Add("", sample.Extent{Offset: off, Size: r.SampleBytes}); err != nil {
				return nil, err
			}
		}
		tables = append(tables, t)
	}
	return dataset.New(tables)
}

// openAll opens the files again: the loader owns the files that it reads.
func openAll(_ context.Context, names []string) ([]dataset.Opened, []error) {
	out, fails := make([]dataset.Opened, len(names)), make([]error, len(names))
	for i, name := range names {
		out[i].File, fails[i] = vfs.Open(name)
	}
	return out, fails
}
