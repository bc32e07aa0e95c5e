// SPDX-License-Identifier: Apache-2.0

// Package blocklatency counts how long the requests of block devices take, in the kernel.
//
// Two small eBPF programs run at tracepoints of the block layer: one stores when a request goes to its device, the
// other adds its latency to a histogram. Nothing is copied to user space until Read. The programs are assembled at run
// time, because the fields of a tracepoint have other offsets in other kernels; no compiler is needed. The programs
// call no function of the kernel for GPL programs alone.
package blocklatency

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Sizes of the maps. A request that finds no room is not counted.
const (
	mostInFlight = 1 << 16
	mostBuckets  = 1 << 14
)

// Recorder counts the latencies of all block devices of the machine while it is open. A Recorder is safe for use by one
// goroutine at a time.
type Recorder struct {
	buckets *ebpf.Map
	closers []func() error
}

// Places returns the folders at which tracefs usually is.
func Places() []string { return []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} }

// Open starts to count. tracefs lists the folders in which Open looks for the tracepoints of the kernel.
//
// Open fails with kind Permission if the process may not load eBPF programs. Open fails with kind Unsupported if the
// kernel has no eBPF, no tracepoints of the block layer, or no mounted tracefs. Without root such errors are usual, so
// that callers report the reason and go on.
func Open(tracefs ...string) (*Recorder, error) {
	issue, complete, err := findEvents(tracefs)
	if err != nil {
		return nil, err
	}
	// Kernels before 5.11 count maps as locked memory. If the limit cannot be raised, the maps may still fit.
	_ = rlimit.RemoveMemlock()
	r := &Recorder{}
	if err := r.start(issue, complete); err != nil {
		return nil, errors.Join(explained(err), r.Close())
	}
	return r, nil
}

// start makes the maps and attaches the programs. Close frees them, also after an error.
func (r *Recorder) start(issue, complete event) error {
	starts, err := r.newMap(&ebpf.MapSpec{Name: "nebulaio_starts", Type: ebpf.LRUHash, KeySize: 16, ValueSize: 8,
		MaxEntries: mostInFlight})
	if err != nil {
		return err
	}
	if r.buckets, err = r.newMap(&ebpf.MapSpec{Name: "nebulaio_blocks", Type: ebpf.Hash, KeySize: 8, ValueSize: 8,
		MaxEntries: mostBuckets}); err != nil {
		return err
	}
	// Completions are counted from the first issue on, so that their program is attached first.
	if err := r.attach(complete, completed(complete, starts.FD(), r.buckets.FD())); err != nil {
		return err
	}
	return r.attach(issue, issued(issue, starts.FD()))
}

func findEvents(tracefs []string) (issue, complete event, err error) {
	for _, dir := range tracefs {
		if issue, err = readEvent(dir, "block_rq_issue"); err != nil {
			if errs.Is(err, errs.NotFound) {
				continue
			}
			return issue, complete, err
		}
		complete, err = readEvent(dir, "block_rq_complete")
		return issue, complete, err
	}
	return issue, complete, errs.New(errs.Unsupported, "count latencies of block devices", "",
		"tracefs is not mounted, or has no tracepoints of the block layer").
		WithFix("mount -t tracefs nodev /sys/kernel/tracing")
}

func readEvent(dir, name string) (event, error) {
	var text [2]string
	for i, file := range []string{"id", "format"} {
		b, err := os.ReadFile(filepath.Join(dir, "events/block", name, file))
		if err != nil {
			return event{}, explained(err)
		}
		text[i] = string(b)
	}
	return parseEvent(name, text[0], text[1])
}

// explained turns an error of the kernel into one that says what to do.
func explained(err error) error {
	const op = "count latencies of block devices"
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return &errs.Error{Kind: errs.Permission, Op: op, Msg: "this user may not load eBPF programs",
			Fix: "run as root, or with CAP_BPF and CAP_PERFMON"}
	case errors.Is(err, unix.ENOSYS), errors.Is(err, ebpf.ErrNotSupported):
		return &errs.Error{Kind: errs.Unsupported, Op: op, Msg: "this kernel has no eBPF", Err: err}
	case errors.Is(err, os.ErrNotExist):
		return &errs.Error{Kind: errs.NotFound, Op: op, Err: err}
	}
	return errs.Wrap(op, "", err)
}

func (r *Recorder) newMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err == nil {
		r.closers = append(r.closers, m.Close)
	}
	return m, err
}

// attach loads a program and runs it at each event on all processors.
func (r *Recorder) attach(e event, code asm.Instructions) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "nebulaio_block", Type: ebpf.TracePoint, Instructions: code,
		License: "Apache-2.0"})
	if err != nil {
		return err
	}
	r.closers = append(r.closers, program.Close)
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: e.id, Sample: 1, Wakeup: 1},
		-1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { return unix.Close(fd) })
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD()); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
}

// Read returns the histograms since Open, sorted by device and operation.
func (r *Recorder) Read() ([]Histogram, error) {
	counts := map[uint64]uint64{}
	var key, n uint64
	all := r.buckets.Iterate()
	for all.Next(&key, &n) {
		counts[key] = n
	}
	if err := all.Err(); err != nil {
		return nil, explained(err)
	}
	return histograms(counts, diskName), nil
}

// Close stops counting and frees everything.
func (r *Recorder) Close() error {
	var all []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		all = append(all, r.closers[i]())
	}
	r.closers = nil
	return errors.Join(all...)
}
