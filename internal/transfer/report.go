// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// RouteTaken is a route as it was really taken by bytes.
type RouteTaken string

const (
	// RouteTakenCache: the bytes were in the page cache when they were read.
	RouteTakenCache RouteTaken = "page_cache"
	// RouteTakenBuffered: the bytes were fetched from storage into the page
	// cache and copied from there.
	RouteTakenBuffered RouteTaken = "buffered"
	// RouteTakenDirect: the bytes came from storage past the page cache (O_DIRECT).
	RouteTakenDirect RouteTaken = "direct"
	// RouteTakenCuFileP2P and the next: libcufile read the bytes, and its own
	// counters show how: from the disk to the GPU by the kernel's P2PDMA, by
	// nvidia-fs, or through host memory.
	RouteTakenCuFileP2P    RouteTaken = "cufile_p2p"
	RouteTakenCuFileNVFS   RouteTaken = "cufile_nvfs"
	RouteTakenCuFileCompat RouteTaken = "cufile_compat"
	// RouteTakenCuFileUnknown: the counters show several ways, or are not there.
	RouteTakenCuFileUnknown RouteTaken = "cufile_unknown"
	// RouteTakenDirectUnproven and the next: the bytes were read with O_DIRECT, or
	// through the page cache, from storage that hides where they came from; see
	// FileReport.Unproven.
	RouteTakenDirectUnproven   RouteTaken = "direct_unproven"
	RouteTakenBufferedUnproven RouteTaken = "buffered_unproven"
	// RouteTakenNetwork: the bytes came out of, or went into, connections to a server.
	RouteTakenNetwork RouteTaken = "network"
)

// FileRoutes returns the routes by which bytes of a local file are read without cuFile, in the order of reports.
func FileRoutes() []RouteTaken {
	return []RouteTaken{RouteTakenCache, RouteTakenBuffered, RouteTakenBufferedUnproven,
		RouteTakenDirect, RouteTakenDirectUnproven}
}

// Report says how a transfer went. It is plain data, the same in every language.
type Report struct {
	// Direction is "load", from files to a device, or "save", from devices to
	// a file.
	Direction string `json:"direction"`

	Device      DeviceReport    `json:"device"`
	Asked       Asked           `json:"asked"`
	Bytes       int64           `json:"bytes"`
	*ReadReport                 // nil: this was a save
	Seconds     float64         `json:"seconds"`
	GBps        float64         `json:"gbps"`
	Routes      []RouteReport   `json:"routes"`
	Stages      []StageReport   `json:"stages"`
	Limiting    string          `json:"limiting_stage"`
	Engine      EngineReport    `json:"engine"`
	Peers       []PeerReport    `json:"peers,omitempty"` // other devices that got the same bytes
	Files       []FileReport    `json:"files"`
	Refusals    []RefusalReport `json:"refusals"`
	Notes       []string        `json:"notes"`
	Verify      *VerifyReport   `json:"verify,omitempty"`  // nil: nothing was verified
	CuFile      *CuFileReport   `json:"cufile,omitempty"`  // nil: libcufile took no part
	Network     *NetworkReport  `json:"network,omitempty"` // nil: no byte went over one
	Error       string          `json:"error,omitempty"`

	Save *SaveReport `json:"save,omitempty"` // nil: this was a load
}

// ReadReport holds what was read against what was wanted. A read holds more
// than is wanted where it passes over a gap, where its ends are not aligned and
// it goes past the page cache, and where blocks are verified.
type ReadReport struct {
	Wanted int64 `json:"wanted_bytes"` // delivered
	// Read is what was asked of the files; what the kernel reads ahead or to
	// fill a page of its cache is not in it.
	Read int64 `json:"read_bytes"`
	// Amplification is Read per byte wanted, 0 where none was.
	Amplification float64 `json:"read_amplification"`
}

// DeviceReport names the device that the bytes went to.
type DeviceReport struct {
	ID    string      `json:"id"`
	Kind  device.Kind `json:"kind"`
	Model string      `json:"model"`
}

// Asked repeats what the caller wanted.
type Asked struct {
	Route Route       `json:"route"`
	Cache CachePolicy `json:"cache"`
}

// RouteReport is one route's share.
type RouteReport struct {
	Route  RouteTaken `json:"route"`
	Bytes  int64      `json:"bytes"`
	Chunks int64      `json:"chunks"`
	// Span is from the first read's start to the last one's end, and GBps the
	// rate within it.
	Span float64 `json:"span_seconds"`
	GBps float64 `json:"gbps"`
}

