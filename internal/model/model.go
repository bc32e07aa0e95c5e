// SPDX-License-Identifier: Apache-2.0

// Package model opens a model made of tensor files, decides where each tensor goes in device memory, and starts its
// transfer.
package model

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Options selects the files and tensors of a model to open.
type Options struct {
	// Tensors are globs (see path.Match) for the names of the tensors to load; an empty list means all tensors. A
	// glob that matches no tensor is an error.
	Tensors []string
	// Slices and Shards select parts of chosen tensors; other tensors are loaded whole. Two slices or shards that
	// match the same tensor are an error. A slice or shard that matches no chosen tensor is an error. A slice with
	// indices or dimensions that its tensor does not have is an error.
	Slices []Slice
	Shards []Shard
	// Lenient also accepts headers that Python's safetensors package accepts but nebulaio refuses by default.
	Lenient bool
	// Names are the exact names of the tensors to load, which Select uses instead of globs. A name in Names that no
	// file contains is an error.
	Names []string
	// More lists further models, whose files follow those of the first model.
	More []string
	// Files, if not nil, are indices into the model's list of files. If Files is set, Select uses only the files with
	// these indices, and a glob that matches nothing in these files is no error.
	Files []int
	// Tree is the tree of files, such as a bucket, in which names are looked up; Shown formats a name for messages.
	// If Tree is nil, names are paths of files on this machine.
	Tree  vfs.Tree
	Shown func(name string) string
	// Memo, if not nil, keeps parsed headers for later calls of Open.
	Memo *Memo
	// Opened, if not nil, is called with the first file of the model as soon as the file is open, before the file's
	// header is read.
	Opened func(f *vfs.File)
	// Addressable means that tensors are loaded into host memory. In host memory, tensors keep their offset within a
	// page of the file, so that direct reads go straight into place.
	Addressable bool
}

// Model is an open model, with headers that have been read and checked. The files of a Model are open until Close.
// Opening a Model reads no tensor data.
type Model struct {
	Path    string
	Files   []*format.File
	Layouts []Layout // one per file
	Tensors []Placement
	Sharded bool   // true if the model has an index or several files
	Index   string // file name of the first index; "" if there is none

	sources  []*vfs.File
	known    []*known  // one per file; nil in a selection
	names    []string  // in the tree, one per file
	tree     vfs.Tree  // nil: this machine's files
	pool     *vfs.Pool // of the sources where they are many; nil: each keeps its descriptors
	seen     []bool
	OpenTime time.Duration

	// from is the model whose open files a selection reads; nil: its own.
	from *Model

	mu         sync.Mutex
	started    []*transfer.Load // that may be running
	selections int              // that are open

	byName map[string][]located // for Select; nil until it is needed
}

// headerCached reports whether the first page of a file is in the page cache, which means that the file was opened
// recently. Every load leaves this mark, even if it read the data past the page cache. The mark works across
// processes and vanishes under memory pressure, as intended.
func headerCached(f *vfs.File) bool {
	r, err := f.Residency(0, 1)
	return err == nil && r.Cached > 0
}

// Placement is a tensor, or the loaded part of a tensor, and its place in the destination.
type Placement struct {
	format.Tensor // Shape, Size and Offset are those of the loaded part
	// Whole is the shape of the whole tensor, and Start the first loaded index of each dimension. If the whole tensor
	// is loaded, Whole and Start are nil.
	Whole, Start []int64
	File         int   // index of the tensor's file in Model.Files and Model.Layouts
	At           int64 // offset of the tensor in the destination of its file
}

// Open reads the headers of the model at name, which is a tensor file, an index or a model directory. The caller of
// Open closes the returned Model.
func Open(ctx context.Context, name string, o Options) (*Model, error) {
	began := time.Now()
	if o.Files != nil || o.Names != nil {
		return nil, errs.New(errs.Invalid, "open model", name,
			"files and names can be chosen from a model that is open, not when it is opened")
	}
	m := &Model{Path: name, tree: o.Tree}
	if o.Tree != nil {
		m.Path = o.Shown(name)
	}
	ok := false
	defer func() {
		if !ok {
			_ = m.Close()
		}
	}()
	for _, n := range append([]string{name}, o.More...) {
		if err := m.open(ctx, n, o); err != nil {
			return nil, err
		}
	}
	if err := m.place(o); err != nil {
		return nil, err
	}
	m.OpenTime = time.Since(began)
	ok = true
	return m, nil
}

