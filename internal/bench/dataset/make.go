// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/internal/units"
)

// manifestName is the file that marks a directory as created by this package. It is written last.
const manifestName = "nebulaio-bench.json"

// manifest describes the content of the files to a later run.
type manifest struct {
	Made     string `json:"made_by"`
	Files    int    `json:"files"`
	FileSize int64  `json:"file_size"`
	Seed     uint64 `json:"seed"`
	First    int    `json:"first"`
}

const madeBy = "nebulaio bench 1"

func (m manifest) paths(dir string) []string {
	all := make([]string, m.Files)
	for i := range all {
		all[i] = filepath.Join(dir, fmt.Sprintf("data-%05d.bin", i))
	}
	return all
}

func (m manifest) fits(o Options) bool { return m.Files == o.Files && m.FileSize == o.FileSize }

// findManifest reads the manifest of a kept directory.
func findManifest(dir string) (manifest, bool) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return manifest{}, false
	}
	defer f.Close()
	var m manifest
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(b, &m) != nil || m.Made != madeBy || m.First < 0 || m.Files < 1 || m.Files > MaxFiles {
		return manifest{}, false
	}
	return m, true
}

// builder creates files.
type builder struct {
	o     Options
	total int64
	done  atomic.Int64
	mu    sync.Mutex // of Progress
}

// fillBlock is the size of one write; fillers write at once.
const (
	fillBlock = 4 * units.MiB
	fillers   = 4
)

