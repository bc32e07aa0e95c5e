// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Texts of a refusal that is based on the counters of libcufile.
const (
	wasCompat = "earlier moves of this process on the same file system went through host memory: cuFile made posix " +
		"operations alone"
	fixCompat = "run nebulaio doctor on the file; it names what stands between"
)

// cuFileUse is one load's use of libcufile.
type cuFileUse struct {
	e      *lane
	req    *Request
	port   *port
	verify *verifier
	tally  *tally.Tally

	lib    *library // nil if libcufile is not used
	opened bool     // this load opened libcufile
	alone  bool     // no other load used libcufile at the same time
	number int64
	files  []*known
	before device.DirectCounters

	counters   device.DirectCounters
	registered int64
	unregister []func() error
	batchErr   error        // why reads of a batch were made one by one; guarded by mu
	bases      [][]extentOf // registered memory by file, complete before the file's first chunk

	mu      sync.Mutex
	refused *report.Refusal // the first reason why cuFile is not used
	packed  *left           // the first file of which bytes are packed, which cuFile cannot do; or nil
	early   *left           // the first file of which bytes were planned before its direct path was judged; or nil
	ahead   int64           // the number of these bytes
}

// left is a file of which cuFile left bytes without being refused. The report may be asked for when the file is closed.
type left struct {
	file   *vfs.File // used while the load runs
	path   string
	judged *judgement // whether cuFile could have read them; set at the end of the plan at the latest
}

// extentOf is a range of device memory that is registered with libcufile.
type extentOf struct {
	base device.Ptr
	size int64
}

func (x extentOf) Ptr() device.Ptr { return x.base }

func (x extentOf) Size() int64 { return x.size }

func (x extentOf) Free() error { return nil }

// refuse records why cuFile is not used. The first reason stays.
func (u *cuFileUse) refuse(on, reason, fix string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refused == nil {
		u.refused = &report.Refusal{What: "cufile", On: on, Reason: reason, Fix: fix}
	}
}

// chooses reports whether the load itself chooses between cuFile and other ways.
func (u *cuFileUse) chooses() bool {
	return u.req.Route == report.RouteAuto && u.port.mapper == nil && u.req.Device.Info().Kind != device.Host &&
		u.e.opts.DirectPath != nil
}

// passOver records that cuFile does not read bytes of a file, because they are packed in host memory.
func (u *cuFileUse) passOver(file int) {
	if !u.chooses() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.req.Files[file]; u.packed == nil {
		u.packed = &left{file: f, path: f.Path()}
	}
}

// planned is called at the end of each plan, while the files are open. It begins what the report has to tell.
func (u *cuFileUse) planned() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if x := u.packed; x != nil {
		x.judged = u.e.judgeLater(x.file, u.req.Device.Info())
	}
}

// mostAhead is the number of bytes that a load plans without cuFile while the direct path of their file is being
// judged: one window. A disk of 5 GB/s reads them in 13 ms, and the judgement takes 6 ms as a rule.
const mostAhead = plan.WindowSize

// goesAhead reports whether the next n bytes of a file are planned now, without cuFile, because the direct path of the
// file is still being judged.
func (u *cuFileUse) goesAhead(file int, n int64) bool {
	f := u.req.Files[file]
	if !u.chooses() || u.files[file] != nil || u.ahead+n > mostAhead || f.Pooled() || len(u.req.Peers) > 0 {
		return false
	}
	j := u.e.pending(f, u.req.Device.Info())
	if j == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ahead += n
	if u.early == nil {
		u.early = &left{file: f, path: f.Path(), judged: j}
	}
	return true
}

// reason returns why cuFile was not used for some bytes, or nil. If the real obstacle is known, it wins.
func (u *cuFileUse) reason() *report.Refusal {
	u.mu.Lock()
	refused, early, packed, ahead := u.refused, u.early, u.packed, u.ahead
	u.mu.Unlock()
	if refused != nil {
		return refused
	}
	for _, x := range []*left{early, packed} {
		if x == nil || x.judged == nil {
			continue
		}
		if p := x.judged.wait(); !p.Plausible {
			return &report.Refusal{What: "cufile", On: x.path, Reason: p.Reason, Fix: p.Fix}
		}
	}
	switch {
	case packed != nil:
		return &report.Refusal{What: "cufile", On: packed.path,
			Reason: "rows and small tensors are packed in host memory on their way, and cuFile writes to the device",
			Fix:    "none needed: cuFile may read tensors of 16 MiB or more"}
	case early != nil:
		return &report.Refusal{What: "cufile", On: early.path,
			Reason: units.Bytes(ahead) + " were read while it was found out whether a direct route to the GPU is plausible",
			Fix:    "none needed: later loads of the process know it from the start"}
	}
	return nil
}

