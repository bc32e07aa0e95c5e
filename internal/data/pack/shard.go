// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"path"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// shape writes the shards of one format.
type shape interface {
	// name returns the name of a shard's data file.
	name(shard int) string
	// prepare does the expensive work on a unit that was read, on the goroutine of its reader.
	prepare(ctx context.Context, r Reader, one *loaded)
	// begin begins the shard `name`, whose data goes to out. Messages call it shown.
	begin(out *blockFile, name, shown string) (shardWriter, error)
	// index returns the files that describe all shards.
	index(records []*record) ([]sideFile, error)
}

// shardWriter writes one shard.
type shardWriter interface {
	// add writes a unit and returns the number of its samples. A badSample was not written.
	add(ctx context.Context, r Reader, one *loaded) (int64, error)
	// close ends the data and returns the files beside it.
	close() ([]sideFile, error)
}

// sideFile is a small file beside the data.
type sideFile struct {
	name    string
	content []byte
}

// blockFile writes a data file in blocks and computes the checksum of each block.
type blockFile struct {
	f    File
	buf  []byte
	sums checksum.Sums
}

func newBlockFile(f File) *blockFile {
	return &blockFile{f: f, buf: make([]byte, 0, checksum.DefaultBlock), sums: checksum.Sums{Block: checksum.DefaultBlock}}
}

// Write appends bytes to the file.
func (b *blockFile) Write(p []byte) (int, error) {
	done := len(p)
	for len(p) > 0 {
		if len(b.buf) == 0 && len(p) >= checksum.DefaultBlock { // without a copy
			if err := b.block(p[:checksum.DefaultBlock]); err != nil {
				return 0, err
			}
			p = p[checksum.DefaultBlock:]
			continue
		}
		n := min(len(p), checksum.DefaultBlock-len(b.buf))
		b.buf = append(b.buf, p[:n]...)
		p = p[n:]
		if len(b.buf) == checksum.DefaultBlock {
			if err := b.flush(); err != nil {
				return 0, err
			}
		}
	}
	return done, nil
}

// flush writes the last block.
func (b *blockFile) flush() error {
	if len(b.buf) == 0 {
		return nil
	}
	err := b.block(b.buf)
	b.buf = b.buf[:0]
	return err
}

// block writes one block.
func (b *blockFile) block(p []byte) error {
	b.sums.Blocks = append(b.sums.Blocks, checksum.Of(p))
	b.sums.Size += int64(len(p))
	_, err := b.f.Write(p)
	return err
}

func sidecarSize(size int64) int64 {
	s := checksum.Sums{Block: checksum.DefaultBlock}
	return int64(len(s.Encode())) + 8*((size+checksum.DefaultBlock-1)/checksum.DefaultBlock)
}

// shard packs shard n. If a part that was written in pieces turns out to be bad, shard begins again without it.
func (p *packer) shard(ctx context.Context, n int) (*record, error) {
	skip := map[int]string{}
	for {
		before := p.progress()
		r, err := p.attempt(ctx, n, skip)
		var late *sourceFault
		if err == nil || !errors.As(err, &late) {
			return r, err
		}
		if !p.o.SkipBad || !skippable(late.err) {
			return nil, late.err
		}
		skip[late.position] = errs.MessageOf(late.err)
		p.moved(before - p.progress())
	}
}

func (p *packer) progress() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// attempt writes a shard, except the units of skip, and its record.
func (p *packer) attempt(ctx context.Context, n int, skip map[int]string) (*record, error) {
	name := p.format.name(n)
	f, err := p.out.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Abort()
	out := newBlockFile(f)
	w, err := p.format.begin(out, name, p.out.Shown(name))
	if err != nil {
		return nil, err
	}
	r := &record{Shard: n}
	if err := p.units(ctx, n, skip, w, r); err != nil {
		return nil, err
	}
	if r.Samples == 0 {
		return r, writeJSON(ctx, p.out, recordName(n), r)
	}
	sides, err := w.close()
	if err == nil {
		err = out.flush()
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return nil, err
	}
	sidecar := sideFile{name + checksum.Suffix, out.sums.Encode()}
	r.Files = []writtenFile{{Name: name, Size: out.sums.Size, Sum: sumText(checksum.Of(sidecar.content)), Sided: true}}
	for _, side := range append(sides, sidecar) {
		if err := writeFile(ctx, p.out, side.name, side.content); err != nil {
			return nil, err
		}
		if path.Ext(side.name) != checksum.Suffix {
			r.Files = append(r.Files, writtenFile{Name: side.name, Size: int64(len(side.content)),
				Sum: sumText(checksum.Of(side.content))})
		}
	}
	// All files have their names for good before the record says so.
	if err := p.out.Sync(ctx); err != nil {
		return nil, err
	}
	return r, writeJSON(ctx, p.out, recordName(n), r)
}

// units writes the units of a shard.
func (p *packer) units(ctx context.Context, n int, skip map[int]string, w shardWriter, r *record) error {
	l := p.newLane(ctx, n, skip)
	defer l.stop()
	reader := p.src.NewReader()
	defer reader.Close()
	return l.each(ctx, func(one *loaded) error {
		err := one.err
		if err == nil {
			var samples int64
			if samples, err = w.add(ctx, reader, one); err == nil {
				r.Samples += samples
				r.Empty += one.empty
				if len(one.bad) > 0 && !p.o.SkipBad {
					return refuseBad(p.src, one.bad, false)
				}
				r.Bad = append(r.Bad, one.bad...)
				return nil
			}
			var bad *badSample
			if !errors.As(err, &bad) {
				return err
			}
			err = bad.err
		}
		name := p.plan.files[one.unit.first].Name
		if p.o.SkipBad && skippable(err) {
			r.Bad = append(r.Bad, Bad{name, errs.MessageOf(err)})
			return nil
		}
		var known *errs.Error
		if errors.As(err, &known) {
			return err
		}
		return errs.New(errs.Invalid, "pack", p.src.Shown(name), err.Error()).
			WithFix("correct or remove the file, or leave out bad files with --skip-bad")
	})
}
