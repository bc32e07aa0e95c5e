// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Peers is whether storage may reach a GPU's memory past the CPU, judged
// without opening cuFile.
type Peers struct {
	Plausible   bool
	Reason, Fix string // why it is not
}

// How the route cufile reads. Pieces of 16 MiB reach the disk's rate; requests
// of a batch are smaller, because larger ones were seen to fail while the
// library makes its slabs. Batches stay small: in compatibility mode the library
// waits for ever for a slab when more are under way than it has, 64 of a size.
const (
	cuFileChunk   = 16 * units.MiB
	cuFileRequest = 1 * units.MiB
	cuFileThreads = 8
	cuFileBatches = 2
	cuFileGroup   = 16
)

// mostRows bounds the rows that a transfer by the route cufile reads one by one:
// each is a piece of the plan, which is kept in memory.
const mostRows = 4 << 20

// place is a device and a file system, for which plausibility is judged once.
type place struct {
	dev string
	fs  uint64
}

// cuFileUse is one transfer's use of the library.
type cuFileUse struct {
	lib    *library
	opened bool // by this transfer
	alone  bool // no other transfer used it at any time meanwhile
	number int64
	files  []*known
	before device.DirectCounters

	counters   device.DirectCounters
	registered int64
	unregister []func() error
	batchErr   error        // why reads of a batch were made one by one; guarded by mu
	bases      [][]extentOf // registered memory by file, complete before the file's first chunk

	mu      sync.Mutex
	refused *report.Refusal // the first reason not to take the route
}

// extentOf is registered memory of the device.
type extentOf struct {
	base device.Ptr
	size int64
}

func (x extentOf) Ptr() device.Ptr { return x.base }
func (x extentOf) Size() int64     { return x.size }
func (x extentOf) Free() error     { return nil }

