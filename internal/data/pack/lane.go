// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// batchSize is the number of bytes that a reader reads ahead as one piece. Smaller pieces would cost more hand-overs
	// between goroutines.
	batchSize = 1 << 20
	// ahead is the number of batches of a lane that are read and not written yet.
	ahead = 16
	// largePart is the size from which a part is not read ahead, so that memory stays bounded.
	largePart = 4 << 20
)

// loaded is a unit whose files were read.
type loaded struct {
	position int
	unit     *unit
	first    *source // its first file
	key      string
	parts    []loadedPart
	err      error // why the unit cannot be packed

	documents [][]byte // of tokens, for the format Bin
	empty     int64    // number of documents without tokens
	bad       []Bad    // documents of the unit that cannot be packed
}

// loadedPart is a part of a sample.
type loadedPart struct {
	ext   string
	entry Entry
	data  []byte
	large bool // data is nil, and the part is read when it is written
}

// batch is a few units that are read by one goroutine.
type batch struct {
	units []loaded
	parts []loadedPart
	buf   []byte
	bytes int64 // of the source
}

// lane reads the units of one shard ahead, with several goroutines, and returns them in order.
type lane struct {
	p      *packer
	starts []int // first position of each batch, and the end
	skip   map[int]string
	next   atomic.Int64
	window chan struct{}
	ready  []chan *batch
	free   chan *batch
	group  sync.WaitGroup
	cancel context.CancelFunc
}

// newLane starts to read the units of a shard, except those of skip. The caller calls stop.
func (p *packer) newLane(ctx context.Context, shard int, skip map[int]string) *lane {
	l := &lane{p: p, skip: skip, window: make(chan struct{}, ahead), free: make(chan *batch, ahead)}
	size, lo, hi := int64(0), p.plan.shards[shard], p.plan.shards[shard+1]
	for at := lo; at < hi; at++ {
		n := p.plan.at(at).size
		if at == lo || size+n > batchSize {
			l.starts, size = append(l.starts, at), 0
		}
		size += n
	}
	l.starts = append(l.starts, hi)
	l.ready = make([]chan *batch, len(l.starts)-1)
	for i := range l.ready {
		l.ready[i] = make(chan *batch, 1)
	}
	ctx, l.cancel = context.WithCancel(ctx)
	readers := p.o.readers
	if readers == 0 {
		// More readers than cores, because a reader of small files mostly waits for the disk or the server.
		readers = max(8, 16/runtime.GOMAXPROCS(0))
	}
	for range min(readers, len(l.ready)) {
		l.group.Go(func() { l.read(ctx) })
	}
	return l
}

// stop ends the readers.
func (l *lane) stop() {
	l.cancel()
	l.group.Wait()
}

// read reads batches until the end of the shard.
func (l *lane) read(ctx context.Context) {
	r := l.p.src.NewReader()
	defer r.Close()
	for {
		select {
		case l.window <- struct{}{}:
		case <-ctx.Done():
			return
		}
		n := int(l.next.Add(1)) - 1
		if n >= len(l.ready) {
			return
		}
		var b *batch
		select {
		case b = <-l.free:
		default:
			b = &batch{}
		}
		l.fill(ctx, r, b, l.starts[n], l.starts[n+1])
		l.ready[n] <- b
	}
}

// each calls do with each unit of the shard in order.
func (l *lane) each(ctx context.Context, do func(*loaded) error) error {
	for _, ready := range l.ready {
		var b *batch
		select {
		case b = <-ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for i := range b.units {
			if err := do(&b.units[i]); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.p.moved(b.bytes)
		if cap(b.buf) <= 2*batchSize {
			select {
			case l.free <- b:
			default:
			}
		}
		<-l.window
	}
	return nil
}

// fill reads the units from position lo to hi.
func (l *lane) fill(ctx context.Context, r Reader, b *batch, lo, hi int) {
	plan := l.p.plan
	b.units, b.parts, b.bytes = b.units[:0], b.parts[:0], 0
	need, files := 1, 0
	for at := lo; at < hi; at++ {
		u := plan.at(at)
		files += u.count
		for _, f := range plan.parts(u) {
			if f.Size < largePart {
				need += int(f.Size)
			}
		}
	}
	if cap(b.buf) < need {
		b.buf = make([]byte, 0, need)
	}
	if cap(b.parts) < files {
		b.parts = make([]loadedPart, 0, files)
	}
	b.buf = b.buf[:0]
	for at := lo; at < hi; at++ {
		u := plan.at(at)
		b.bytes += u.size
		b.units = append(b.units, loaded{position: at, unit: u, first: &plan.files[u.first], key: plan.key(u)})
		one := &b.units[len(b.units)-1]
		if why, ok := l.skip[at]; ok {
			one.err = errors.New(why)
			continue
		}
		if ctx.Err() != nil {
			one.err = context.Cause(ctx)
			continue
		}
		if l.p.o.Format != Bin || !isLines(one.first.ext) {
			l.files(ctx, r, b, one)
		}
		if one.err == nil {
			l.p.format.prepare(ctx, r, one)
		}
	}
}

// files reads the files of a unit.
func (l *lane) files(ctx context.Context, r Reader, b *batch, one *loaded) {
	from := len(b.parts)
	for _, f := range l.p.plan.parts(one.unit) {
		part := loadedPart{ext: f.ext, entry: f.Entry, large: f.Size >= largePart}
		if !part.large {
			at := len(b.buf)
			b.buf = b.buf[:at+int(f.Size)]
			part.data = b.buf[at : at+int(f.Size) : at+int(f.Size)+1]
			if err := r.Read(ctx, f.Entry, part.data); err != nil {
				one.err = err
				break
			}
		}
		b.parts = append(b.parts, part)
	}
	one.parts = b.parts[from:len(b.parts):len(b.parts)]
}

// sourceFault is an error of the source that was found after a part of the sample was written.
type sourceFault struct {
	position int
	err      error
}

func (f *sourceFault) Error() string { return f.err.Error() }
func (f *sourceFault) Unwrap() error { return f.err }

// badSample is a sample that the format refuses. Nothing of it was written.
type badSample struct{ err error }

func (b *badSample) Error() string { return b.err.Error() }
func (b *badSample) Unwrap() error { return b.err }

// refuse returns a badSample.
func refuse(format string, args ...any) error { return &badSample{fmt.Errorf(format, args...)} }

// skippable reports whether --skip-bad may leave out a unit with this error. A file that changes is no bad file: the
// pack would not be what the source is.
func skippable(err error) bool {
	return !errors.Is(err, errChanged) && !errors.Is(err, context.Canceled) && !errs.Is(err, errs.Cancelled)
}
