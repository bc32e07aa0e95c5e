// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// window is a group of open files that one transfer reads.
type window struct {
	parts []part
	files []*vfs.File
	sums  []*checksum.Sums // nil if the request does not verify
}

// slicesOf yields all in slices of at most n elements.
func slicesOf[T any](all []T, n int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			k := min(n, len(all))
			if !yield(all[:k:k]) {
				return
			}
			all = all[k:]
		}
	}
}

// open opens the files of some parts and checks that the segments are inside them.
func (j *Job) open(ctx context.Context, parts []part) (w *window, err error) {
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].name
	}
	opened, fails := j.req.Opener.Open(ctx, names, j.req.Verify)
	w = &window{parts: parts}
	for i := range parts {
		if opened[i].File == nil {
			continue
		}
		w.files = append(w.files, opened[i].File)
		if j.req.Verify {
			w.sums = append(w.sums, opened[i].Sums)
		}
	}
	for _, fail := range fails {
		if fail != nil {
			w.close()
			return nil, fail // it names its file
		}
	}
	for i := range parts {
		if err := parts[i].within(w.files[i].Size()); err != nil {
			w.close()
			return nil, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.opening == 0 {
		j.opening = time.Since(j.began)
	}
	return w, nil
}

// within returns an error if a segment ends behind the end of a file of size bytes.
func (p *part) within(size int64) error {
	for k := range p.segs {
		if s := &p.segs[k]; s.Len > size-s.Off {
			return errs.New(errs.Invalid, "gather", s.name(p.at[k])+" of "+p.name,
				fmt.Sprintf("has %d bytes at offset %d; the file has %d bytes", s.Len, s.Off, size)).
				WithFix("the file is shorter than its description: get a whole copy of it")
		}
	}
	return nil
}

// read moves the bytes of a window and closes its files.
func (j *Job) read(ctx context.Context, w *window) error {
	r := &j.req
	req := transfer.Request{Device: r.Device, Files: w.files, Verify: w.sums, Holds: w.holds, Gap: r.gap(),
		Route: r.Route, Cache: r.Cache, Stream: r.Stream, HasStream: r.HasStream}
	for i := range w.parts {
		for _, s := range w.parts[i].segs {
			if s.File = i; s.Len > 0 { // an empty segment would part its neighbours
				req.Segments = append(req.Segments, s.Segment)
			}
		}
	}
	defer w.close()
	t, err := j.e.Start(ctx, req)
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.running[t] = struct{}{}
	j.mu.Unlock()
	err = t.Err()
	rep := t.Report()
	j.mu.Lock()
	n, _ := t.Progress()
	j.moved.Add(n)
	delete(j.running, t)
	j.report.Merge(&rep)
	j.mu.Unlock()
	return err
}

// close closes the files of the window.
func (w *window) close() {
	for _, f := range w.files {
		_ = f.Close() // only read from
	}
	w.files = nil
}

// mostNames is the number of segments of a block that a message names; the others are counted.
const mostNames = 3

// holds names the segments with bytes in a range of a file, for the error about a damaged block.
func (w *window) holds(file int, off, n int64) string {
	p := &w.parts[file]
	// The segments are in order of offset and do not overlap, because the file is verified.
	first := sort.Search(len(p.segs), func(i int) bool { return p.segs[i].Off+p.segs[i].Len > off })
	var names []string
	count := 0
	for k := first; k < len(p.segs) && p.segs[k].Off < off+n; k++ {
		s := &p.segs[k]
		if s.Before(off+n) == s.Before(off) {
			continue // empty, or no byte of a row
		}
		if count++; count > mostNames {
			continue
		}
		if s.Label != "" {
			names = append(names, "tensor "+strconv.Quote(s.Label))
		} else {
			names = append(names, fmt.Sprintf("segment %d", p.at[k]))
		}
	}
	if count > mostNames {
		names = append(names, fmt.Sprintf("%d more", count-mostNames))
	}
	if count == 0 {
		return "no segment"
	}
	return strings.Join(names, ", ")
}