// StageReport is one stage's time. Busy adds up all workers and exceeds the
// elapsed time where several work at once.
type StageReport struct {
	Stage string  `json:"stage"`
	Busy  float64 `json:"busy_seconds"`
	Span  float64 `json:"span_seconds,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
	GBps  float64 `json:"gbps,omitempty"`
}

// EngineReport is how the engine was set up.
type EngineReport struct {
	Workers      int    `json:"workers"`
	QueueDepth   int    `json:"queue_depth"`
	ChunkSize    int64  `json:"chunk_size"` // of page-cache copies
	BlockSize    int64  `json:"block_size"` // of reads from storage
	IO           string `json:"io"`         // what direct reads used: "uring", "pread", "unused"
	StagingSize  int64  `json:"staging_size"`
	StagingUsed  bool   `json:"staging_used"` // false: bytes were read into place
	HugePages    int64  `json:"staging_huge_pages"`
	StagingState string `json:"staging"` // "pinned", "not pinned", "unused", "host memory"
	// Node is the NUMA node that threads and staging keep to, nil: none.
	Node *int `json:"numa_node,omitempty"`
}

// FileReport is one source file.
type FileReport struct {
	Path   string      `json:"path"`
	FS     string      `json:"file_system"`
	Size   int64       `json:"size"`
	Cache  CachePolicy `json:"cache"` // the policy in force
	Probe  string      `json:"residency_probe"`
	Direct bool        `json:"direct_possible"`
	// Unproven says why routes below the page cache cannot be proven for this
	// file; empty where they can.
	Unproven string `json:"unproven,omitempty"`
	// Left are bytes that the load brought into the page cache and that stay
	// there, though the policy in force is CacheBypass.
	Left int64 `json:"cache_left_bytes,omitempty"`
}

// RefusalReport is a faster way that was not open, why, and what to do.
type RefusalReport struct {
	What   string `json:"what"` // "direct", "cufile", "pinned staging", "residency"
	On     string `json:"on"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// Report tells how an ended transfer went; it blocks until Done.
func (t *Transfer) Report() Report {
	<-t.done
	if t.save != nil {
		return t.saveReport()
	}
	y := &t.tally
	info := t.req.Device.Info()
	r := Report{Direction: "load",
		Device: DeviceReport{ID: info.ID, Kind: info.Kind, Model: info.Model},
		Asked:  Asked{Route: t.req.Route, Cache: t.req.Cache},
		Bytes:  t.delivered.Load(), Seconds: t.wall.Seconds(), GBps: units.GBps(t.delivered.Load(), t.wall),
		Routes: []RouteReport{}, Refusals: []RefusalReport{}, Notes: []string{},
	}
	if t.result != nil {
		r.Error = t.result.Error()
	}
	y.mu.Lock()
	for _, name := range append(FileRoutes(), RouteTakenNetwork) {
		if a := y.route(name); a.bytes > 0 {
			r.Routes = append(r.Routes, a.report(name))
		}
	}
	read := y.readReport(r.Bytes)
	r.ReadReport = &read
	r.Stages = y.stages()
	r.Limiting = y.limiting(t.wall)
	policies, cufile := y.policies, y.cufile
	y.mu.Unlock()
	t.describeFiles(&r, policies)
	t.describeCuFile(&r, cufile)
	t.describePeers(&r)
	t.describeEngine(&r)
	t.describeNetwork(&r)
	t.notes(&r)
	t.describeVerify(&r)
	r.noteUnproven()
	return r
}

// noteUnproven says in words why routes are not proven.
func (r *Report) noteUnproven() {
	for _, route := range r.Routes {
		if route.Route != RouteTakenDirectUnproven && route.Route != RouteTakenBufferedUnproven {
			continue
		}
		for _, f := range r.Files {
			if f.Unproven != "" {
				r.Notes = append(r.Notes, fmt.Sprintf("%s: that its bytes came from storage, or went there, past the page cache cannot be proven: %s", f.Path, f.Unproven))
			}
		}
		return
	}
}

// readReport adds up what was read to deliver wanted bytes; mu is held.
func (y *tally) readReport(wanted int64) ReadReport {
	r := ReadReport{Wanted: wanted, Read: y.extra.bytes + y.padding.Load() + y.cufile.bytes}
	for _, a := range y.routes {
		r.Read += a.bytes
	}
	if wanted > 0 {
		r.Amplification = float64(r.Read) / float64(wanted)
	}
	return r
}

func (y *tally) stages() []StageReport {
	stage := func(name string, a *account) StageReport {
		return StageReport{Stage: name, Busy: a.busy.Seconds(), Span: a.span.length().Seconds(), Bytes: a.bytes, GBps: units.GBps(a.bytes, a.span.length())}
	}
	out := []StageReport{{Stage: "plan", Busy: y.planTime.Seconds()}}
	if y.cached.chunks > 0 {
		out = append(out, stage("read_cache", &y.cached))
	}
	if y.direct.chunks > 0 {
		out = append(out, stage("read_direct", &y.direct))
	}
	if y.network.chunks > 0 {
		out = append(out, stage("read_network", &y.network))
	}
	if y.cufile.chunks > 0 {
		out = append(out, stage("read_cufile", &y.cufile))
	}
	if y.extra.chunks > 0 {
		out = append(out, stage("read_extra", &y.extra))
	}
	if y.verify.chunks > 0 {
		out = append(out, stage("verify", &y.verify))
	}
	if y.packing.chunks > 0 {
		out = append(out, stage("pack", &y.packing))
	}
	if y.copying.chunks > 0 {
		out = append(out, stage("copy", &y.copying), StageReport{Stage: "wait_copy", Busy: y.copyWait.Seconds()})
	}
	return out
}

// limiting names the stage that set the pace: storage where direct reads span
// nearly all of the time; the copy where readers come back to slots that are
// still being copied, a tenth of their time or more; else the reads out of the
// page cache.
func (y *tally) limiting(wall time.Duration) string {
	switch {
	case y.cufile.bytes > 0 && y.cufile.span.length() > wall*8/10:
		return "storage read by cuFile"
	case y.network.bytes > 0 && y.network.span.length() > wall*8/10:
		return y.networkLimit()
	case y.direct.bytes > 0 && y.direct.span.length() > wall*8/10:
		return "storage read"
	case y.route(RouteTakenBuffered).bytes+y.route(RouteTakenBufferedUnproven).bytes > y.cached.bytes/2:
		return "storage read through the page cache"
	case y.copyWait > (y.copyWait+y.cached.busy)/10:
		return "copy to device"
	case y.cached.bytes > 0 && y.packing.busy > max(y.cached.busy, y.verify.busy):
		return "packing of slices (CPU)"
	case y.cached.bytes > 0 && y.verify.busy > y.cached.busy:
		return "verification (CPU)"
	case y.cached.bytes > 0:
		return "page-cache read (CPU)"
	}
	return "none"
}

func (t *Transfer) describeFiles(r *Report, policies []CachePolicy) {
	for i, f := range t.req.Files {
		ok, why := f.Direct()
		method, probeWhy := f.Probe()
		fr := FileReport{Path: f.Path(), FS: f.FS().Name, Size: f.Size(), Probe: string(method), Direct: ok}
		if i < len(policies) {
			fr.Cache = policies[i]
		}
		if i < len(t.truths) {
			t.truths[i].describeTruth(r, &fr)
		}
		r.Files = append(r.Files, fr)
		if f.Remote() != nil {
			r.Notes = append(r.Notes, f.Remote().Notes()...)
			continue
		}
		if why != nil {
			r.Refusals = append(r.Refusals, RefusalReport{What: "direct", On: f.Path(), Reason: why.Reason, Fix: why.Fix})
		}
		if method != vfs.ProbeCachestat && !f.FS().Memory {
			r.Refusals = append(r.Refusals, RefusalReport{What: "residency", On: f.Path(), Reason: probeWhy,
				Fix: residencyFix(method, f.FS().Name)})
		}
	}
}

// residencyFix says how the kernel could be made to tell more.
func residencyFix(m vfs.ProbeMethod, fs string) string {
	switch {
	case fs == "overlayfs":
		return "keep the file on a volume of its own instead of the container's layers"
	case m == vfs.ProbeMincore:
		return "use kernel 6.5 or later"
	}
	return "load as the file's owner or with write permission"
}

func (t *Transfer) describeEngine(r *Report) {
	e := t.e
	e.mu.Lock()
	io := e.io
	used, viaSlots := t.prepared != [ways]bool{}, t.prepared[viaDirect]
	e.mu.Unlock()
	r.Engine = EngineReport{Workers: e.opts.Workers, QueueDepth: e.opts.QueueDepth, ChunkSize: e.opts.MaxTransfer, BlockSize: e.opts.block,
		IO: "unused", StagingUsed: used, StagingState: "unused", Node: e.node()}
	switch {
	case t.tally.directBytes() == 0:
	case viaSlots:
		r.Engine.IO = string(io)
	default:
		r.Engine.IO = string(IOPread)
	}
	if !used {
		return
	}
	r.Engine.StagingSize = e.opts.staging()
	r.Engine.HugePages = e.pool.backing().HugePages
	r.Engine.StagingState = "pinned"
	if t.req.Device.Info().Kind == device.Host {
		r.Engine.StagingState = "host memory"
	} else if err := e.pool.pinError(); err != nil {
		r.Engine.StagingState = "not pinned"
		r.Refusals = append(r.Refusals, RefusalReport{What: "pinned staging", On: t.req.Device.Info().ID, Reason: err.Error(), Fix: errs.FixOf(err)})
	}
}

func (t *Transfer) notes(r *Report) {
	if n := t.tally.dirty.Load(); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s lay in pieces with dirty pages, newer in memory than on disk, and went through the page cache", units.Bytes(n)))
	}
	for _, f := range r.Files {
		if f.Cache == CacheKeep && t.req.Cache != CacheKeep {
			r.Notes = append(r.Notes, f.Path+" was cold again: this load keeps it in the page cache (cache policy auto)")
		}
	}
	if r.Device.Kind == device.Host {
		r.Notes = append(r.Notes, "the device is host memory: no GPU took part")
	}
}

func errDirect(f *vfs.File, why *vfs.Refusal) error {
	if why == nil {
		why = &vfs.Refusal{Reason: "unknown"}
	}
	return errs.New(errs.Unsupported, "read past the page cache", f.Path(), why.Reason).WithFix("use route auto, or: " + why.Fix)
}

func copyError(t *Transfer, c chunk, err error) error {
	return errs.Wrap(fmt.Sprintf("copy %d bytes from offset %d of", c.len, c.off), t.req.Files[c.file].Path()+" to "+t.req.Device.Info().ID, err)
}
