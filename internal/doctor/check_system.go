// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func systemChecks() []check {
	return []check{
		{"lim.memlock", limMemlock}, {"lim.nofile", limNoFile}, {"lim.maps", limMaps}, {"shm", shm}, {"hugepages", hugepages},
		{"vm.dirty", vmDirty}, {"vm.swappiness", vmSwap}, {"vm.numa", vmNUMA}, {"aio", aio}, {"time.sync",
			timeSync}, {"ct.io_uring", ctUring},
	}
}

func limMemlock(f *exam) []answer {
	need := f.whole("lim.memlock", "staging") + f.whole("lim.memlock", "reserve")
	switch n := f.Memlock; {
	case n < 0:
		return one(Pass, "this process", "unlimited")
	case f.MayLock():
		return one(Info, "this process", units.Bytes(n)+", which does not bind a process with CAP_IPC_LOCK")
	case n < need && f.GPU != nil && f.overRDMA():
		return one(Fail, "this process", units.Bytes(n)+", RDMA pins "+units.Bytes(need))
	default:
		return one(Warn, "this process", units.Bytes(n)+"; registered buffers take "+units.Bytes(need))
	}
}

// overRDMA reports whether the path is reached by RDMA, as far as its mount tells. NFS states its transport; parallel
// file systems are assumed to use RDMA.
func (f *exam) overRDMA() bool {
	if f.NFS() {
		proto, _ := f.Mount.Value("proto")
		return proto == "rdma"
	}
	return f.Mount != nil && facts.Remote(f.Mount.FSType)
}

func limNoFile(f *exam) []answer {
	if f.NoFile >= 0 && f.NoFile < f.whole("lim.nofile", "least") {
		return one(Warn, "this process", fmt.Sprint(f.NoFile))
	}
	return one(Pass, "this process", fmt.Sprint(f.NoFile))
}

func limMaps(f *exam) []answer {
	return f.sysctl("vm.max_map_count", f.whole("lim.maps", "least"), 1<<62)
}

// sysctl judges one number by its bounds.
func (f *exam) sysctl(name string, least, most int64) []answer {
	n, ok := f.Integer("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	switch {
	case !ok:
		return skip("this kernel has no " + name)
	case n < least || n > most:
		return one(Warn, name, fmt.Sprint(n))
	}
	return one(Pass, name, fmt.Sprint(n))
}

func shm(f *exam) []answer {
	switch least := f.whole("shm", "least"); {
	case f.SHM == 0:
		return skip("no /dev/shm")
	case f.SHM <= least && f.opt.Profile == Train:
		return one(Fail, "/dev/shm", units.Bytes(f.SHM)+": workers of a data loader die of a bus error")
	case f.SHM <= least:
		return one(Warn, "/dev/shm", units.Bytes(f.SHM))
	}
	return one(Pass, "/dev/shm", units.Bytes(f.SHM))
}

func hugepages(f *exam) []answer {
	s, st := f.Text("/sys/kernel/mm/transparent_hugepage/enabled")
	if st != facts.There {
		return skip("this kernel has none")
	}
	defrag, _ := f.Text("/sys/kernel/mm/transparent_hugepage/defrag")
	text := "enabled=" + facts.Chosen(s) + " defrag=" + facts.Chosen(defrag)
	if facts.Chosen(s) == "never" || facts.Chosen(defrag) == "always" {
		return one(Warn, "transparent_hugepage", text)
	}
	return one(Pass, "transparent_hugepage", text)
}

func vmDirty(f *exam) []answer {
	ratio, ok := f.Integer("/proc/sys/vm/dirty_ratio")
	back, _ := f.Integer("/proc/sys/vm/dirty_background_ratio")
	fixed, _ := f.Integer("/proc/sys/vm/dirty_bytes")
	if !ok {
		return skip("not readable here")
	}
	text := fmt.Sprintf("dirty_ratio=%d dirty_background_ratio=%d dirty_bytes=%d", ratio, back, fixed)
	level, waiting := Info, fixed
	if fixed == 0 {
		waiting = f.MemInfo("MemTotal") / 100 * ratio
	}
	if f.opt.Profile == Checkpoint && waiting > f.whole("vm.dirty", "waiting") {
		level = Warn
		text += fmt.Sprintf(": up to %s wait to be written at once", units.Bytes(waiting))
	}
	if fixed == 0 && back >= ratio {
		level = Warn
	}
	return one(level, "vm.dirty_*", text)
}

func vmSwap(f *exam) []answer {
	total, free := f.MemInfo("SwapTotal"), f.MemInfo("SwapFree")
	n, ok := f.Integer("/proc/sys/vm/swappiness")
	text := fmt.Sprintf("%d, %s of %s swap in use", n, units.Bytes(total-free), units.Bytes(total))
	switch {
	case !ok || total == 0:
		return skip("no swap")
	case n > f.whole("vm.swappiness", "most"), float64(total-free)*100 > float64(total)*f.num("vm.swappiness", "used_pct"):
		return one(Warn, "vm.swappiness", text)
	}
	return one(Pass, "vm.swappiness", text)
}

func vmNUMA(f *exam) []answer {
	if f.Nodes < 2 {
		return skip("one NUMA node")
	}
	return append(f.sysctl("vm.zone_reclaim_mode", 0, f.whole("vm.numa", "zone_reclaim")),
		f.sysctl("kernel.numa_balancing", 0, f.whole("vm.numa", "balancing"))...)
}

func aio(f *exam) []answer {
	nr, ok1 := f.Integer("/proc/sys/fs/aio-nr")
	most, ok2 := f.Integer("/proc/sys/fs/aio-max-nr")
	if !ok1 || !ok2 {
		return skip("not readable here")
	}
	text := fmt.Sprintf("%d of %d", nr, most)
	if float64(nr)*100 > float64(most)*f.num("aio", "used_pct") {
		return one(Warn, "fs.aio-max-nr", text)
	}
	return one(Pass, "fs.aio-max-nr", text)
}

func ctUring(f *exam) []answer {
	off, st := f.Text("/proc/sys/kernel/io_uring_disabled")
	switch {
	case f.IOUring == "ok":
		return one(Pass, "io_uring", "a ring could be made")
	case st == facts.There && off != "0":
		return one(Warn, "io_uring", "kernel.io_uring_disabled="+off)
	}
	return one(Warn, "io_uring", f.IOUring)
}

// timeSync judges how far the clock is off. A clock that nothing disciplines is only INFO, because it may still be
// right.
func timeSync(f *exam) []answer {
	c, most := f.Clock, f.whole("time.sync", "offset_us")
	switch {
	case c == nil:
		return skip("the kernel was not queried")
	case max(c.OffsetUS, -c.OffsetUS) > most:
		return one(Warn, "clock", fmt.Sprintf("off by %d µs", c.OffsetUS))
	case !c.Synchronised:
		return one(Info, "clock", "nothing disciplines it; how far it is off is not known")
	}
	return one(Pass, "clock", fmt.Sprintf("synchronised, off by %d µs", c.OffsetUS))
}
