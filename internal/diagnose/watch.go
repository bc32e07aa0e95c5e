// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

// Limits of one look. A command with more processes or threads is judged by a part of them.
const (
	mostProcesses = 2048
	mostThreads   = 1024
	mostSockets   = 4096
)

// ticksPerSecond is the unit of processor time in /proc, which is the same on all machines.
const ticksPerSecond = 100

// watch looks at the processes of a command again and again, and adds up what their threads wait for.
type watch struct {
	proc procfs
	root int // the command
	self int // this process, which adopts processes whose parent has ended
	// others are children of this process that are not part of the command, and known are the processes that the command
	// has started, as of the last look.
	others, known map[int]bool

	looks int
	last  time.Time // of the last look
	// Looks at a command with many sockets take longer, and are rarer. What a look saw therefore counts for the seconds
	// since the last look.
	covered, storage, network float64
	ran, starved              float64 // seconds in which the busiest thread ran, and was ready and had no processor

	threads  map[int]spent // of each thread, at the last look
	networks networks

	moved        transferred
	user, system uint64 // ticks
	groups       []string
}

func newWatch(proc string, root, self int) *watch {
	return &watch{proc: procfs{proc}, root: root, self: self, others: map[int]bool{}, known: map[int]bool{},
		threads: map[int]spent{}, networks: newNetworks(procfs{proc})}
}

// processes returns the command's processes: the command, what it started, and what was adopted from it.
func (w *watch) processes() []int {
	all := []int{w.root}
	known := map[int]bool{}
	for _, pid := range w.proc.children(w.self) {
		if pid == w.root || w.others[pid] {
			continue
		}
		s, ok := parseStat(w.proc.read(strconv.Itoa(pid), "stat"))
		switch {
		case ok && s.state != 'Z':
			all = append(all, pid)
			known[pid] = w.known[pid]
		case w.known[pid]:
			bury(pid)
		}
	}
	for i := 0; i < len(all) && len(all) < mostProcesses; i++ {
		for _, pid := range w.proc.children(all[i]) {
			if !slices.Contains(all, pid) {
				all = append(all, pid)
				known[pid] = true
			}
		}
	}
	w.known = known
	return all
}

// bury takes note of the end of an adopted process, as its lost parent would have done.
func bury(pid int) {
	var status unix.WaitStatus
	_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil) // someone else may have done it
}

// spent is the time that a thread ran, and that it was ready and had no processor.
type spent struct{ ran, ready time.Duration }

// sight is what one look saw.
type sight struct {
	storage, sending, receiving, polling, running bool
	busiest                                       spent // of the busiest thread since the last look
}

// look looks at all threads and sockets of the command once.
func (w *watch) look(now time.Time) {
	gap := 0.0
	if !w.last.IsZero() {
		gap = max(now.Sub(w.last).Seconds(), 0)
	}
	w.last = now
	var s sight
	var moved transferred
	var user, system uint64
	threads := make(map[int]spent, len(w.threads))
	for _, pid := range w.processes() {
		id := strconv.Itoa(pid)
		stat, ok := parseStat(w.proc.read(id, "stat"))
		if !ok {
			continue
		}
		user, system = user+stat.user, system+stat.system
		t := parseIO(w.proc.read(id, "io"))
		moved = transferred{moved.calls + t.calls, moved.read + t.read, moved.written + t.written}
		w.lookAtThreads(id, threads, &s)
		w.networks.visit(pid, w.looks)
		if pid == w.root {
			w.groups = groupsOf(w.proc.read(id, "cgroup"))
		}
	}
	var came uint64
	s.sending, came = w.networks.finish(w.looks)
	w.threads = threads
	// A process that has ended counts for its parent as soon as the parent has waited for it. Until then sums are lower.
	w.moved = transferred{max(w.moved.calls, moved.calls), max(w.moved.read, moved.read),
		max(w.moved.written, moved.written)}
	w.user, w.system = max(w.user, user), max(w.system, system)
	w.count(s, came, gap)
}

