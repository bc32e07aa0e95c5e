// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// reading is the number of indexes that are read at the same time. Over a network, waiting is most of the work.
const reading = 16

// read reads the indexes of all packed files and makes the data set.
func (w *work) read(ctx context.Context) error {
	var err error
	if len(w.parts) == 0 {
		if w.data.Set, err = w.looseSet(ctx); err != nil {
			return w.nothing(err)
		}
		return nil
	}
	for _, p := range w.parts {
		w.total += p.file.Size
	}
	tables, columns, fails := w.tables(ctx)
	if err := w.firstOf(ctx, fails); err != nil {
		return err
	}
	good := tables[:0]
	for i, p := range w.parts {
		t := tables[i]
		if fails[i] != nil {
			lost := p.samples
			if t != nil {
				lost = max(lost-int64(t.Len()), 0)
			}
			if err := w.bad(p.file.Name, lost, fails[i]); err != nil {
				return err
			}
		}
		if t == nil {
			continue
		}
		if t, err = w.limited(t); err != nil {
			return err
		}
		good = append(good, t)
		for _, c := range columns[i] {
			w.column(c)
		}
	}
	if w.data.Set, err = dataset.New(good); err != nil {
		return w.nothing(err)
	}
	for _, c := range w.data.Set.Columns() {
		if _, told := w.known[c]; !told {
			w.column(Column{Name: c})
		}
	}
	return nil
}

// nothing returns the error about data without samples. If bad ones were left out, the error is that of the first.
func (w *work) nothing(err error) error {
	if len(w.data.Bad) == 0 && w.o.Block > 0 && errs.Is(err, errs.Invalid) {
		return errs.New(errs.Invalid, "open data set", w.parts[0].file.Name, fmt.Sprintf(
			"its tokens do not fill a block of %d tokens", w.o.Block)).WithFix("use smaller blocks")
	}
	if len(w.data.Bad) == 0 || !errs.Is(err, errs.Invalid) {
		return err
	}
	first := w.data.Bad[0]
	return errs.New(errs.KindOf(first.Why), "open data set", first.Name, fmt.Sprintf(
		"no sample is left: %d files or samples are bad, this one because: %s", w.data.BadAll, errs.MessageOf(first.Why))).
		WithFix(errs.FixOf(first.Why))
}

// tables reads the indexes in parallel. The first error ends the work, unless bad files are skipped.
func (w *work) tables(ctx context.Context) ([]*sample.Table, [][]Column, []error) {
	tables, columns := make([]*sample.Table, len(w.parts)), make([][]Column, len(w.parts))
	fails := make([]error, len(w.parts))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	inParallel(len(w.parts), max(reading, runtime.GOMAXPROCS(0)), func(i int) {
		if fails[i] = ctx.Err(); fails[i] != nil {
			return
		}
		tables[i], columns[i], fails[i] = w.parts[i].table(ctx)
		if fails[i] == nil && w.o.Verify {
			inside := w.data.Format == TFRecord
			if known := w.parts[i].known(); known != nil {
				inside, fails[i] = true, w.verifyHashes(ctx, w.parts[i].file.Name, known)
			}
			if fails[i] == nil {
				fails[i] = w.verify(ctx, w.parts[i].file.Name, inside)
			}
			if fails[i] != nil {
				tables[i] = nil
			}
		}
		if fails[i] != nil && !w.o.SkipBad {
			tables[i] = nil
			stop()
		}
	})
	return tables, columns, fails
}

// firstOf returns the first error that ends the work, and no error of work that was ended by another.
func (w *work) firstOf(ctx context.Context, fails []error) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap("open data set", w.parts[0].file.Name, err)
	}
	if w.o.SkipBad {
		return nil
	}
	for _, err := range fails {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// limited returns a table without the samples that are above the limit, or an error about the first of them.
func (w *work) limited(t *sample.Table) (*sample.Table, error) {
	if w.o.MaxSample == 0 {
		return t, nil
	}
	drop := map[int]bool{}
	for i := range t.Len() {
		for c, column := range t.Columns() {
			e, _ := t.Part(i, c)
			if e.Size <= w.o.MaxSample {
				continue
			}
			name := fmt.Sprintf("sample %d of %s, part %q", i, t.File(), column)
			if key := t.Key(i); key != "" {
				name = fmt.Sprintf("sample %d (%.200q) of %s, part %q", i, key, t.File(), column)
			}
			if err := w.bad(name, 1, tooLarge(name, e.Size, w.o.MaxSample)); err != nil {
				return nil, err
			}
			drop[i] = true
			break
		}
	}
	if len(drop) == 0 {
		return t, nil
	}
	return t.Without(drop), nil
}

// verify compares a file with the checksums beside it, and counts the file. A file without checksums passes, and is
// counted if it has checksums inside.
func (w *work) verify(ctx context.Context, name string, inside bool) error {
	text, err := w.readAll(ctx, checksum.Path(name), maxIndex)
	if errs.Is(err, errs.NotFound) {
		if inside {
			w.verified()
		}
		return nil
	}
	if err != nil {
		return err
	}
	sums, err := checksum.Parse(checksum.Path(name), text)
	if err != nil {
		return err
	}
	err = w.with(ctx, name, func(r io.ReaderAt, size int64) error {
		if err := sums.CheckSize(name, size); err != nil {
			return err
		}
		b := make([]byte, min(sums.Block, size))
		for i, want := range sums.Blocks {
			if err := ctx.Err(); err != nil {
				return errs.Wrap("verify", name, err)
			}
			off, n := sums.Extent(int64(i))
			if err := sample.ReadFull(r, b[:n], off, "verify", name); err != nil {
				return err
			}
			if !inside { // else the bytes were counted already
				w.advance(n)
			}
			if got := checksum.Of(b[:n]); got != want {
				return errs.New(errs.Corrupt, "verify", name, fmt.Sprintf(
					"bytes %d to %d have the checksum %016x, expected %016x", off, off+n, got, want)).
					WithFix("copy the file again, or pack it again")
			}
		}
		return nil
	})
	if err == nil {
		w.verified()
	}
	return err
}

// known returns the hashes of a file whose algorithms we know, or nil.
func (p part) known() map[string]string {
	var out map[string]string
	for algorithm, hash := range p.hashes {
		if mds.NewHash(algorithm) != nil {
			if out == nil {
				out = map[string]string{}
			}
			out[algorithm] = hash
		}
	}
	return out
}

// verifyHashes compares a file with the hashes of an index.
func (w *work) verifyHashes(ctx context.Context, name string, want map[string]string) error {
	return w.with(ctx, name, func(r io.ReaderAt, size int64) error {
		r = &tracked{r: r, move: w.advance, end: size}
		for _, algorithm := range slices.Sorted(maps.Keys(want)) {
			h := mds.NewHash(algorithm)
			if _, err := io.Copy(h, io.NewSectionReader(r, 0, size)); err != nil {
				return errs.Wrap("verify", name, err)
			}
			if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want[algorithm]) {
				return errs.New(errs.Corrupt, "verify", name,
					fmt.Sprintf("its %s is %s, expected %.200s as the index says", algorithm,
						got, want[algorithm])).WithFix("copy the file again, or pack it again")
			}
		}
		return nil
	})
}

// advance counts bytes that were scanned or verified.
func (w *work) advance(n int64) {
	if w.o.Progress == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += n
	w.o.Progress(w.done, w.total)
}

// verified counts a file that was compared with its checksums.
func (w *work) verified() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data.Verified++
}
