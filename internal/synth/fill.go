// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// piece is the size of one write in bytes: large enough to make the cost of system calls negligible, small enough to
// stop a cancelled run at once.
const piece = 4 << 20

// writeTemp writes a synced file beside to under a hidden temporary name and returns that name. created is called
// with the name as soon as the file exists, so that the caller can always remove it.
func writeTemp(to string, fill func(f *os.File) error, created func(name string)) (string, error) {
	var f *os.File
	for try := 0; ; try++ {
		name := filepath.Join(filepath.Dir(to), fmt.Sprintf(".%s.%016x.tmp", filepath.Base(to), rand.Uint64()))
		var err error
		if f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || try == 8 {
			return "", wrap(to, err)
		}
	}
	created(f.Name())
	err := fill(f)
	if err == nil {
		err = wrap(to, f.Sync())
	}
	if e := f.Close(); err == nil {
		err = wrap(to, e)
	}
	return f.Name(), err
}

// fill writes the header and the content of a planned file with a few goroutines. Each takes the next piece.
func (w *writer) fill(ctx context.Context, f *os.File, p filePlan) error {
	if err := allocate(f, p.file.Size); err != nil {
		return wrap(p.file.Path, err)
	}
	workers := w.opts.Workers
	if workers == 0 {
		workers = min(4, runtime.GOMAXPROCS(0))
	}
	pieces := (p.file.Size + piece - 1) / piece
	workers = int(min(int64(workers), pieces))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			buf := make([]byte, min(piece, p.file.Size))
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= pieces {
					return
				}
				off := i * piece
				b := buf[:min(piece, p.file.Size-off)]
				p.bytes(off, b)
				if _, err := f.WriteAt(b, off); err != nil {
					cancel(wrap(p.file.Path, err))
					return
				}
				w.progress(int64(len(b)))
			}
		})
	}
	group.Wait()
	if ctx.Err() == nil {
		return nil
	}
	return errs.Wrap(opWrite, p.file.Path, context.Cause(ctx))
}

// bytes generates the bytes of the file at off: first the header, then content.
func (p filePlan) bytes(off int64, dst []byte) {
	if off < int64(len(p.header)) {
		n := copy(dst, p.header[off:])
		dst, off = dst[n:], off+int64(n)
	}
	Content(p.seed, off, dst)
}

// syncDir makes renames in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return wrap(dir, err)
	}
	defer d.Close()
	return wrap(dir, d.Sync())
}

// wrap converts a file-system error into our form, without its path, because our error names the file that the user
// asked for. It returns nil for nil.
func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	err = errs.WithoutPath(err)
	e := &errs.Error{Kind: errs.KindOf(err), Op: opWrite, Name: name, Err: err}
	if errors.Is(err, syscall.ENOSPC) {
		return e.WithFix("free space on the file system or choose a smaller model")
	}
	return e
}
