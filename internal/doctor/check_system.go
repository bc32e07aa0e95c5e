// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/units"
)

// pinnedPool is the staging memory that the loader pins at most.
const pinnedPool = 128 << 20

func systemChecks() []check {
	return []check{
		{"lim.memlock", limMemlock}, {"lim.nofile", limNoFile}, {"lim.maps", limMaps}, {"shm", shm}, {"hugepages", hugepages},
		{"vm.dirty", vmDirty}, {"vm.swappiness", vmSwap}, {"vm.numa", vmNUMA}, {"aio", aio}, {"ct.io_uring", ctUring},
		{"cg.io", cgIO}, {"cg.cpu", cgCPU}, {"cg.mem", cgMem},
	}
}

func limMemlock(f *facts) []answer {
	need := int64(pinnedPool + 64<<20)
	switch n := f.Memlock; {
	case n < 0:
		return one(Pass, "this process", "unlimited")
	case f.mayLock():
		return one(Info, "this process", units.Bytes(n)+", which does not bind a process with CAP_IPC_LOCK")
	case n < need && f.gpu != nil && f.mount != nil && remote(f.mount.fstype):
		return one(Fail, "this process", units.Bytes(n)+", RDMA pins "+units.Bytes(need))
	default:
		return one(Warn, "this process", units.Bytes(n)+"; registered buffers take "+units.Bytes(need))
	}
}

// mayLock says that the process is above the limit of locked memory; root in a
// container often is not.
func (f *facts) mayLock() bool {
	const ipcLock = 14
	s, _ := f.text("/proc/self/status")
	caps, err := strconv.ParseUint(parseParams(s)["CapEff"], 16, 64)
	return err == nil && caps>>ipcLock&1 == 1
}

func limNoFile(f *facts) []answer {
	if f.NoFile >= 0 && f.NoFile < 65536 {
		return one(Warn, "this process", fmt.Sprint(f.NoFile))
	}
	return one(Pass, "this process", fmt.Sprint(f.NoFile))
}

func limMaps(f *facts) []answer { return f.sysctl("vm.max_map_count", 262144, 1<<40) }

// sysctl judges one number by its bounds.
func (f *facts) sysctl(name string, least, most int64) []answer {
	n, ok := f.integer("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	switch {
	case !ok:
		return skip("this kernel has no " + name)
	case n < least || n > most:
		return one(Warn, name, fmt.Sprint(n))
	}
	return one(Pass, name, fmt.Sprint(n))
}

func shm(f *facts) []answer {
	switch {
	case f.SHM == 0:
		return skip("no /dev/shm")
	case f.SHM <= 64<<20 && f.opt.Profile == Train:
		return one(Fail, "/dev/shm", units.Bytes(f.SHM))
	case f.SHM <= 64<<20:
		return one(Warn, "/dev/shm", units.Bytes(f.SHM))
	}
	return one(Pass, "/dev/shm", units.Bytes(f.SHM))
}

func hugepages(f *facts) []answer {
	s, st := f.text("/sys/kernel/mm/transparent_hugepage/enabled")
	if st != there {
		return skip("this kernel has none")
	}
	defrag, _ := f.text("/sys/kernel/mm/transparent_hugepage/defrag")
	text := "enabled=" + chosen(s) + " defrag=" + chosen(defrag)
	if chosen(s) == "never" || chosen(defrag) == "always" {
		return one(Warn, "transparent_hugepage", text)
	}
	return one(Pass, "transparent_hugepage", text)
}

// meminfo reads one line of /proc/meminfo in bytes.
func (f *facts) meminfo(name string) int64 {
	s, _ := f.text("/proc/meminfo")
	v := strings.Fields(parseParams(s)[name])
	if len(v) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(v[0], 10, 64)
	return n << 10
}