// open adds the files of the model at name.
func (m *Model) open(ctx context.Context, name string, o Options) error {
	paths, index, err := resolve(ctx, name, o)
	if err != nil {
		return err
	}
	m.Sharded = m.Sharded || index != nil || len(paths) > 1
	mode := safetensors.Strict
	if o.Lenient {
		mode = safetensors.Lenient
	}
	first := len(m.Files)
	most := vfs.PoolSize()
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return errs.Wrap("open model", name, err)
		}
		f, err := openIn(ctx, o.Tree, p)
		if err != nil {
			return err
		}
		if len(m.sources) == 0 && o.Opened != nil {
			o.Opened(f)
		}
		m.sources, m.names = append(m.sources, f), append(m.names, p)
		m.bound(most)
		if len(m.sources) <= most {
			vfs.Expect(f) // other processes that load the file now share their reads with this one
		}
		// The header is a few pages: reading ahead of it would bring in data
		// that the engine may want to read past the page cache.
		m.seen = append(m.seen, headerCached(f))
		f.ExpectRandom(true)
		header, err := safetensors.ReadHeader(f, f.Size(), f.Path())
		f.ExpectRandom(false)
		if err != nil {
			return err
		}
		k, err := o.Memo.parse(header, f.Size(), f.Path(), mode)
		if err != nil {
			return err
		}
		m.Files, m.known = append(m.Files, k.file), append(m.known, k)
	}
	if index != nil {
		if m.Index == "" {
			m.Index = index.Path
		}
		return index.Check(m.Files[first:])
	}
	if len(paths) > 1 {
		return safetensors.CheckApart(m.Path, m.Files[first:])
	}
	return nil
}

// bound limits the open descriptors if the model has more than most files.
func (m *Model) bound(most int) {
	switch {
	case m.tree != nil || len(m.sources) <= most:
	case m.pool == nil:
		m.pool = vfs.NewPool(most)
		for _, f := range m.sources {
			m.pool.Adopt(f)
		}
	default:
		m.pool.Adopt(m.sources[len(m.sources)-1])
	}
}

func resolve(ctx context.Context, name string, o Options) ([]string, *safetensors.Index, error) {
	if o.Tree == nil {
		return safetensors.Resolve(name)
	}
	return safetensors.ResolveIn(ctx, o.Tree, name, o.Shown)
}

func openIn(ctx context.Context, tree vfs.Tree, name string) (*vfs.File, error) {
	if tree == nil {
		return vfs.Open(name)
	}
	return tree.Open(ctx, name)
}

// place selects tensors and assigns their offsets in the destination.
func (m *Model) place(o Options) error {
	pick, err := newSelection(o.Tensors)
	if err != nil {
		return err
	}
	cut, err := newCutter(o.Slices, o.Shards)
	if err != nil {
		return err
	}
	for i, f := range m.Files {
		if m.known != nil && len(pick.globs) == 0 && len(cut.rules) == 0 {
			l, placed := m.known[i].place(o.Addressable)
			m.Layouts = append(m.Layouts, l)
			m.adopt(placed, i)
			continue
		}
		tensors, err := m.choose(f, pick, o)
		if err != nil {
			return err
		}
		chosen := make([]part, len(tensors))
		for k, t := range tensors {
			if chosen[k], err = cut.part(t); err != nil {
				return err
			}
		}
		l, at := layout(chosen, o.Addressable)
		m.Layouts = append(m.Layouts, l)
		m.Tensors = slices.Grow(m.Tensors, len(chosen))
		for k, t := range chosen {
			m.Tensors = append(m.Tensors, Placement{Tensor: t.Tensor, Whole: t.whole, Start: t.start, File: i, At: at[k]})
		}
	}
	if o.Files != nil {
		return nil // what matches nothing in these may match in others
	}
	if err := pick.unused(m.Path); err != nil {
		return err
	}
	return cut.unused(m.Path)
}

// adopt adds the tensors of file number i, of which all are loaded.
func (m *Model) adopt(placed []Placement, i int) {
	if i == 0 {
		m.Tensors = placed[:len(placed):len(placed)] // shared: nobody changes a placement
		return
	}
	first := len(m.Tensors)
	m.Tensors = append(m.Tensors, placed...)
	for k := first; k < len(m.Tensors); k++ {
		m.Tensors[k].File = i
	}
}

// selection is a set of globs, with a mark for each that has matched.
type selection struct {
	globs []string
	hit   []bool
}

func newSelection(globs []string) (*selection, error) {
	for _, g := range globs {
		if _, err := path.Match(g, ""); err != nil {
			return nil, errs.New(errs.Invalid, "select tensors", strconv.Quote(g),
				"is not a glob; expected * ? [a-z] and literal text")
		}
	}
	return &selection{globs: globs, hit: make([]bool, len(globs))}, nil
}

func (s *selection) take(name string) bool {
	if len(s.globs) == 0 {
		return true
	}
	found := false
	for i, g := range s.globs {
		if ok, _ := path.Match(g, name); ok || g == name {
			s.hit[i], found = true, true
		}
	}
	return found
}

func (s *selection) unused(model string) error {
	for i, g := range s.globs {
		if !s.hit[i] {
			return errs.New(errs.NotFound, "select tensors", strconv.Quote(g), "matches no tensor of "+
				model).WithFix("list the names with: nebulaio inspect " + model)
		}
	}
	return nil
}

// Stored reports whether the model is in a tree, such as a bucket, and not in files of this machine.
func (m *Model) Stored() bool { return m.tree != nil }

// Bytes returns the size of all chosen tensors in bytes.
func (m *Model) Bytes() int64 {
	var n int64
	for _, t := range m.Tensors {
		n += t.Size
	}
	return n
}