// refuse notes why cuFile is not used; the first reason stays.
func (u *cuFileUse) refuse(on, reason, fix string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refused == nil {
		u.refused = &report.Refusal{What: "cufile", On: on, Reason: reason, Fix: fix}
	}
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

// Words of a refusal for which counters have spoken.
const (
	wasCompat = "earlier moves of this process on the same file system went through host memory: cuFile made posix operations alone"
	fixCompat = "run nebulaio doctor on the file; it names what stands between"
)

// useCuFile decides before the first chunk whether a file is read through
// cuFile, and makes ready what that needs. An error ends the transfer: the
// route was asked for and is refused.
func (t *Transfer) useCuFile(ctx context.Context, file int) (bool, error) {
	must := t.req.Route == report.RouteCuFile
	if !must && (t.req.Route != report.RouteAuto || t.port.mapper != nil || t.req.Device.Info().Kind == device.Host || t.e.opts.Peers == nil) {
		return false, nil
	}
	u, f := &t.cu, t.req.Files[file]
	if u.files[file] != nil {
		return true, nil
	}
	lib := t.e.libraryOf(t.port)
	if !must {
		if f.Pooled() {
			u.refuse(f.Path(), "the model has more files than may be open at once, and cuFile keeps each of them open", "raise the limit on open files: ulimit -n")
			return false, nil
		}
		if len(t.peers) > 0 {
			u.refuse(f.Path(), "several devices get the same bytes, and cuFile moves them to one", "start a transfer for each device")
			return false, nil
		}
		if p := t.e.peers(f, t.req.Device.Info()); !p.Plausible {
			u.refuse(f.Path(), p.Reason, p.Fix)
			return false, nil
		}
		lib.mu.Lock()
		route := lib.proved[fileSystem(f)]
		lib.mu.Unlock()
		if route == device.RouteCompat {
			u.refuse(f.Path(), wasCompat, fixCompat)
			return false, nil
		}
		if !t.sumsInPlace(file) {
			u.refuse(f.Path(), "verification needs every byte in the CPU's reach: the device does not sum what it gets", "see what keeps it from that, or load without verification")
			return false, nil
		}
	}
	opened, err := lib.open(ctx, t.e, t.req.Device, must)
	u.opened = u.opened || opened
	var k *known
	if err == nil {
		// In compatibility mode what is cached comes seven times as fast from there.
		cached := must && t.e.opts.Peers != nil && !t.e.peers(f, t.req.Device.Info()).Plausible && plan.Cached(f)
		k, err = lib.file(f, cached)
	}
	if err != nil {
		if must {
			return false, err
		}
		u.refuse(f.Path(), plainly(err), errs.FixOf(err))
		return false, nil
	}
	u.files[file] = k
	if u.lib == nil {
		if err := t.enterCuFile(lib); err != nil {
			return false, err
		}
	}
	t.register(file)
	return true, nil
}

// piece is the size of reads through cuFile.
func (o Options) piece() int64 {
	n := int64(cuFileChunk)
	if o.CuFile == report.CuFileBatch {
		n = cuFileRequest
	}
	if o.MaxTransfer > 0 {
		n = min(n, o.MaxTransfer&^(minTransfer-1))
	}
	return n
}

// plainly is an error without its fix, which stands beside it in reports.
func plainly(err error) string {
	if e := (*errs.Error)(nil); errors.As(err, &e) {
		return (&errs.Error{Op: e.Op, Name: e.Name, Msg: e.Msg, Err: e.Err}).Error()
	}
	return err.Error()
}

// enterCuFile counts the transfer in. What the caller's stream has queued may
// still use the destinations, and cuFile is in no order with it: it is waited for.
func (t *Transfer) enterCuFile(lib *library) error {
	u := &t.cu
	lib.mu.Lock()
	lib.entered++
	u.lib, u.alone, u.number = lib, lib.users == 0, lib.entered
	lib.users++
	lib.mu.Unlock()
	u.before = lib.count()
	if !t.req.HasStream {
		return nil
	}
	return t.port.passed()
}

// leastRegistered is below which registering memory costs more than it saves;
// mostRegistered bounds the ranges of a transfer.
const (
	leastRegistered = 16 * units.MiB
	mostRegistered  = 64
)

// register prepares the destinations of a file where counters have shown that
// its bytes come directly: then the library needs no copy of its own. In
// compatibility mode it would only pin memory.
func (t *Transfer) register(file int) {
	u := &t.cu
	u.lib.mu.Lock()
	direct, route := u.lib.direct, u.lib.proved[fileSystem(t.req.Files[file])]
	u.lib.mu.Unlock()
	if route != device.RouteP2P && route != device.RouteNVFS {
		return
	}
	var runs []extentOf
	for _, s := range t.req.Segments {
		if n, wanted := len(runs), s.Wanted(); s.File == file && wanted > 0 {
			if n > 0 && runs[n-1].base+device.Ptr(runs[n-1].size) == s.Dst {
				runs[n-1].size += wanted
			} else {
				runs = append(runs, extentOf{s.Dst, wanted})
			}
		}
	}
	for _, x := range runs {
		if x.size < leastRegistered || len(u.unregister) == mostRegistered {
			continue
		}
		undo, err := direct.Register(x)
		if err != nil {
			continue // it works without, through a copy of the library's
		}
		u.unregister = append(u.unregister, undo)
		u.bases[file] = append(u.bases[file], x)
		u.registered += x.size
	}
}

// baseOf is the registered memory that a chunk goes to and its place in there.
func (u *cuFileUse) baseOf(c plan.Chunk) (device.Ptr, int64) {
	for _, x := range u.bases[c.File] {
		if c.Dst >= x.base && int64(c.Dst-x.base)+c.Len <= x.size {
			return x.base, int64(c.Dst - x.base)
		}
	}
	return c.Dst, 0
}

// leaveCuFile reads the counters and gives back what the transfer had; none of
// its reads is under way any more.
func (t *Transfer) leaveCuFile() error {
	u := &t.cu
	if u.lib == nil {
		return nil
	}
	var all []error
	for _, undo := range u.unregister {
		all = append(all, undo())
	}
	lib := u.lib
	u.counters = lib.count().Minus(u.before)
	lib.mu.Lock()
	u.alone = u.alone && lib.entered == u.number
	lib.users--
	if route := u.counters.ReadRoute(); t.tally.cuFileBytes() > 0 && route != device.RouteNone && route != device.RouteUnknown {
		for i, k := range u.files {
			if k != nil {
				lib.proved[fileSystem(t.req.Files[i])] = route
			}
		}
	}
	lib.mu.Unlock()
	for i, k := range u.files {
		if k != nil {
			all = append(all, lib.forget(t.req.Files[i]))
		}
	}
	return errors.Join(all...)
}

// peers judges once for each device and file system.
func (e *Engine) peers(f *vfs.File, dev device.Info) Peers {
	at := place{dev.ID, fileSystem(f)}
	e.mu.Lock()
	p, ok := e.judged[at]
	e.mu.Unlock()
	if ok {
		return p
	}
	p = e.opts.Peers(f.Locate(), dev)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.judged[at] = p
	return p
}
