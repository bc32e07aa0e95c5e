// SPDX-License-Identifier: Apache-2.0

// Package target reads from /proc what another process is, and what makes it hard to suspend: shared GPU memory,
// managed memory, MPS or NCCL.
package target

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Tree is where the files of /proc and /sys are. The zero value of Tree means this machine; tests set other roots.
type Tree struct {
	Proc string // default "/proc"
	Sys  string // default "/sys"
	Run  string // folder in which MPS has its pipes by default; default "/tmp"
}

func (t Tree) filled() Tree {
	for _, f := range []struct {
		at    *string
		value string
	}{{&t.Proc, "/proc"}, {&t.Sys, "/sys"}, {&t.Run, "/tmp"}} {
		if *f.at == "" {
			*f.at = f.value
		}
	}
	return t
}

// Process holds the facts about one process.
type Process struct {
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	UID     int    `json:"uid"`
	// Started is the start of the process in clock ticks since the machine's. PID and Started identify a process.
	Started  uint64 `json:"started"`
	Threads  int    `json:"threads"`
	Resident int64  `json:"resident"` // host memory in bytes
	Tracer   int    `json:"tracer,omitempty"`

	// CUDA is true if the process has loaded the CUDA driver or holds a GPU open.
	CUDA bool `json:"cuda"`
	// GPUs are the numbers of the device files /dev/nvidiaN that the process holds open.
	GPUs []int `json:"gpus,omitempty"`
	// Managed is the number of bytes of /dev/nvidia-uvm that the process has mapped. Managed memory is mapped so.
	Managed int64 `json:"managed,omitempty"`
	// IPC and NCCL are the shared files by which the process exchanges GPU memory with other processes.
	IPC  []string `json:"ipc,omitempty"`
	NCCL []string `json:"nccl,omitempty"`
	// MPS is the folder of the MPS daemon whose client the process is.
	MPS string `json:"mps,omitempty"`
}

// mostFile limits how many bytes of a file of /proc are read.
const mostFile = 64 << 20

// Read returns the facts about a process. Read fails with kind NotFound if there is no such process or if it has ended,
// and with kind Permission if this user may not trace it.
func Read(t Tree, pid int) (*Process, error) {
	t = t.filled()
	if pid <= 0 {
		return nil, errs.New(errs.Invalid, "look at process", strconv.Itoa(pid), "expected a process id of 1 or more")
	}
	p := &Process{PID: pid}
	dir := filepath.Join(t.Proc, strconv.Itoa(pid))
	status, err := readFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil, p.gone(err)
	}
	if err := p.parseStatus(status); err != nil {
		return nil, err
	}
	stat, err := readFile(filepath.Join(dir, "stat"))
	if err != nil {
		return nil, p.gone(err)
	}
	if p.Started, err = parseStarted(stat); err != nil {
		return nil, errs.Wrap("look at process", strconv.Itoa(pid), err)
	}
	if line, err := readFile(filepath.Join(dir, "cmdline")); err == nil {
		p.Command = commandLine(line)
	}
	if err := p.mayTrace(dir); err != nil {
		return nil, err
	}
	maps, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil, p.gone(err)
	}
	defer maps.Close() // only read from
	if err := p.parseMaps(maps); err != nil {
		return nil, errs.Wrap("read the mappings of process", strconv.Itoa(pid), err)
	}
	p.readDescriptors(filepath.Join(dir, "fd"))
	environ, err := readFile(filepath.Join(dir, "environ"))
	if err != nil {
		return nil, p.gone(err)
	}
	p.findMPS(environ, t)
	return p, nil
}

// Same reports whether the process still runs and is the same one: ids are used again.
func Same(t Tree, p *Process) bool {
	stat, err := readFile(filepath.Join(t.filled().Proc, strconv.Itoa(p.PID), "stat"))
	if err != nil {
		return false
	}
	started, err := parseStarted(stat)
	return err == nil && started == p.Started && !ended(stat)
}

// Resident returns the host memory of a process in bytes, or 0 if it has ended.
func Resident(t Tree, pid int) int64 {
	status, err := readFile(filepath.Join(t.filled().Proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	var p Process
	_ = p.parseStatus(status) // an ended process has no memory
	return p.Resident
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	return io.ReadAll(io.LimitReader(f, mostFile))
}

// gone explains why a file of the process cannot be read.
func (p *Process) gone(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return errs.New(errs.NotFound, "look at process", strconv.Itoa(p.PID), "there is no such process").
			WithFix("list the processes with ps or nvidia-smi")
	case errors.Is(err, os.ErrPermission):
		return p.notOurs()
	}
	return errs.Wrap("look at process", strconv.Itoa(p.PID), err)
}

func (p *Process) notOurs() error {
	owner := strconv.Itoa(p.UID)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return errs.New(errs.Permission, "look at process", strconv.Itoa(p.PID), fmt.Sprintf(
		"%s belongs to the user %s, and this user may not trace it", p.Name, owner)).
		WithFix("run the command as root, or as " + owner + " with kernel.yama.ptrace_scope 0")
}

// mayTrace checks that this user may trace the process, as the driver and criu do. Opening the memory of a process
// needs the same right, and changes nothing.
func (p *Process) mayTrace(dir string) error {
	f, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return p.notOurs()
		}
		return p.gone(err)
	}
	return f.Close()
}