// Destination is the caller's memory for the tensors of one file.
type Destination struct {
	Ptr  device.Ptr
	Size int64
}

// LoadOptions selects how a load moves the bytes from storage to the destination.
type LoadOptions struct {
	Route     report.Route
	Cache     report.CachePolicy
	Stream    uint64
	HasStream bool
	// Verify compares every file block that contains a byte of a chosen tensor or of a header with the file's
	// checksums.
	Verify bool
}

// Start begins to load the tensors into dst, which has one destination per file. The model must stay open until the
// load has ended.
func (m *Model) Start(ctx context.Context, e *transfer.Engine, dev device.Device, dst []Destination,
	o LoadOptions) (*transfer.Load, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable("load"); err != nil {
		return nil, err
	}
	if len(dst) != len(m.Files) {
		return nil, errs.New(errs.Invalid, "load", m.Path,
			fmt.Sprintf("%d destinations given, expected %d, one per file", len(dst), len(m.Files)))
	}
	req := transfer.Request{Device: dev, Files: m.sources, Seen: m.seen, Route: o.Route, Cache: o.Cache,
		Gap: transfer.DefaultGap, Stream: o.Stream, HasStream: o.HasStream}
	for i, l := range m.Layouts {
		if dst[i].Size < l.Size {
			return nil, errs.New(errs.Invalid, "load", m.Files[i].Path,
				fmt.Sprintf("the destination has %d bytes at 0x%x, expected at least %d", dst[i].Size, uint64(dst[i].Ptr), l.Size))
		}
		if !dst[i].Ptr.Holds(l.Size) {
			return nil, errs.New(errs.Invalid, "load", m.Files[i].Path,
				fmt.Sprintf("the destination is at 0x%x, expected an address that %d bytes can begin at", uint64(dst[i].Ptr),
					l.Size))
		}
		if l.Size > 0 && int64(dst[i].Ptr)%MinAlign != 0 {
			return nil, errs.New(errs.Invalid, "load", m.Files[i].Path,
				fmt.Sprintf("the destination at 0x%x is not aligned to %d bytes", uint64(dst[i].Ptr), MinAlign))
		}
		for _, s := range l.Segments {
			req.Segments = append(req.Segments, transfer.Segment{File: i, Off: s.Off, Len: s.Len,
				Dst: dst[i].Ptr + device.Ptr(s.At), Width: s.Width, Stride: s.Stride})
		}
	}
	req.Parts = make([]transfer.Part, 0, len(m.Tensors))
	for i := range m.Tensors {
		t := &m.Tensors[i]
		req.Parts = append(req.Parts, transfer.Part{File: t.File, Dst: dst[t.File].Ptr + device.Ptr(t.At), Len: t.Size})
	}
	if o.Verify {
		if err := m.verify(ctx, &req); err != nil {
			return nil, err
		}
	}
	t, err := e.Start(ctx, req)
	if err == nil {
		m.started = append(slices.DeleteFunc(m.started, ended), t)
	}
	return t, err
}

// usable returns an error of kind Closed if the files are closed. The caller holds mu.
func (m *Model) usable(op string) error {
	if m.sources == nil {
		return errs.New(errs.Closed, op, m.Path, "the model is closed")
	}
	return nil
}

// Usable returns an error of kind Closed if the model is closed.
func (m *Model) Usable(op string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usable(op)
}

func ended(t *transfer.Load) bool {
	select {
	case <-t.Done():
		return true
	default:
		return false
	}
}

// DropCache asks the kernel to drop the model's files from the page cache. DropCache returns the number of bytes that
// stayed in the page cache.
func (m *Model) DropCache() (left int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable("drop cache of"); err != nil {
		return 0, err
	}
	for _, f := range m.sources {
		n, err := f.DropCache()
		if err != nil {
			return left, err
		}
		left += n
	}
	return left, nil
}

// Cached returns how many bytes of the model's files are in the page cache.
func (m *Model) Cached() (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable("look at cache of"); err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range m.sources {
		r, err := f.Residency(0, f.Size())
		if err != nil {
			return 0, err
		}
		sum += r.Cached
	}
	return sum, nil
}

// Close closes the files of the model. If transfers of the model are running or selections are open, Close closes
// nothing and returns an error of kind Invalid. A running transfer must keep its file descriptor, because the kernel
// could reuse the number for another file.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started = slices.DeleteFunc(m.started, ended); len(m.started) > 0 {
		return errs.New(errs.Invalid, "close model", m.Path,
			fmt.Sprintf("%d transfers are still running", len(m.started))).WithFix("cancel them and wait for their end")
	}
	if m.selections > 0 {
		return errs.New(errs.Invalid, "close model", m.Path,
			fmt.Sprintf("%d selections of it are still open", m.selections)).WithFix("close them first")
	}
	if m.from != nil {
		m.leave()
		return nil
	}
	var all []error
	for _, f := range m.sources {
		all = append(all, f.Close())
	}
	m.sources = nil
	return errors.Join(all...)
}