// count adds one look to the sums.
func (w *watch) count(s sight, came uint64, gap float64) {
	w.looks++
	w.covered += gap
	w.ran += min(s.busiest.ran.Seconds(), gap)
	w.starved += min(s.busiest.ready.Seconds(), gap)
	if s.storage {
		w.storage += gap
	}
	// A thread that waits for a socket may only be idle. It waits for the network if data comes in meanwhile, and
	// nothing of the command computes or reads files.
	waits := s.receiving || s.polling && !s.running && !s.storage
	if s.sending || waits && came >= enoughReceived {
		w.network += gap
	}
}

// lookAtThreads adds the threads of a process to what a look saw.
func (w *watch) lookAtThreads(id string, threads map[int]spent, s *sight) {
	for _, tid := range w.proc.numbers(mostThreads, id, "task") {
		task := []string{id, "task", strconv.Itoa(tid)}
		stat, ok := parseStat(w.proc.read(append(task, "stat")...))
		if !ok {
			continue
		}
		if now, ok := parseSchedstat(w.proc.read(append(task, "schedstat")...)); ok {
			before, known := w.threads[tid]
			threads[tid] = now
			since := spent{max(now.ran-before.ran, 0), max(now.ready-before.ready, 0)}
			if (known || w.looks > 0) && since.ran+since.ready > s.busiest.ran+s.busiest.ready {
				s.busiest = since
			}
		}
		switch stat.state {
		case 'R':
			s.running = true
		case 'D', 'S':
			s.wait(stat.state, strings.TrimSpace(string(w.proc.read(append(task, "wchan")...))))
		}
	}
}

// wait notes what a sleeping thread waits for. place is the function of the kernel in which the thread sleeps, or "0"
// if the kernel does not tell.
func (s *sight) wait(state byte, place string) {
	switch place {
	case "io_cqring_wait", "read_events", "request_wait_answer", "folio_wait_bit_common",
		"rpc_wait_bit_killable", "nfs_wait_bit_killable", "cl_sync_io_wait", "balance_dirty_pages", "jbd2_log_wait_commit":
		s.storage = true
	case "sk_wait_data", "wait_woken", "sk_stream_wait_memory", "unix_stream_data_wait":
		s.receiving = true
	case "ep_poll", "do_epoll_wait", "do_sys_poll", "do_poll", "do_select", "poll_schedule_timeout":
		s.polling = true
	case "kernel_clone", "wait_for_vfork_done", "do_exit", "coredump_wait", "exit_mm", "rwsem_down_read_slowpath",
		"rwsem_down_write_slowpath", "do_freezer_trap":
		// These wait uninterruptibly, but not for storage.
	default:
		s.storage = s.storage || state == 'D'
	}
}

// fill writes what the watch found into a window of the whole machine. user and system are the seconds of processor
// time of the command, or 0 if only the watch knows them.
func (w *watch) fill(out *bottleneck.Window, seconds, user, system, usable float64) {
	user = max(user, float64(w.user)/ticksPerSecond)
	system = max(system, float64(w.system)/ticksPerSecond)
	// Time in which the command was ready and other programs had the processors is nobody's. What is left of a command
	// that hardly ever got a processor is too little to divide by.
	own := max(w.covered-w.starved, w.covered/10, 1e-9)
	share := func(s float64) float64 { return min(s/own, 1) }
	rate := func(n uint64) float64 { return float64(n) / seconds / 1e9 }
	out.Seconds = seconds
	out.CPU.Used, out.CPU.Kernel, out.CPU.Usable = (user+system)/seconds, system/seconds, usable
	out.CPU.Busiest = bottleneck.Unknown
	if w.covered > 0 {
		out.CPU.Busiest, out.CPU.Starved = share(w.ran), w.starved/w.covered
	}
	out.Memory.HitGBps = rate(w.moved.calls - min(w.moved.read, w.moved.calls))
	out.Waits = &bottleneck.Waits{Looks: w.looks, Storage: share(w.storage), Network: share(w.network),
		ReadGBps: rate(w.moved.read), WriteGBps: rate(w.moved.written)}
}
