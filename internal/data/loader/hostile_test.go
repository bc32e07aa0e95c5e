// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// emptySamples returns the options of a loader over 16 samples without bytes: two batches, which need no file.
func emptySamples(t *testing.T) Options {
	t.Helper()
	table := sample.NewTable("empty", 0, []string{"x"}, 16)
	for range 16 {
		if err := table.Add("", sample.Extent{}); err != nil {
			t.Fatal(err)
		}
	}
	set, err := dataset.New([]*sample.Table{table})
	if err != nil {
		t.Fatal(err)
	}
	open := func(context.Context, []string) ([]dataset.Opened, []error) { panic("no file is needed") }
	return Options{Set: set, Open: open, Engine: &transfer.Engine{}, Device: host.New(), Columns: []int{0},
		Mixing: order.Mixing{Shuffle: order.Full}, Split: order.Split{Batch: 8}, Epochs: 1}
}

// TestCloseIsNotTheEndOfTheData closes a loader that has started its last batch, and whose caller took only some.
func TestCloseIsNotTheEndOfTheData(t *testing.T) {
	for taken := range 3 {
		l, err := New(emptySamples(t))
		if err != nil {
			t.Fatal(err)
		}
		<-l.ended
		for range taken {
			if _, err := l.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = l.Next(t.Context())
		if taken < 2 && !errs.Is(err, errs.Closed) || taken == 2 && err != io.EOF {
			t.Errorf("after %d of 2 batches and Close: %v", taken, err)
		}
	}
}

// TestTheMostEpochs goes on in epoch 1 with the largest number of epochs.
func TestTheMostEpochs(t *testing.T) {
	o := emptySamples(t)
	o.State.Epoch, o.Epochs = 1, math.MaxInt64
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := l.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWaitsThatEndAreCounted waits for a batch with a context that ends, and then again. Its time is not the real one:
// a busy machine may begin to wait when the context has nearly ended.
func TestWaitsThatEndAreCounted(t *testing.T) { synctest.Test(t, waitsThatEndAreCounted) }

func waitsThatEndAreCounted(t *testing.T) {
	l := &Loader{tuner: newTuner(), since: time.Now().Add(-time.Second)}
	l.change.L = &l.mu
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	l.ready = []*Batch{{}}
	l.files = &files{}
	if _, err := l.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Wait != time.Millisecond || s.Away != time.Second {
		t.Errorf("%v of waiting and %v of other things", s.Wait, s.Away)
	}
}

// TestStatesOfWorkers has three batches for two workers. After one batch of each, no state may leave out the third.
func TestStatesOfWorkers(t *testing.T) {
	o := emptySamples(t)
	o.Split = order.Split{Batch: 5, Workers: 2}
	for o.Split.Worker = range 2 {
		l, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := (order.State{Position: 10}); b.State != want || b.Last != (o.Split.Worker == 1) {
			t.Errorf("worker %d: %+v, last is %v", o.Split.Worker, b.State, b.Last)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