// parseStatus reads /proc/PID/status.
func (p *Process) parseStatus(text []byte) error {
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimSpace(value)
		first, _, _ := strings.Cut(value, "\t")
		switch name {
		case "Name":
			p.Name = value
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return errs.New(errs.NotFound, "look at process", strconv.Itoa(p.PID), p.Name+
					" has ended and waits for its parent (zombie)").WithFix("choose a running process")
			}
		case "Uid":
			p.UID, _ = strconv.Atoi(first)
		case "Threads":
			p.Threads, _ = strconv.Atoi(value)
		case "TracerPid":
			p.Tracer, _ = strconv.Atoi(value)
		case "VmRSS":
			p.Resident = kibibytes(value)
		}
	}
	return nil
}

// kibibytes reads a value such as "123 kB".
func kibibytes(value string) int64 {
	number, unit, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || strings.TrimSpace(unit) != "kB" || n < 0 || n > 1<<50 {
		return 0
	}
	return n << 10
}

// fieldsOfStat returns the fields of /proc/PID/stat after the name, which may contain any character. The first of them
// is the third of the file, the state.
func fieldsOfStat(text []byte) []string {
	_, rest, ok := strings.Cut(string(text[max(0, bytes.LastIndexByte(text, ')')):]), ")")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

func ended(stat []byte) bool {
	f := fieldsOfStat(stat)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

// parseStarted reads the start time of a process, field 22 of /proc/PID/stat.
func parseStarted(text []byte) (uint64, error) {
	const startTime = 22 - 3
	f := fieldsOfStat(text)
	if len(f) <= startTime {
		return 0, errs.New(errs.Invalid, "read", "stat", fmt.Sprintf("has %d fields, expected more than %d", len(f),
			startTime))
	}
	v, err := strconv.ParseUint(f[startTime], 10, 64)
	if err != nil {
		return 0, errs.New(errs.Invalid, "read", "stat", fmt.Sprintf("the start time is %q, expected a number",
			f[startTime]))
	}
	return v, nil
}

// mostCommand is the longest command line that is reported.
const mostCommand = 200

func commandLine(text []byte) string {
	s := strings.Join(strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 }), " ")
	if len(s) > mostCommand {
		s = strings.ToValidUTF8(s[:mostCommand], "") + "…"
	}
	return s
}

// parseMaps looks for libraries, devices and shared files among the mappings.
func (p *Process) parseMaps(r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<10)
	for in.Scan() {
		size, perms, name := parseMapping(in.Text())
		switch base := filepath.Base(name); {
		case name == "":
		case strings.HasPrefix(base, "libcuda.so"):
			p.CUDA = true
		case name == "/dev/nvidia-uvm" && strings.HasPrefix(perms, "rw"):
			p.Managed = min(p.Managed+size, 1<<62)
		case strings.HasPrefix(name, "/dev/shm/cuda.shm."):
			p.IPC = addName(p.IPC, name)
		case strings.HasPrefix(name, "/dev/shm/nccl-"):
			p.NCCL = addName(p.NCCL, name)
		}
	}
	return in.Err()
}

// mostNames is the number of shared files that are reported.
const mostNames = 8

func addName(all []string, name string) []string {
	name = strings.TrimSuffix(name, " (deleted)")
	if len(all) < mostNames && !slices.Contains(all, name) {
		return append(all, name)
	}
	return all
}

// parseMapping reads a line of /proc/PID/maps. The results of a malformed line are empty.
func parseMapping(line string) (size int64, perms, name string) {
	f := strings.SplitN(line, " ", 6)
	if len(f) < 6 {
		return 0, "", ""
	}
	lo, hi, ok := strings.Cut(f[0], "-")
	a, err1 := strconv.ParseUint(lo, 16, 64)
	b, err2 := strconv.ParseUint(hi, 16, 64)
	if !ok || err1 != nil || err2 != nil || b < a || b-a > 1<<62 {
		return 0, "", ""
	}
	return int64(b - a), f[1], strings.TrimLeft(f[5], " ")
}

// readDescriptors looks for open GPUs and for descriptors of NCCL's shared files. Descriptors may come and go.
func (p *Process) readDescriptors(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the mappings have told enough
	}
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if strings.HasPrefix(name, "/dev/shm/nccl-") {
			p.NCCL = addName(p.NCCL, name)
		}
		number, ok := strings.CutPrefix(name, "/dev/nvidia")
		n, err := strconv.Atoi(number)
		if ok && err == nil && n >= 0 && !slices.Contains(p.GPUs, n) {
			p.GPUs = append(p.GPUs, n)
			p.CUDA = true
		}
	}
	slices.Sort(p.GPUs)
}

// findMPS notes the folder of the MPS daemon, if it runs: the driver of the process connected to it then.
func (p *Process) findMPS(environ []byte, t Tree) {
	dir := filepath.Join(t.Run, "nvidia-mps")
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(entry, "CUDA_MPS_PIPE_DIRECTORY="); ok && value != "" {
			dir = value
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "control")); err == nil && p.CUDA {
		p.MPS = dir
	}
}

// Shown names a process for messages, such as "1234 (python)".
func (p *Process) Shown() string { return fmt.Sprintf("%d (%s)", p.PID, p.Name) }

// UsingCUDA returns the processes that have loaded the CUDA driver and that this user may trace, by their ids.
func UsingCUDA(t Tree) []*Process {
	entries, err := os.ReadDir(t.filled().Proc)
	if err != nil {
		return nil
	}
	var all []*Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // no process
		}
		if p, err := Read(t, pid); err == nil && p.CUDA {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *Process) int { return a.PID - b.PID })
	return all
}
