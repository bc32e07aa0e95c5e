// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/loader"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// rig is a data set in files with two columns, and an engine.
type rig struct {
	t        testing.TB
	set      *dataset.Set
	contents [][]byte
	options  loader.Options
}

// newRig writes files with samples of the given sizes.
func newRig(t testing.TB, files, samples int, size func(*rand.Rand) int64) *rig {
	t.Helper()
	rng, dir := rand.New(rand.NewPCG(9, 9)), t.TempDir()
	r := &rig{t: t}
	var tables []*sample.Table
	for f := range files {
		var content []byte
		var parts []sample.Extent
		for range 2 * samples {
			n := size(rng)
			parts = append(parts, sample.Extent{Offset: int64(len(content)), Size: n})
			for range n {
				content = append(content, byte(rng.Uint32()))
			}
			content = append(content, make([]byte, rng.IntN(5))...)
		}
		name := filepath.Join(dir, fmt.Sprint(f))
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		table := sample.NewTable(name, int64(len(content)), []string{"x", "y"}, samples)
		for i := range samples {
			if err := table.Add("", parts[2*i], parts[2*i+1]); err != nil {
				t.Fatal(err)
			}
		}
		r.contents, tables = append(r.contents, content), append(tables, table)
	}
	var err error
	if r.set, err = dataset.New(tables); err != nil {
		t.Fatal(err)
	}
	e, err := transfer.New(transfer.Options{PoolSize: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	r.options = loader.Options{Set: r.set, Open: each(vfs.Open), Engine: e, Device: host.New(), Columns: []int{0, 1},
		Mixing: order.Mixing{Shuffle: order.Full}, Split: order.Split{Batch: 8, Tail: order.Short}, Epochs: 1,
		Route: "auto", Cache: "auto"}
	return r
}

// each opens files one after the other.
func each(open func(name string) (*vfs.File, error)) func(context.Context, []string) ([]dataset.Opened, []error) {
	return func(_ context.Context, names []string) ([]dataset.Opened, []error) {
		out, fails := make([]dataset.Opened, len(names)), make([]error, len(names))
		for i, name := range names {
			out[i].File, fails[i] = open(name)
		}
		return out, fails
	}
}

func ragged(rng *rand.Rand) int64 { return rng.Int64N(3) * rng.Int64N(5000) }

// start starts a loader that is closed with the test.
func (r *rig) start() *loader.Loader {
	r.t.Helper()
	l, err := loader.New(r.options)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return l
}

// first returns the name of a file.
func first(name string, _ int64) string { return name }

// check compares every byte of a batch, and frees the batch.
func (r *rig) check(b *loader.Batch) {
	r.t.Helper()
	for c, column := range b.Columns {
		start := int64(0)
		for i, n := range b.Samples {
			file, e, _ := r.set.Part(n, r.options.Columns[c])
			want := r.contents[file][e.Offset : e.Offset+e.Size]
			var got []byte
			if column.Memory != nil {
				got = r.options.Device.(*host.InPlace).Map(column.Memory.Ptr(), column.Size)[start:column.Ends[i]]
			}
			if !bytes.Equal(got, want) {
				r.t.Fatalf("sample %d, column %d: %d bytes differ from the %d of the file", n, c, len(got), len(want))
			}
			start = column.Ends[i]
		}
	}
	b.Free()
}

// TestEpochsAreDelivered reads two epochs of ragged samples through few open files, and checks every byte.
func TestEpochsAreDelivered(t *testing.T) {
	r := newRig(t, 5, 41, ragged)
	r.options.Epochs, r.options.OpenFiles, r.options.Ahead = 2, 2, 1<<20
	l := r.start()
	seen := map[int64]map[int64]int{0: {}, 1: {}}
	lasts := 0
	for {
		b, err := l.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range b.Samples {
			seen[b.Epoch][n]++
		}
		if b.Last {
			lasts++
		}
		r.check(b)
	}
	for epoch, samples := range seen {
		if int64(len(samples)) != r.set.Len() {
			t.Errorf("epoch %d has %d samples, expected %d", epoch, len(samples), r.set.Len())
		}
		for n, times := range samples {
			if times != 1 {
				t.Errorf("epoch %d: sample %d came %d times", epoch, n, times)
			}
		}
	}
	s := l.Stats()
	total := int64(0)
	for _, n := range s.Routes {
		total += n
	}
	if lasts != 2 || s.Samples != 2*r.set.Len() || s.Bytes != total || s.Batches != 2*((r.set.Len()+7)/8) {
		t.Errorf("%d ends of epochs, %+v", lasts, s)
	}
	if _, err := l.Next(t.Context()); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// TestALoaderGoesOnAfterEachBatch compares the rest of an epoch after each state with the first run.
func TestALoaderGoesOnAfterEachBatch(t *testing.T) {
	r := newRig(t, 2, 30, ragged)
	all := r.all(t)
	for i, b := range all {
		r.options.State, r.options.Epochs = b.State, 1
		if b.Last {
			continue // the next epoch has another order
		}
		rest := r.all(t)
		if len(rest) != len(all)-i-1 {
			t.Fatalf("%d batches after batch %d of %d", len(rest), i, len(all))
		}
		for j := range rest {
			if fmt.Sprint(rest[j].Samples) != fmt.Sprint(all[i+1+j].Samples) {
				t.Fatalf("after batch %d: %v, expected %v", i, rest[j].Samples, all[i+1+j].Samples)
			}
		}
	}
}

// all reads all batches of a new loader.
func (r *rig) all(t *testing.T) []*loader.Batch {
	t.Helper()
	l := r.start()
	var out []*loader.Batch
	for {
		b, err := l.Next(t.Context())
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		r.check(b)
		out = append(out, b)
	}
}

// TestBatchesThatAreKept takes all batches without freeing one: the loader does not wait for their memory.
func TestBatchesThatAreKept(t *testing.T) {
	r := newRig(t, 2, 40, func(*rand.Rand) int64 { return 4096 })
	r.options.Ahead = 64 << 10
	l := r.start()
	var kept []*loader.Batch
	for {
		b, err := l.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, same := (&dataset.Batch{Ends: b.Columns[0].Ends}).Same(); !same {
			t.Errorf("samples of one size end at %v", b.Columns[0].Ends)
		}
		kept = append(kept, b)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, b := range kept {
		r.check(b)
	}
}

// TestLoadersThatFail looks at the errors for files that are not as their tables say.
func TestLoadersThatFail(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(path string) error
		kind  errs.Kind
		says  string
	}{
		{"missing", os.Remove, errs.NotFound, "no such file"},
		{"truncated", func(p string) error { return os.Truncate(p, 10) }, errs.Corrupt,
			"the file has 10 bytes, and its index is of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 3, 20, ragged)
			if err := c.spoil(first(r.set.File(1))); err != nil {
				t.Fatal(err)
			}
			l := r.start()
			var err error
			for err == nil {
				var b *loader.Batch
				if b, err = l.Next(t.Context()); err == nil {
					r.check(b)
				}
			}
			if errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, expected %q", err, c.says)
			}
			if _, again := l.Next(t.Context()); again == nil || again.Error() != err.Error() {
				t.Errorf("the second time: %v", again)
			}
		})
	}
}

// TestAWaitCanEnd ends the context of Next while the file of the first batch is being opened.
func TestAWaitCanEnd(t *testing.T) {
	r := newRig(t, 1, 20, ragged)
	open, begun, goOn := r.options.Open, make(chan struct{}), make(chan struct{})
	r.options.Open = func(ctx context.Context, names []string) ([]dataset.Opened, []error) {
		close(begun)
		<-goOn
		return open(ctx, names)
	}
	l := r.start()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(goOn)
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.check(b)
}

// TestClosedInTheMiddle closes loaders after a few batches, with reads in flight.
func TestClosedInTheMiddle(t *testing.T) {
	r := newRig(t, 3, 60, func(*rand.Rand) int64 { return 3000 })
	r.options.Epochs = 0
	for n := range 8 {
		l := r.start()
		for range n {
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r.check(b)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Next(t.Context()); !errs.Is(err, errs.Closed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	r := newRig(t, 1, 5, ragged)
	for says, change := range map[string]func(*loader.Options){
		"a data set, a way":             func(o *loader.Options) { o.Engine = nil },
		`no column is chosen; the sa`:   func(o *loader.Options) { o.Columns = nil },
		"column 2, expected 0 to 1":     func(o *loader.Options) { o.Columns = []int{2} },
		"-1 bytes ahead, expected":      func(o *loader.Options) { o.Ahead = -1 },
		"-1 open files, expected":       func(o *loader.Options) { o.OpenFiles = -1 },
		"-1 epochs, expected":           func(o *loader.Options) { o.Epochs = -1 },
		"batch 0, expected 1 to":        func(o *loader.Options) { o.Split.Batch = 0 },
		"position 6 of an epoch of 5":   func(o *loader.Options) { o.State.Position = 6 },
		"the 5 samples do not fill one": func(o *loader.Options) { o.Split = order.Split{Batch: 3, World: 2} },
		"of 1 ranks with 3 workers":     func(o *loader.Options) { o.Split = order.Split{Batch: 2, Workers: 3, Worker: 2} },
	} {
		o := r.options
		change(&o)
		if _, err := loader.New(o); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, expected %q", err, says)
		}
	}
}

// TestTooLargeBatchesAreRefused asks for batches that do not fit into the memory that is allowed.
func TestTooLargeBatchesAreRefused(t *testing.T) {
	r := newRig(t, 1, 20, func(*rand.Rand) int64 { return 1000 })
	r.options.Ahead = 9999
	_, err := r.start().Next(t.Context())
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "a batch can have") {
		t.Errorf("%v", err)
	}
}

// BenchmarkLoader reads random samples of 64 KiB from the page cache, 256 in a batch.
func BenchmarkLoader(b *testing.B) {
	r := newRig(b, 4, 512, func(*rand.Rand) int64 { return 64 << 10 })
	r.options.Columns, r.options.Split, r.options.Epochs = []int{0}, order.Split{Batch: 256}, 0
	l := r.start()
	b.SetBytes(256 * 64 << 10)
	for b.Loop() {
		batch, err := l.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		batch.Free()
	}
	b.Logf("%+v", l.Stats())
}
