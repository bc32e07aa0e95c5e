// SPDX-License-Identifier: Apache-2.0

package open

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// IndexOptions says which indexes MakeIndexes makes. Write is required, unless Check is set.
type IndexOptions struct {
	// DALI makes the text index of DALI: STEM.idx beside STEM.tar or STEM.tfrecord. Otherwise the index is FILE.tar.nbx.
	DALI bool
	// Check writes nothing. Every file is scanned, and its index must be exactly the one that would be made.
	Check bool
	// Force makes an index even if there is one that belongs to the file.
	Force bool
	// Write stores a file, so that readers see the old content or the new one. MakeIndexes calls Write from several
	// goroutines.
	Write func(ctx context.Context, name string, content []byte) error
	// Progress, if not nil, is called with the bytes of the files up to which they were scanned, and with the bytes of
	// all files. Calls do not overlap.
	Progress func(done, total int64)
}

// IndexState says what became of the index of a file.
type IndexState string

// The states of an index.
const (
	IndexMade    IndexState = "made"    // it was written
	IndexPresent IndexState = "present" // it belongs to the file, and was left as it is
	IndexMissing IndexState = "missing" // there is none, and Check makes none
	IndexWrong   IndexState = "wrong"   // Check found that it does not belong to the file, or is damaged
	IndexFailed  IndexState = "failed"  // the file cannot be read, or the index cannot be written
)

// Index is the index of one file.
type Index struct {
	File    string
	Size    int64  // of the file in bytes
	Name    string // of the index
	Bytes   int64  // of the index
	Samples int64
	Skipped wds.Skipped // members of an archive that belong to no sample
	State   IndexState
	Why     error // of the states missing, wrong and failed
}

