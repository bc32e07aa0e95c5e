// SPDX-License-Identifier: Apache-2.0

// Package process suspends, resumes, dumps and restores whole processes. The GPU driver moves the GPU memory of a
// process, criu moves the rest, and the engine streams the images to a file or an object.
//
// Before a process is touched, package process says what stands in the way. An operation that fails leaves the process
// as it was. If that is not possible, its error says in which state the process is.
package process

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process/target"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Driver suspends processes. A Driver that is nil, with the reason in Why, means that there is no usable GPU driver:
// then only processes without a GPU can be dumped.
type Driver struct {
	device.Processes
	Why error
}

// Obstacle is a fact that makes it hard or impossible to suspend a process.
type Obstacle struct {
	What   string `json:"what"` // such as "mps" or "ipc"
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
	// Blocks is true if the operation is refused because of the obstacle, unless it is forced.
	Blocks bool `json:"blocks"`
}

// Step is one step of an operation.
type Step struct {
	Step    string  `json:"step"` // such as "lock" or "checkpoint"
	Seconds float64 `json:"seconds"`
}

// Report says what an operation did.
type Report struct {
	Op      string              `json:"op"` // suspend, resume, dump or restore
	PID     int                 `json:"pid"`
	Name    string              `json:"name"`
	State   device.ProcessState `json:"state"` // after the operation
	Driver  string              `json:"driver,omitempty"`
	Seconds float64             `json:"seconds"`
	Steps   []Step              `json:"steps"`
	// GPUBytes is the GPU memory that was freed or taken, and GBps its rate in the step that moved it.
	GPUBytes int64   `json:"gpu_bytes"`
	GBps     float64 `json:"gpu_gbps,omitempty"`
	// GPUsBefore and GPUsAfter are the memory of the GPUs, or empty if the driver does not tell.
	GPUsBefore []device.ProcessMemory `json:"gpus_before,omitempty"`
	GPUsAfter  []device.ProcessMemory `json:"gpus_after,omitempty"`
	// ResidentBefore and ResidentAfter are the host memory of the process in bytes.
	ResidentBefore int64      `json:"resident_before"`
	ResidentAfter  int64      `json:"resident_after"`
	Obstacles      []Obstacle `json:"obstacles"`
	Notes          []string   `json:"notes"`
	// Storage is the file that has the GPU memory of a process that was suspended to storage.
	Storage string `json:"storage,omitempty"`
	// Image describes the image of a dump or restore.
	Image *ImageReport `json:"image,omitempty"`
}

// ImageReport describes the image of a dumped process.
type ImageReport struct {
	Path     string `json:"path"`
	Files    int    `json:"files"`     // image files of criu
	Bytes    int64  `json:"bytes"`     // of the image files
	Size     int64  `json:"size"`      // of the image in storage
	Pages    int64  `json:"pages"`     // bytes of memory pages
	CRIU     string `json:"criu"`      // version
	Verified bool   `json:"verified"`  // all checksums were compared before the restore
	Routes   Routes `json:"routes"`    // bytes by route to or from storage
	DumpedBy string `json:"dumped_by"` // the criu that made the image, such as "criu 4.1.1"
}

// Routes counts bytes by the route that they took.
type Routes map[string]int64

// run measures the steps of one operation.
type run struct {
	ctx    context.Context
	report *Report
	begun  time.Time
	say    func(text string)
}

func begin(ctx context.Context, op string, p *target.Process, say func(string)) *run {
	if say == nil {
		say = func(string) {}
	}
	return &run{ctx: ctx, begun: time.Now(), say: say, report: &Report{Op: op, PID: p.PID, Name: p.Name,
		State: device.ProcessRunning, Steps: []Step{}, Obstacles: []Obstacle{}, Notes: []string{},
		ResidentBefore: p.Resident}}
}

// step runs one step. A step that waits for the driver or criu cannot be cancelled: after an interrupt, step says so.
func (r *run) step(name, text string, f func() error) error {
	r.say(text)
	start := time.Now()
	stop := context.AfterFunc(r.ctx, func() { r.say("interrupted: waiting until the process can be put back") })
	err := f()
	stop()
	r.report.Steps = append(r.report.Steps, Step{Step: name, Seconds: time.Since(start).Seconds()})
	return err
}

// secondsOf returns the time of a step.
func (r *Report) secondsOf(name string) float64 {
	var sum float64
	for _, s := range r.Steps {
		if s.Step == name {
			sum += s.Seconds
		}
	}
	return sum
}

