// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func cgroupChecks() []check {
	return []check{{"cg.io", cgIO}, {"cg.cpu", cgCPU}, {"cg.mem", cgMem}}
}

// capped looks for a limit in one file of each directory, nearest to the process first. The answer is the worst
// limit.
func (f *exam) capped(dirs []string, file string, judge func(dir, value string) answer) []answer {
	var worst answer
	for _, dir := range dirs {
		s, st := f.Text(path.Join(dir, file))
		if st != facts.There || s == "" {
			continue
		}
		a := judge(dir, s)
		if a.level == "" || worst.level != "" && rank(a.level) >= rank(worst.level) {
			continue
		}
		a.subject = dir
		worst = a.with("file", path.Join(dir, file))
	}
	if worst.level == "" {
		return nil
	}
	return []answer{worst}
}

// dev returns the device number of a disk in the form that cgroups use.
func (f *exam) dev(name string) string {
	s, _ := f.Text(facts.Block(name) + "/dev")
	return s
}

// under reports whether a device number belongs to a disk under the path. It is true if the disks are not known.
func (f *exam) under(number string) bool {
	known := false
	for _, name := range append(slices.Clone(f.Stack), diskNames(f.Disks)...) {
		n := f.dev(name)
		if n == number {
			return true
		}
		known = known || n != ""
	}
	return !known
}

func diskNames(disks []facts.Disk) []string {
	var out []string
	for _, d := range disks {
		out = append(out, d.Name)
	}
	return out
}

// limited returns the answer for a limit in bytes or operations per second.
func (f *exam) limited(text string, bytes int64, has bool) answer {
	a := answer{level: Warn, observed: text}
	if !has {
		return a
	}
	a.cost = fmt.Sprintf("reads at most %s a second", units.Bytes(bytes))
	sum := 0.
	for _, d := range f.Disks {
		if l, ok := f.Link(d.PCI); ok {
			sum += l.Now
		}
	}
	a.lost = max(sum-float64(bytes)/1e9, 0)
	return a
}

func cgIO(f *exam) []answer {
	out := f.capped(f.CGroups(), "io.max", func(_, s string) answer {
		other := answer{}
		for line := range strings.Lines(s) {
			w := strings.Fields(line)
			if len(w) < 2 {
				continue
			}
			if !f.under(w[0]) {
				other = answer{level: Info, observed: "io.max: " + strings.TrimSpace(line) +
					", on a device that is not under the path"}
				continue
			}
			n, has := facts.Word(w[1:], "rbps")
			return f.limited("io.max: "+strings.TrimSpace(line), n, has)
		}
		return other
	})
	for _, file := range []string{"blkio.throttle.read_bps_device", "blkio.throttle.read_iops_device",
		"blkio.throttle.write_bps_device", "blkio.throttle.write_iops_device"} {
		out = append(out, f.capped(f.CGroups1("blkio"), file, func(_, s string) answer {
			for line := range strings.Lines(s) {
				w := strings.Fields(line)
				if len(w) != 2 || !f.under(w[0]) {
					continue
				}
				n, err := strconv.ParseInt(w[1], 10, 64)
				return f.limited(file+": "+strings.TrimSpace(line), n, err == nil && strings.Contains(file, "read_bps"))
			}
			return answer{}
		})...)
	}
	if out == nil {
		return one(Pass, "", "no I/O limit in this process's cgroup or above")
	}
	return out
}

func cgCPU(f *exam) []answer {
	judge := func(name string, quota, period float64) answer {
		if quota <= 0 || period <= 0 {
			return answer{}
		}
		a := answer{level: Info, observed: fmt.Sprintf("%s: %.1f CPUs", name, quota/period)}
		if quota/period < f.num("cg.cpu", "least") {
			a.level = Warn
		}
		return a
	}
	out := f.capped(f.CGroups(), "cpu.max", func(_, s string) answer {
		quota, period, _ := strings.Cut(s, " ")
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 != nil || err2 != nil {
			return answer{}
		}
		return judge("cpu.max", q, p)
	})
	out = append(out, f.capped(f.CGroups1("cpu"), "cpu.cfs_quota_us", func(dir, s string) answer {
		q, err := strconv.ParseInt(s, 10, 64)
		p, ok := f.Integer(path.Join(dir, "cpu.cfs_period_us"))
		if err != nil || !ok {
			return answer{}
		}
		return judge("cpu.cfs_quota_us", float64(q), float64(p))
	})...)
	if out == nil {
		return one(Pass, "", "no CPU limit in this process's cgroup or above")
	}
	return out
}

func cgMem(f *exam) []answer {
	least := f.num("cg.mem", "staging") * f.num("cg.mem", "factor")
	judge := func(file string) func(dir, s string) answer {
		return func(_, s string) answer {
			n, err := strconv.ParseInt(s, 10, 64)
			// Version 1 writes no limit as the largest number of whole pages.
			if err != nil || n >= 1<<62 {
				return answer{}
			}
			a := answer{level: Info, observed: file + ": " + units.Bytes(n) + ", page cache counted"}
			if float64(n) < least {
				a.level = Warn
			}
			return a
		}
	}
	var out []answer
	for _, file := range []string{"memory.high", "memory.max"} {
		out = append(out, f.capped(f.CGroups(), file, judge(file))...)
	}
	out = append(out, f.capped(f.CGroups1("memory"), "memory.limit_in_bytes", judge("memory.limit_in_bytes"))...)
	if out == nil {
		return one(Pass, "", "no memory limit in this process's cgroup or above")
	}
	return out
}
