// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"golang.org/x/sys/unix"
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

// newLibrary returns a library that is not open yet.
func newLibrary() *library {
	return &library{files: map[*vfs.File]*known{}, proved: map[uint64]string{}}
}

// open opens the library once. again tries although it failed before.
func (l *library) open(ctx context.Context, o *tuned, dev device.Device, again bool) (opened bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.direct != nil || l.err != nil && !again {
		return false, l.err
	}
	if o.OpenDirect == nil {
		return false, errs.New(errs.Unsupported, "use cuFile for", dev.Info().ID, "this engine was made without it")
	}
	if l.direct, l.err = o.OpenDirect(ctx, dev); l.err != nil {
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
	if l.direct == nil {
		return nil
	}
	err := l.direct.Close()
	l.direct = nil
	return err
}

// opened is the library itself; it was opened before.
func (l *library) opened() device.Direct {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.direct
}

// shown is the route that counters showed for a file system; empty: none yet.
func (l *library) shown(fs uint64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proved[fs]
}

// cost says what opening the library took.
func (l *library) cost() string {
	return fmt.Sprintf("libcufile %s was opened for this; that makes a context on every visible GPU, here %s",
		l.facts["version"], l.facts["visible_gpus"])
}

// part is the library's part of a report, without what it counted.
func (l *library) part(api report.CuFileAPI, opened bool) *report.CuFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &report.CuFile{Version: l.facts["version"], API: api, Shared: l.facts["shared"] == "true", Opened: opened}
	c.Contexts, _ = strconv.Atoi(l.facts["visible_gpus"])
	if l.uncount != nil {
		c.Uncounted = plainly(l.uncount)
	}
	return c
}

// taken names the way of bytes by the operations that the library counted.
func taken(known bool, ops device.RouteOps) report.RouteTaken {
	if known {
		switch route := ops.Route(); route {
		case device.RouteP2P, device.RouteNVFS, device.RouteCompat:
			return report.RouteTaken("cufile_" + route)
		}
	}
	return report.RouteTakenCuFileUnknown
}

// plainly is an error without its fix, which stands beside it in reports.
func plainly(err error) string {
	if e := (*errs.Error)(nil); errors.As(err, &e) {
		return (&errs.Error{Op: e.Op, Name: e.Name, Msg: e.Msg, Err: e.Err}).Error()
	}
	return err.Error()
}

// fileSystem is the number of the device that f lies on.
func fileSystem(f *vfs.File) uint64 {
	var st unix.Stat_t
	if f.Pin() != nil {
		return 0
	}
	defer f.Unpin()
	if unix.Fstat(f.BufferedFD(), &st) != nil {
		return 0
	}
	return st.Dev
}