// cancelled returns an error if the operation was interrupted.
func (r *run) cancelled() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return &errs.Error{Kind: errs.Cancelled, Op: r.report.Op + " process", Name: fmt.Sprint(r.report.PID),
		Err: context.Cause(r.ctx)}
}

// find looks at a process and refuses ones that cannot be a target at all.
func find(t target.Tree, op string, pid, self int) (*target.Process, error) {
	if pid == self {
		return nil, errs.New(errs.Invalid, op+" process", fmt.Sprint(pid), "is this command itself").
			WithFix("give the id of another process")
	}
	return target.Read(t, pid)
}

// releaseWithIPC is the first release of the driver that suspends processes with shared GPU memory.
const releaseWithIPC = 610

// releaseOf returns the first number of a driver's name such as "580.95 (CUDA 13.0)", or 0 if it has none.
func releaseOf(driver string) int {
	number, _, ok := strings.Cut(driver, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return 0
	}
	return n
}

// obstacles returns what stands in the way of a suspension by a driver.
func obstacles(p *target.Process, gpus []device.ProcessMemory, driver string) []Obstacle {
	var all []Obstacle
	add := func(blocks bool, what, fix, detail string, args ...any) {
		all = append(all, Obstacle{What: what, Detail: fmt.Sprintf(detail, args...), Fix: fix, Blocks: blocks})
	}
	if p.Tracer != 0 {
		add(true, "traced", "detach the debugger first", "process %d traces it", p.Tracer)
	}
	if p.MPS != "" {
		add(true, "mps", "start the process without MPS", "it is a client of the MPS daemon in %s", p.MPS)
	}
	if len(p.IPC) > 0 {
		add(releaseOf(driver) < releaseWithIPC, "ipc", fmt.Sprintf(
			"end the sharing of GPU memory between processes, or install driver %d or newer", releaseWithIPC),
			"it shares GPU memory with other processes (CUDA IPC): %s", strings.Join(p.IPC, ", "))
	}
	if len(p.NCCL) > 0 {
		add(true, "nccl", "destroy the process group first, or start with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1",
			"NCCL shares memory with other ranks: %s", strings.Join(p.NCCL, ", "))
	}
	if p.Managed > 0 {
		add(false, "managed", "", "%s of /dev/nvidia-uvm are mapped; drivers without support for managed memory refuse it",
			units.Bytes(p.Managed))
	}
	var used []string
	for _, g := range gpus {
		if g.Bytes > 0 {
			used = append(used, g.GPU)
			if g.MIG {
				add(false, "mig", "", "%s is divided into MIG instances, which some drivers cannot suspend", g.GPU)
			}
		}
	}
	if len(used) > 1 {
		add(false, "several-gpus", "", "it uses %s; drivers suspend several GPUs of a process only without peer access",
			strings.Join(used, ", "))
	}
	return all
}

// refuse returns the error about the first obstacle that blocks, unless the operation is forced.
func refuse(op string, p *target.Process, all []Obstacle, force bool) error {
	for _, o := range all {
		if o.Blocks && !force {
			kind := errs.Unsupported
			if o.What == "memory" {
				kind = errs.NoMemory
			}
			return errs.New(kind, op+" process", p.Shown(), o.Detail+"; nothing was changed").
				WithFix(o.Fix + "; --force tries it all the same")
		}
	}
	return nil
}

// heldBy returns the GPU memory that a process uses. known is false if the driver does not tell: then bytes is the used
// memory of all GPUs, which is at least as much.
func heldBy(gpus []device.ProcessMemory) (bytes int64, known bool) {
	known = len(gpus) > 0
	for _, g := range gpus {
		if g.Bytes < 0 {
			known = false
		} else {
			bytes += g.Bytes
		}
	}
	if known && bytes > 0 {
		return bytes, true
	}
	// In a container, the list of processes has the ids of the host: the process is not found on it.
	bytes = 0
	for _, g := range gpus {
		bytes += g.Used
	}
	return bytes, false
}

// moved returns how much GPU memory an operation has freed (a positive number) or taken.
func moved(before, after []device.ProcessMemory) int64 {
	var own, all int64
	known := len(before) > 0 && len(before) == len(after)
	for i := range before {
		if i >= len(after) {
			break
		}
		if before[i].Bytes < 0 || after[i].Bytes < 0 {
			known = false
		}
		own += before[i].Bytes - after[i].Bytes
		all += before[i].Used - after[i].Used
	}
	if known && own != 0 {
		return own
	}
	return all
}