// decide decides before the first chunk whether a file is read through cuFile, and prepares the file and memory. It
// returns an error if the caller asked for the route cufile and it is not possible.
func (u *cuFileUse) decide(ctx context.Context, file int) (bool, error) {
	must := u.req.Route == report.RouteCuFile
	if !must && !u.chooses() {
		return false, nil
	}
	f := u.req.Files[file]
	if u.files[file] != nil {
		return true, nil
	}
	lib := u.port.lib
	if !must {
		if f.Pooled() {
			u.refuse(f.Path(), "the model has more files than may be open at once, and cuFile keeps each of them open",
				"raise the limit on open files: ulimit -n")
			return false, nil
		}
		if len(u.req.Peers) > 0 {
			u.refuse(f.Path(), "several devices get the same bytes, and cuFile moves them to one",
				"start a transfer for each device")
			return false, nil
		}
		if p := u.e.directPath(f, u.req.Device.Info()); !p.Plausible {
			u.refuse(f.Path(), p.Reason, p.Fix)
			return false, nil
		}
		if lib.shown(fileSystem(f)) == device.RouteCompat {
			u.refuse(f.Path(), wasCompat, fixCompat)
			return false, nil
		}
		if !u.verify.worksInPlace(file) {
			u.refuse(f.Path(), "verification needs every byte in the CPU's reach: the device does not sum what it gets",
				"see what keeps it from that, or load without verification")
			return false, nil
		}
	}
	opened, err := lib.open(ctx, &u.e.opts, u.req.Device, must)
	u.opened = u.opened || opened
	var k *known
	if err == nil {
		// In compatibility mode, cached bytes are read seven times as fast through the page cache.
		cached := must && u.e.opts.DirectPath != nil && !u.e.directPath(f, u.req.Device.Info()).Plausible &&
			plan.Cached(f)
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
		if err := u.enter(lib); err != nil {
			return false, err
		}
	}
	u.register(file)
	return true, nil
}

// enter registers the load as a user of libcufile. Work on the caller's stream may still use the destinations and
// cuFile does not wait for the stream, so enter waits for the queued work.
func (u *cuFileUse) enter(lib *library) error {
	lib.mu.Lock()
	lib.entered++
	u.lib, u.alone, u.number = lib, lib.users == 0, lib.entered
	lib.users++
	lib.mu.Unlock()
	u.before = lib.count()
	if !u.req.HasStream {
		return nil
	}
	return u.port.passed()
}

// leastRegistered is the smallest range in bytes that is worth registering. mostRegistered is the largest number of
// registered ranges of a transfer.
const (
	leastRegistered = 16 * units.MiB
	mostRegistered  = 64
)

// register registers the destinations of a file if the counters have shown a direct route. libcufile then needs no
// buffer of its own. In compatibility mode, registration would only pin memory.
func (u *cuFileUse) register(file int) {
	direct, route := u.lib.opened(), u.lib.shown(fileSystem(u.req.Files[file]))
	if route != device.RouteP2P && route != device.RouteNVFS {
		return
	}
	var runs []extentOf
	for _, s := range u.req.Segments {
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
			continue // the read works without it, through a buffer of libcufile
		}
		u.unregister = append(u.unregister, undo)
		u.bases[file] = append(u.bases[file], x)
		u.registered += x.size
	}
}

// baseOf returns the registered memory of a chunk's destination, and the offset in it.
func (u *cuFileUse) baseOf(c plan.Chunk) (device.Ptr, int64) {
	for _, x := range u.bases[c.File] {
		if c.Dst >= x.base && int64(c.Dst-x.base)+c.Len <= x.size {
			return x.base, int64(c.Dst - x.base)
		}
	}
	return c.Dst, 0
}

// read reads the bytes of c after the first got bytes, and returns the number of bytes of c that are now delivered.
// Fewer bytes without an error mean the end of the file.
func (u *cuFileUse) read(c plan.Chunk, got int64) (int64, error) {
	for got < c.Len {
		// Memory that is not registered has no base, so a read with an offset would fail.
		base, off := u.baseOf(plan.Chunk{File: c.File, Dst: c.Dst + device.Ptr(got), Len: c.Len - got})
		n, err := u.files[c.File].Read(base, off, c.Len-got, c.Off+got)
		if got += max(n, 0); err != nil || n <= 0 {
			return got, err
		}
	}
	return got, nil
}

// leave reads the counters and ends the load's use of libcufile. No read of the load may be running.
func (u *cuFileUse) leave() error {
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
	if route := u.counters.ReadRoute(); u.tally.Sums().CuFile.Bytes > 0 && route != device.RouteNone &&
		route != device.RouteUnknown {
		for i, k := range u.files {
			if k != nil {
				lib.proved[fileSystem(u.req.Files[i])] = route
			}
		}
	}
	lib.mu.Unlock()
	for i, k := range u.files {
		if k != nil {
			all = append(all, lib.forget(u.req.Files[i]))
		}
	}
	return errors.Join(all...)
}

// route returns the route of the load's bytes by the counters of libcufile.
func (u *cuFileUse) route() report.RouteTaken {
	return taken(u.counters.Known, u.counters.Reads.Plus(u.counters.Batch))
}

// describe adds cuFile's part to the report: its counters, and the route that they show.
func (u *cuFileUse) describe(f *facts) {
	u.mu.Lock()
	batchErr := u.batchErr
	u.mu.Unlock()
	if refused := u.reason(); refused != nil {
		f.refusals = append(f.refusals, *refused)
	}
	if u.lib == nil {
		return
	}
	f.useLibrary(u.lib, u.e.opts.CuFile, u.opened, u.counters, u.counters.Reads)
	f.cufile.Registered, f.cufile.Others = u.registered, !u.alone
	for i, k := range u.files {
		if k != nil && k.cached {
			f.note(u.req.Files[i].Path() +
				" is in the page cache and no direct route to the GPU is plausible: cuFile reads it from there")
		}
	}
	if batchErr != nil {
		f.note("a batch failed and its reads were made one by one: " + batchErr.Error())
	}
	if f.sums.CuFile.Bytes == 0 {
		return
	}
	f.cufileRoute = u.route()
	if f.cufileRoute == report.RouteTakenCuFileUnknown {
		why := "the library did not count"
		if u.counters.Known {
			why = "its counters say: " + u.counters.Reads.Plus(u.counters.Batch).String()
		} else if f.cufile.Uncounted != "" {
			why = f.cufile.Uncounted
		}
		f.note("which way cuFile took is unknown: " + why)
	}
}
