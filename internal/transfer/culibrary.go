// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// library is cuFile as the engine has it open for one device. It is opened by
// the first transfer that needs it and closed with the engine.
type library struct {
	mu      sync.Mutex // guards what follows
	direct  device.Direct
	err     error // why it could not be opened; not tried again by auto
	facts   map[string]string
	uncount error // why it does not count
	files   map[*vfs.File]*known
	proved  map[uint64]string // file systems by device number: the route that counters showed
	queues  []device.Queue    // streams of our own, of the interface async
	users   int               // transfers that use it now
	entered int64             // transfers that ever used it
}

// known is a file that the library knows, shared by the transfers of it.
type known struct {
	device.DirectFile
	fd    int // -1: the file's own descriptor is used
	users int
	// cached: it is read through the page cache, where its data is.
	cached bool
}

// libraryOf is the library of a port, not opened yet.
func (e *Engine) libraryOf(p *port) *library {
	p.libMu.Lock()
	defer p.libMu.Unlock()
	if p.lib == nil {
		p.lib = &library{files: map[*vfs.File]*known{}, proved: map[uint64]string{}}
	}
	return p.lib
}

// open opens the library once. again tries although it failed before.
func (l *library) open(ctx context.Context, e *Engine, dev device.Device, again bool) (opened bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.direct != nil || l.err != nil && !again {
		return false, l.err
	}
	if e.opts.OpenDirect == nil {
		return false, errs.New(errs.Unsupported, "use cuFile for", dev.Info().ID, "this engine was made without it")
	}
	if l.direct, l.err = e.opts.OpenDirect(ctx, dev); l.err != nil {
		l.direct = nil
		return false, l.err
	}
	l.facts = l.direct.Facts()
	l.uncount = l.direct.StartCounting()
	return true, nil
}

// count is what the library has counted so far; unknown where it does not.
func (l *library) count() device.DirectCounters {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c device.DirectCounters
	if l.uncount == nil {
		c, l.uncount = l.direct.Counters()
	}
	return c
}

// file makes f known to the library. Past the page cache where the file allows
// it, for only so can it come directly; through it where cached says that no
// direct route is open and the data is there.
func (l *library) file(f *vfs.File, cached bool) (*known, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.files[f]; k != nil {
		k.users++
		return k, nil
	}
	if err := f.Pin(); err != nil { // until forget
		return nil, err
	}
	k := &known{fd: -1, users: 1, cached: cached}
	fd := f.DirectFD()
	if ok, _ := f.Direct(); !ok || cached {
		var err error
		if k.fd, err = f.Again(); err != nil {
			f.Unpin()
			return nil, err
		}
		fd = k.fd
	}
	var err error
	if k.DirectFile, err = l.direct.OpenFile(fd); err != nil {
		k.shut()
		f.Unpin()
		return nil, errs.Wrap("give to cuFile", f.Path(), err)
	}
	l.files[f] = k
	return k, nil
}

func (k *known) shut() {
	if k.fd >= 0 {
		_ = unix.Close(k.fd) // only read from
	}
}

// forget gives a file back; the last user ends its registration.
func (l *library) forget(f *vfs.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.files[f]
	if k.users--; k.users > 0 {
		return nil
	}
	delete(l.files, f)
	err := k.DirectFile.Close()
	k.shut()
	f.Unpin()
	return err
}

// learn keeps what counters have shown of the disk under a descriptor.
func (l *library) learn(fd int, route string) {
	switch route {
	case device.RouteP2P, device.RouteNVFS, device.RouteCompat:
	default:
		return
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proved[st.Dev] = route
}

// close ends the library; no transfer uses it any more.
func (l *library) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []error
	for _, q := range l.queues {
		all = append(all, q.Close())
	}
	if l.direct != nil {
		all = append(all, l.direct.Close())
	}
	l.queues, l.direct = nil, nil
	return errors.Join(all...)
}
