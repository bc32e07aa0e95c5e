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

// library is libcufile for one device. The first transfer that needs libcufile opens it, and the engine closes it.
type library struct {
	mu      sync.Mutex // guards what follows
	direct  device.Direct
	err     error // why it could not be opened; the route auto does not try again
	facts   map[string]string
	uncount error // why libcufile does not count operations
	files   map[*vfs.File]*known
	proved  map[uint64]string // the route that the counters showed, by device number of the file system
	users   int               // transfers that use it now
	entered int64             // transfers that ever used it
}

// known is a file that is registered with libcufile, shared by all transfers of the file.
type known struct {
	device.DirectFile
	fd    int // -1 if the file's own descriptor is used
	users int
	// cached is set if the file is read through the page cache, because its data is there.
	cached bool
}

// newLibrary returns a library that is not open yet.
func newLibrary() *library {
	return &library{files: map[*vfs.File]*known{}, proved: map[uint64]string{}}
}

// open opens libcufile once. If again is set, open tries again after an earlier failure.
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

// count returns the counters of libcufile so far, or unknown counters if it does not count.
func (l *library) count() device.DirectCounters {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c device.DirectCounters
	if l.uncount == nil {
		c, l.uncount = l.direct.Counters()
	}
	return c
}

// file registers f with libcufile. It uses the O_DIRECT descriptor if there is one, which a direct path needs. If
// cached is set, it uses the page cache: no direct path is possible and the data is cached.
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
		_ = unix.Close(k.fd) // the file was only read
	}
}

// forget ends one use of a file. The last user deregisters the file.
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

// learn records the route that the counters have shown for the file system of a descriptor.
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

// close closes libcufile. No transfer may use it.
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

// opened returns the open libcufile. It must have been opened before.
func (l *library) opened() device.Direct {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.direct
}

// shown returns the route that the counters showed for a file system, or "" if none is known.
func (l *library) shown(fs uint64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proved[fs]
}

// cost returns a text with the cost of opening libcufile.
func (l *library) cost() string {
	return fmt.Sprintf("libcufile %s was opened for this; that makes a context on every visible GPU, here %s",
		l.facts["version"], l.facts["visible_gpus"])
}

// part returns libcufile's part of a report, without its counters.
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

// taken returns the route of bytes by the operations that libcufile counted.
func taken(known bool, ops device.RouteOps) report.RouteTaken {
	if known {
		switch route := ops.Route(); route {
		case device.RouteP2P, device.RouteNVFS, device.RouteCompat:
			return report.RouteTaken("cufile_" + route)
		}
	}
	return report.RouteTakenCuFileUnknown
}

// plainly returns the text of an error without its fix, because reports have a separate field for the fix.
func plainly(err error) string {
	if e := (*errs.Error)(nil); errors.As(err, &e) {
		return (&errs.Error{Op: e.Op, Name: e.Name, Msg: e.Msg, Err: e.Err}).Error()
	}
	return err.Error()
}

// fileSystem returns the device number of the file system of f.
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
