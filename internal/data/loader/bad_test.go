// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/loader"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// TestBadFilesCanBeSkipped removes one file and truncates another.
func TestBadFilesCanBeSkipped(t *testing.T) {
	r := newRig(t, 4, 20, ragged)
	gone, short := first(r.set.File(1)), first(r.set.File(3))
	if err := errors.Join(os.Remove(gone), os.Truncate(short, 10)); err != nil {
		t.Fatal(err)
	}
	l := r.start()
	if _, err := r.drain(l); !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Corrupt) {
		t.Fatalf("without SkipBad: %v", err)
	}
	r.options.SkipBad = true
	l = r.start()
	seen, err := r.drain(l)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	slices.Sort(seen)
	want := make([]int64, 0, 40)
	for i := range int64(20) {
		want = append(want, i)
	}
	for i := range int64(20) {
		want = append(want, 40+i)
	}
	if !slices.Equal(seen, want) {
		t.Errorf("read %v", seen)
	}
	s := l.Stats()
	if s.Skipped != 40 || s.Samples != 40 || len(s.Bad) == 0 {
		t.Errorf("%d samples skipped, %d read, errors %q", s.Skipped, s.Samples, s.Bad)
	}
	if all := strings.Join(s.Bad, " "); !strings.Contains(all, gone) || !strings.Contains(all, short) {
		t.Errorf("the errors do not name %s and %s: %s", gone, short, all)
	}
}

// drain reads and checks all batches, and returns the numbers of the samples and the last error.
func (r *rig) drain(l *loader.Loader) ([]int64, error) {
	var seen []int64
	for {
		b, err := l.Next(r.t.Context())
		if err != nil {
			return seen, err
		}
		seen = append(seen, b.Samples...)
		r.check(b)
	}
}

// TestWholeFilesAreVerified damages one of the files that are samples themselves.
func TestWholeFilesAreVerified(t *testing.T) {
	r := newRig(t, 3, 4, ragged)
	list, sums := dataset.NewLoose([]string{"file"}), map[string]*checksum.Sums{}
	for i := range r.set.Files() {
		name, size := r.set.File(i)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sums[name] = &checksum.Sums{Size: size, Block: 1 << 20, Blocks: []uint64{checksum.Of(b)}}
		if err := list.AddSample(0, len(name), list.AddFile(name, size)); err != nil {
			t.Fatal(err)
		}
	}
	set, err := dataset.NewOfFiles(list)
	if err != nil {
		t.Fatal(err)
	}
	r.options.Set, r.options.Columns, r.options.Split.Batch = set, []int{0}, 3
	r.options.Open = func(_ context.Context, names []string) ([]dataset.Opened, []error) {
		out, fails := make([]dataset.Opened, len(names)), make([]error, len(names))
		for i, name := range names {
			out[i].File, fails[i] = vfs.Open(name)
			out[i].Sums = sums[name]
		}
		return out, fails
	}
	l := r.start()
	b, err := l.Next(t.Context())
	if err != nil || len(b.Samples) != 3 {
		t.Fatalf("%+v, %v", b, err)
	}
	b.Free()
	name := first(set.File(1))
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.start().Next(t.Context()); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), name) {
		t.Errorf("the damaged file: %v", err)
	}
}

// TestALimitOfOpenFilesIsRespected lets the place of the files refuse more than six of them.
func TestALimitOfOpenFilesIsRespected(t *testing.T) {
	r := newRig(t, 12, 8, ragged)
	var opened, most atomic.Int64
	r.options.Split.Batch, r.options.Mixing.Shuffle, r.options.Epochs = 4, order.Stored, 2
	r.options.Open = each(func(name string) (*vfs.File, error) {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		n := opened.Add(1)
		if n > 6 {
			opened.Add(-1)
			return nil, errs.New(errs.Unsupported, "open", name, "six objects are open")
		}
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		late := new(atomic.Int64)
		return vfs.NewRemote(name, int64(len(content)), &counted{remote{content: content, late: late}, &opened}), nil
	})
	seen, err := r.drain(r.start())
	if !errors.Is(err, io.EOF) || len(seen) != 2*96 {
		t.Errorf("%d samples, %v", len(seen), err)
	}
	if n := most.Load(); n != 6 {
		t.Errorf("at most %d files were open, expected 6", n)
	}
}

// TestFilesAreOpenedBeforeTheirTurn lets the first batch's files wait until those of the third are being opened.
func TestFilesAreOpenedBeforeTheirTurn(t *testing.T) {
	r := newRig(t, 12, 8, ragged)
	var opened atomic.Int64
	third := make(chan struct{})
	r.options.Split.Batch, r.options.Mixing.Shuffle, r.options.Epochs, r.options.OpenFiles = 8, order.Stored, 3, 512
	open := each(func(name string) (*vfs.File, error) {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		opened.Add(1)
		late := new(atomic.Int64)
		return vfs.NewRemote(name, int64(len(content)), &counted{remote{content: content, late: late}, &opened}), nil
	})
	var once sync.Once
	r.options.Open = func(ctx context.Context, names []string) ([]dataset.Opened, []error) {
		switch names[0] {
		case first(r.set.File(2)):
			once.Do(func() { close(third) })
		case first(r.set.File(0)):
			<-third
		}
		return open(ctx, names)
	}
	l := r.start()
	seen, err := r.drain(l)
	if !errors.Is(err, io.EOF) || len(seen) != 3*96 {
		t.Errorf("%d samples, %v", len(seen), err)
	}
	if n := opened.Load(); n != 12 {
		t.Errorf("%d files are open, expected each of 12 once", n)
	}
	if err := l.Close(); err != nil || opened.Load() != 0 {
		t.Errorf("after Close %d files are open: %v", opened.Load(), err)
	}
}

// counted counts itself as closed.
type counted struct {
	remote
	opened *atomic.Int64
}

func (c *counted) Close() error {
	c.opened.Add(-1)
	return c.remote.Close()
}