// make creates a directory of files in parent and returns its name. The name is also returned on error, because the
// caller removes the directory.
func (b *builder) make(ctx context.Context, parent string, first int) (string, error) {
	need := int64(b.o.Files) * b.o.FileSize
	free, readOnly, err := room(parent)
	if err != nil {
		return "", err
	}
	if readOnly {
		return "", errs.New(errs.Permission, "make the files of the benchmark in", parent, "is mounted read-only").
			WithFix("give a directory that you may write to, or a file to read as it is")
	}
	if free < need {
		return "", errs.New(errs.IO, "make the files of the benchmark in", parent,
			fmt.Sprintf("needs %s, %s are free", units.Bytes(need), units.Bytes(free))).
			WithFix("free space there, give another directory, or ask for less with --size")
	}
	dir, err := os.MkdirTemp(parent, "nebulaio-bench-")
	if err != nil {
		return "", &errs.Error{Kind: errs.KindOf(err), Op: "make a directory for the benchmark in", Name: parent,
			Err: unwrapPath(err),
			Fix: "give a directory that you may write to, or a file to read as it is"}
	}
	if b.o.Keep {
		// The name is then part of a later command.
		if named := filepath.Join(parent, "nebulaio-bench"); os.Rename(dir, named) == nil {
			dir = named
		}
	}
	m := manifest{Made: madeBy, Files: b.o.Files, FileSize: b.o.FileSize, Seed: b.o.Seed, First: first}
	for i, p := range m.paths(dir) {
		if ctx.Err() != nil {
			return dir, context.Cause(ctx)
		}
		if err := b.file(ctx, p, synth.FileSeed(b.o.Seed, first+i)); err != nil {
			return dir, err
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return dir, err
	}
	return dir, errs.Wrap("write", filepath.Join(dir, manifestName),
		os.WriteFile(filepath.Join(dir, manifestName), append(text, '\n'), 0o600))
}

func unwrapPath(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// file creates one file. The file is complete and durable when file returns.
func (b *builder) file(ctx context.Context, path string, seed uint64) error {
	w, err := Create(path, b.o.FileSize)
	if err != nil {
		return err
	}
	if !b.o.Empty {
		err = b.fill(ctx, w, seed)
	}
	if err == nil {
		err = w.Sync()
	}
	return errors.Join(err, w.Close())
}

func (b *builder) fill(ctx context.Context, w *Target, seed uint64) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	failed := make([]error, fillers)
	for k := range fillers {
		wg.Go(func() {
			mem, err := hostmem.Map(fillBlock)
			if err != nil {
				failed[k] = err
				return
			}
			defer mem.Unmap()
			for {
				off := (next.Add(1) - 1) * fillBlock
				if off >= b.o.FileSize {
					return
				}
				if ctx.Err() != nil {
					failed[k] = context.Cause(ctx)
					return
				}
				block := mem.Bytes()[:min(fillBlock, b.o.FileSize-off)]
				synth.Content(seed, off, block)
				if failed[k] = w.Write(block, off); failed[k] != nil {
					return
				}
				b.progress(int64(len(block)))
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) progress(n int64) {
	done := b.done.Add(n)
	if b.o.Progress == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.o.Progress(done, b.total)
}

// Target is a preallocated file for writes. The method Write of a Target is safe for concurrent use.
type Target struct {
	path             string
	size             int64
	buffered, direct int
	align            int64
	refused          string
}

// Create creates a file of size bytes and allocates its blocks, so that a full disk fails here and not in the middle
// of a write.
func Create(path string, size int64) (*Target, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errs.Wrap("create", path, err)
	}
	t := &Target{path: path, size: size, buffered: fd, direct: -1, align: 4096}
	for {
		err = unix.Fallocate(fd, 0, 0, size)
		if err != unix.EINTR {
			break
		}
	}
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		err = unix.Ftruncate(fd, size)
	}
	if err != nil {
		return nil, errors.Join(full("allocate "+units.Bytes(size)+" for", path, err), t.Close())
	}
	if t.direct, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0); err != nil {
		t.direct, t.refused = -1, fmt.Sprintf("opening with O_DIRECT failed: %v", err)
	}
	return t, nil
}

// OpenTarget opens a file that Create made, in order to write it again.
func OpenTarget(path string) (*Target, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap("open", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, errs.Wrap("stat", path, err)
	}
	t := &Target{path: path, size: st.Size, buffered: fd, align: 4096}
	if t.direct, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0); err != nil {
		t.direct, t.refused = -1, fmt.Sprintf("opening with O_DIRECT failed: %v", err)
	}
	return t, nil
}

// full adds a fix to the error of a full disk.
func full(op, path string, err error) error {
	if err == unix.ENOSPC || err == unix.EDQUOT {
		return &errs.Error{Kind: errs.IO, Op: op, Name: path, Err: err,
			Fix: "free space there, give another directory, or ask for less with --size"}
	}
	return errs.Wrap(op, path, err)
}

// Path returns the path of the file.
func (t *Target) Path() string { return t.path }

// Size returns the file's length in bytes.
func (t *Target) Size() int64 { return t.size }

// DirectFD returns the O_DIRECT descriptor, or -1 if there is none.
func (t *Target) DirectFD() int { return t.direct }

// Direct reports whether the file can be written past the page cache. If Direct returns false, it also returns the
// reason.
func (t *Target) Direct() (bool, string) { return t.direct >= 0, t.refused }

// Write writes the bytes b to the file at offset off. If the file supports O_DIRECT and both off and the length of b
// are aligned, the write bypasses the page cache.
func (t *Target) Write(b []byte, off int64) error {
	if t.direct >= 0 && off%t.align == 0 && int64(len(b))%t.align == 0 {
		return t.WriteDirect(b, off)
	}
	return t.WriteBuffered(b, off)
}

// WriteDirect writes the bytes b to the file at offset off, past the page cache. Callers of WriteDirect must check
// first that Direct returns true.
func (t *Target) WriteDirect(b []byte, off int64) error { return t.pwrite(t.direct, b, off) }

// WriteBuffered writes the bytes b to the file at offset off, through the page cache.
func (t *Target) WriteBuffered(b []byte, off int64) error { return t.pwrite(t.buffered, b, off) }

func (t *Target) pwrite(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return full("write", t.path, err)
		default:
			b, off = b[n:], off+int64(n)
		}
	}
	return nil
}

// Sync flushes the written data, so that it survives a power loss.
func (t *Target) Sync() error { return errs.Wrap("sync", t.path, unix.Fdatasync(t.buffered)) }

// Close closes the descriptors of the file.
func (t *Target) Close() error {
	err := unix.Close(t.buffered)
	if t.direct >= 0 {
		err = errors.Join(err, unix.Close(t.direct))
	}
	return errs.Wrap("close", t.path, err)
}