// MakeIndexes makes or checks the indexes of archives, and with DALI also of TFRecord files. The sources are those of
// Open. A file that cannot be indexed does not stop the others: the result has one entry for each file, in order. The
// error is about the sources themselves, or of kind Cancelled.
func MakeIndexes(ctx context.Context, place Place, sources []string, o IndexOptions) ([]Index, error) {
	w := &work{place: place, o: Options{Format: Auto, Progress: o.Progress}, data: &Data{Format: Auto}}
	for _, source := range sources {
		if err := (finder{w}).find(ctx, source, false); err != nil {
			return nil, err
		}
	}
	f := w.data.Format
	if f != Tar && (f != TFRecord || !o.DALI) {
		e := errs.New(errs.Unsupported, "make index", strings.Join(sources, " "), fmt.Sprintf(
			"the format is %s, expected archives (*.tar)", f))
		if f == TFRecord {
			return nil, e.WithFix("use --dali, which makes DALI's index of TFRecord files")
		}
		return nil, e.WithFix("name the archives; other formats have an index of their own, or need none")
	}
	m := &indexer{work: w, o: o, format: f, out: make([]Index, len(w.parts))}
	for _, p := range w.parts {
		w.total += p.file.Size
	}
	inParallel(len(w.parts), max(reading, runtime.GOMAXPROCS(0)), func(i int) {
		x := &m.out[i]
		x.File, x.Name = w.parts[i].file.Name, m.name(w.parts[i].file.Name)
		if x.Why = m.one(ctx, x); x.Why != nil && x.State == "" {
			x.State = IndexFailed
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap("make index", sources[0], context.Cause(ctx))
	}
	return m.out, nil
}

// indexer makes indexes.
type indexer struct {
	*work
	o      IndexOptions
	format Format
	out    []Index
}

// name returns the name of a file's index.
func (m *indexer) name(file string) string {
	if !m.o.DALI {
		return file + wds.Suffix
	}
	switch path.Ext(file) {
	case ".tar", ".tfrecord", ".tfrecords", ".tfrec":
		return strings.TrimSuffix(file, path.Ext(file)) + ".idx"
	}
	return file + ".idx"
}

// one makes or checks the index of one file.
func (m *indexer) one(ctx context.Context, x *Index) error {
	return m.with(ctx, x.File, func(r io.ReaderAt, size int64) error {
		x.Size = size
		there, err := m.readAll(ctx, x.Name, maxIndex)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		exists := err == nil
		if exists && m.o.DALI && !m.isDALI(there) && !m.o.Force {
			return errs.New(errs.Invalid, "make index", x.Name, fmt.Sprintf("is no index of DALI, it begins with %.12q", there)).
				WithFix("remove the file if nobody needs it, or use --force")
		}
		if exists && !m.o.Check && !m.o.Force {
			if n, ok := m.belongs(r, size, x, there); ok {
				x.State, x.Samples, x.Bytes = IndexPresent, n, int64(len(there))
				m.advance(size)
				return nil
			}
		}
		content, err := m.build(&tracked{r: r, move: m.advance, end: size}, size, x)
		if err != nil {
			return err
		}
		x.Bytes = int64(len(content))
		switch {
		case !m.o.Check:
			x.State = IndexMade
			if err := m.o.Write(ctx, x.Name, content); err != nil {
				x.State = IndexFailed
				return err
			}
		case !exists:
			x.State = IndexMissing
			return errs.New(errs.NotFound, "check index", x.Name, "there is no index").
				WithFix("make the index with nebulaio index")
		case !bytes.Equal(content, there):
			x.State = IndexWrong
			return errs.New(errs.Corrupt, "check index", x.Name, fmt.Sprintf(
				"the index with %d bytes is not the index of %s, which has %d bytes", len(there), x.File, len(content))).
				WithFix("make the index again with nebulaio index --force")
		default:
			x.State = IndexPresent
		}
		return nil
	})
}

// isDALI reports whether a file looks like the text index of DALI that would take its name.
func (m *indexer) isDALI(text []byte) bool {
	if m.format == Tar {
		return bytes.HasPrefix(text, []byte("v1."))
	}
	return len(text) == 0 || text[0] >= '0' && text[0] <= '9'
}

// belongs reports whether an index belongs to a file, by a quick look, and returns its number of samples.
func (m *indexer) belongs(r io.ReaderAt, size int64, x *Index, there []byte) (int64, bool) {
	var t *sample.Table
	var err error
	switch {
	case m.format == TFRecord:
		var s *tfrecord.Shard
		if s, err = tfrecord.OpenIndex(bytes.NewReader(there), int64(len(there)), x.Name, r, size, x.File); err != nil {
			return 0, false
		}
		t = s.Table
		ends := int64(0)
		if n := t.Len(); n > 0 {
			e, _ := t.Part(n-1, 0)
			ends = e.Offset + e.Size + 4
			err = s.Check(n - 1)
		}
		return int64(t.Len()), err == nil && ends == size
	case m.o.DALI:
		if t, err = wds.ReadDALI(there, x.Name, x.File, size); err == nil {
			err = wds.CheckDALI(r, x.Name, t)
		}
	default:
		var s *wds.Shard
		if s, err = wds.ReadIndex(bytes.NewReader(there), int64(len(there)), x.Name); err == nil {
			t, x.Skipped, err = s.Table, s.Skipped, s.Check(r, size)
		}
	}
	if err != nil {
		x.Skipped = wds.Skipped{}
		return 0, false
	}
	return int64(t.Len()), true
}

// build scans a file and returns its index.
func (m *indexer) build(r io.ReaderAt, size int64, x *Index) ([]byte, error) {
	var out bytes.Buffer
	if m.format == TFRecord {
		s, err := tfrecord.Open(r, size, x.File, tfrecord.Options{})
		if err != nil {
			return nil, err
		}
		if x.Samples = int64(s.Table.Len()); x.Samples == 0 {
			return nil, errs.New(errs.Invalid, "make index", x.File, "the file has no records, and DALI needs one")
		}
		err = tfrecord.WriteIndex(&out, x.Name, s.Table)
		return out.Bytes(), err
	}
	s, err := wds.Open(r, size, x.File)
	if err != nil {
		return nil, err
	}
	x.Samples, x.Skipped = int64(s.Table.Len()), s.Skipped
	if m.o.DALI {
		err = wds.WriteDALI(&out, s.Table)
	} else {
		err = wds.WriteIndex(&out, s)
	}
	return out.Bytes(), err
}

// tracked tells how far a file has been scanned.
type tracked struct {
	r       io.ReaderAt
	at, end int64
	move    func(n int64)
}

// ReadAt reads from the file.
func (t *tracked) ReadAt(p []byte, off int64) (int, error) {
	n, err := t.r.ReadAt(p, off)
	if to := min(off+int64(n), t.end); to > t.at {
		t.move(to - t.at)
		t.at = to
	}
	return n, err
}