func vmDirty(f *facts) []answer {
	ratio, ok := f.integer("/proc/sys/vm/dirty_ratio")
	back, _ := f.integer("/proc/sys/vm/dirty_background_ratio")
	fixed, _ := f.integer("/proc/sys/vm/dirty_bytes")
	if !ok {
		return skip("not readable here")
	}
	text := fmt.Sprintf("dirty_ratio=%d dirty_background_ratio=%d dirty_bytes=%d", ratio, back, fixed)
	level := Info
	if fixed == 0 && f.opt.Profile == Checkpoint {
		level = Warn
		text += fmt.Sprintf(": up to %s wait to be written at once", units.Bytes(f.meminfo("MemTotal")/100*ratio))
	}
	if fixed == 0 && back >= ratio {
		level = Warn
	}
	return one(level, "vm.dirty_*", text)
}

func vmSwap(f *facts) []answer {
	total, free := f.meminfo("SwapTotal"), f.meminfo("SwapFree")
	n, ok := f.integer("/proc/sys/vm/swappiness")
	switch {
	case !ok || total == 0:
		return skip("no swap")
	case n > 10:
		return one(Warn, "vm.swappiness", fmt.Sprintf("%d, %s of %s swap in use", n, units.Bytes(total-free), units.Bytes(total)))
	}
	return one(Pass, "vm.swappiness", fmt.Sprint(n))
}

func vmNUMA(f *facts) []answer {
	if f.nodes < 2 {
		return skip("one NUMA node")
	}
	return append(f.sysctl("vm.zone_reclaim_mode", 0, 0), f.sysctl("kernel.numa_balancing", 0, 0)...)
}

func aio(f *facts) []answer {
	nr, ok1 := f.integer("/proc/sys/fs/aio-nr")
	most, ok2 := f.integer("/proc/sys/fs/aio-max-nr")
	if !ok1 || !ok2 {
		return skip("not readable here")
	}
	text := fmt.Sprintf("%d of %d", nr, most)
	if nr*10 > most*8 {
		return one(Warn, "fs.aio-max-nr", text)
	}
	return one(Pass, "fs.aio-max-nr", text)
}

func ctUring(f *facts) []answer {
	off, st := f.text("/proc/sys/kernel/io_uring_disabled")
	switch {
	case f.IOUring == "ok":
		return one(Pass, "io_uring", "a ring could be made")
	case st == there && off != "0":
		return one(Warn, "io_uring", "kernel.io_uring_disabled="+off)
	}
	return one(Warn, "io_uring", f.IOUring)
}

// cgroups lists the cgroup v2 directories from this process's to the root.
func (f *facts) cgroups() []string {
	s, _ := f.text("/proc/self/cgroup")
	for line := range strings.Lines(s) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		var out []string
		for p := path.Clean("/" + own); ; p = path.Dir(p) {
			out = append(out, path.Join("/sys/fs/cgroup", p))
			if p == "/" {
				return out
			}
		}
	}
	return nil
}

// capped looks for a limit in one file on the way up.
func (f *facts) capped(file string, judge func(value string) (Level, string)) []answer {
	for _, dir := range f.cgroups() {
		s, st := f.text(path.Join(dir, file))
		if st != there || s == "" {
			continue
		}
		if level, text := judge(s); level != Pass {
			return []answer{answer{level: level, subject: dir, observed: file + ": " + text}.with("file", path.Join(dir, file))}
		}
	}
	return one(Pass, "", "no limit in "+file+" from this process up")
}

func cgIO(f *facts) []answer {
	return f.capped("io.max", func(s string) (Level, string) { return Warn, s })
}

func cgCPU(f *facts) []answer {
	return f.capped("cpu.max", func(s string) (Level, string) {
		quota, period, _ := strings.Cut(s, " ")
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 != nil || err2 != nil || p <= 0 {
			return Pass, ""
		}
		if q/p < 4 {
			return Warn, fmt.Sprintf("%.1f CPUs", q/p)
		}
		return Info, fmt.Sprintf("%.1f CPUs", q/p)
	})
}

func cgMem(f *facts) []answer {
	return f.capped("memory.high", func(s string) (Level, string) {
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
			return Pass, ""
		case n < 2*pinnedPool:
			return Warn, units.Bytes(n)
		}
		return Info, units.Bytes(n) + ", page cache counted"
	})
}
