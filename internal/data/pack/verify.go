// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxSidecar is the most bytes of a sidecar that verify reads: the sums of a file of 1 TiB.
const maxSidecar = 16 << 20

// verify reads all files back and compares them with their checksums.
func (p *packer) verify(ctx context.Context, files []writtenFile) error {
	listed, _, err := p.out.List(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]Entry, len(listed))
	for _, e := range listed {
		there[e.Name] = e
	}
	total := int64(0)
	for _, f := range files {
		total += f.Size
	}
	var mu sync.Mutex
	done := int64(0)
	tell := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if p.o.Verifying != nil {
			p.o.Verifying(done, total)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(len(files), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return
				}
				if err := p.verifyFile(ctx, files[i], there, tell); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	if ctx.Err() == nil {
		return nil
	}
	return errors.Join(context.Cause(ctx), p.forget(context.WithoutCancel(ctx), context.Cause(ctx)))
}

// damaged is a file of a pack that differs from its checksum.
type damaged struct {
	err  error
	name string
}

func (d *damaged) Error() string { return d.err.Error() }
func (d *damaged) Unwrap() error { return d.err }

// forget removes the record of the shard with a damaged file, so that the next run packs the shard again.
func (p *packer) forget(ctx context.Context, err error) error {
	var d *damaged
	if !errors.As(err, &d) {
		return nil
	}
	for _, r := range p.records {
		for _, f := range r.Files {
			if f.Name == d.name {
				return errors.Join(p.out.Remove(ctx, recordName(r.Shard)), p.out.Sync(ctx))
			}
		}
	}
	return nil
}

// differs returns the error about a damaged file.
func (p *packer) differs(name, msg string, args ...any) error {
	return &damaged{errs.New(errs.Corrupt, "verify", p.out.Shown(name), fmt.Sprintf(msg, args...)).
		WithFix("the storage returned other bytes than were written: check it, and run the same command again"), name}
}

// verifyFile compares one file with its checksums.
func (p *packer) verifyFile(ctx context.Context, f writtenFile, there map[string]Entry, tell func(int64)) error {
	e, ok := there[f.Name]
	if !ok || e.Size != f.Size {
		return p.differs(f.Name, "it has %d bytes, expected %d", e.Size, f.Size)
	}
	summed, most := e, f.Size
	if f.Sided {
		summed, most = there[f.Name+checksum.Suffix], maxSidecar
		summed.Name = f.Name + checksum.Suffix
	}
	b, err := readFile(ctx, p.out, summed, most)
	if err != nil {
		return err
	}
	if got := sumText(checksum.Of(b)); got != f.Sum {
		return p.differs(f.Name, "the checksum of %s is %s, expected %s", summed.Name, got, f.Sum)
	}
	if !f.Sided {
		tell(f.Size)
		return nil
	}
	sums, err := checksum.Parse(p.out.Shown(summed.Name), b)
	if err != nil {
		return err
	}
	if d, ok := p.out.(*folder); ok {
		d.drop(f.Name)
	}
	r := p.out.NewReader()
	defer r.Close()
	buf := make([]byte, sums.Block)
	for i, want := range sums.Blocks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		off, n := sums.Extent(int64(i))
		if got, err := r.ReadAt(ctx, e, buf[:n], off); err != nil {
			return err
		} else if int64(got) < n {
			return p.differs(f.Name, "it ends at offset %d, expected %d bytes", off+int64(got), f.Size)
		}
		if got := checksum.Of(buf[:n]); got != want {
			return p.differs(f.Name, "the checksum of bytes %d to %d is %016x, expected %016x", off, off+n, got, want)
		}
		tell(n)
	}
	return nil
}
