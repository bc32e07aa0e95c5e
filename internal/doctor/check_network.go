// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

func networkChecks() []check {
	return []check{
		{"peermem", peermem}, {"ofed", ofed},
		{"net.tcp", netTCP}, {"net.mtu", netMTU}, {"net.link", netLink}, {"net.irq", netIRQ},
	}
}

func peermem(f *exam) []answer {
	switch {
	case f.GPU == nil || len(f.Glob("/sys/class/infiniband", "*")) == 0:
		return skip("no GPU or no RDMA card")
	case f.Exists("/sys/module/nvidia_peermem"):
		return one(Pass, "nvidia_peermem", "loaded")
	case strings.Contains(f.DriverText, "Open Kernel Module"):
		return one(Info, "nvidia_peermem", "not loaded; the open driver offers DMA-BUF instead")
	}
	if f.Mount != nil && (f.Mount.FSType == "wekafs" || f.Mount.FSType == "gpfs") {
		return one(Fail, "nvidia_peermem", "not loaded, and "+f.Mount.FSType+" has no other way to the GPU with this driver")
	}
	return one(Warn, "nvidia_peermem", "not loaded")
}

// ofed applies only if there is a card: the module alone is present on every kernel with the built-in driver.
func ofed(f *exam) []answer {
	cards := f.Mellanox()
	least, _ := f.since("ofed", "least")
	v, st := f.Text("/sys/module/mlx5_core/version")
	switch {
	case len(cards) == 0:
		return skip("no Mellanox card")
	// Both bring ofed_info; only the packages tell them apart.
	case len(f.Glob("/var/lib/dpkg/info", "mlnx-ofed-*.list")) > 0 &&
		len(f.Glob("/var/lib/dpkg/info", "doca-ofed*.list")) > 0:
		return one(Fail, "mlx5_core", "MLNX_OFED and DOCA are both installed")
	case st != facts.There:
		return one(Info, "mlx5_core", "the kernel's own driver on "+strings.Join(cards, ", ")+", neither MLNX_OFED nor DOCA")
	case facts.Older(facts.ParseVersion(v), least):
		return one(Warn, "mlx5_core", v)
	}
	return one(Info, "mlx5_core", v)
}

func netTCP(f *exam) []answer {
	if f.Mount == nil || !facts.Remote(f.Mount.FSType) {
		return skip("the path is not behind a network")
	}
	most := int64(0)
	for _, n := range f.NICs() {
		most = max(most, n.Mbit)
	}
	least := f.whole("net.tcp", "least")
	var out []answer
	judge := func(name string, v int64, want string) {
		a := answer{level: Pass, subject: name, observed: fmt.Sprintf("%d bytes at %d Mbit/s", v, most)}.
			with("now", fmt.Sprintf("sysctl -w %s='%s'", name, want), "boot",
				fmt.Sprintf("echo '%s = %s' >> /etc/sysctl.d/90-nebulaio-net.conf", name, want))
		if most >= f.whole("net.tcp", "fast_mbit") && v < least {
			a.level = Warn
		}
		out = append(out, a)
	}
	for _, name := range []string{"net.core.rmem_max", "net.core.wmem_max"} {
		if v, ok := f.Integer("/proc/sys/" + strings.ReplaceAll(name, ".", "/")); ok {
			judge(name, v, fmt.Sprint(least))
		}
	}
	// The kernel sizes TCP's own windows up to the third number.
	for _, name := range []string{"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"} {
		s, _ := f.Text("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if w := strings.Fields(s); len(w) == 3 {
			low, err1 := strconv.ParseInt(w[0], 10, 64)
			mid, err2 := strconv.ParseInt(w[1], 10, 64)
			if v, err := strconv.ParseInt(w[2], 10, 64); err == nil && err1 == nil && err2 == nil {
				judge(name, v, fmt.Sprintf("%d %d %d", low, mid, least))
			}
		}
	}
	if out == nil {
		return skip("not readable here")
	}
	return out
}

func netMTU(f *exam) []answer {
	if f.Mount == nil || !facts.Remote(f.Mount.FSType) {
		return skip("the path is not behind a network")
	}
	var out []answer
	for _, n := range f.NICs() {
		level := Pass
		if n.Mbit >= f.whole("net.mtu", "fast_mbit") && n.MTU <= f.whole("net.mtu", "small") {
			level = Warn
		}
		out = append(out, answer{level: level, subject: n.Name, observed: fmt.Sprintf("mtu %d at %d Mbit/s", n.MTU, n.Mbit)})
	}
	if out == nil {
		return skip("no network card on the bus")
	}
	return out
}

// netLink judges only dropped packets, because no file contains the best rate of a card.
func netLink(f *exam) []answer {
	if f.Mount == nil || !facts.Remote(f.Mount.FSType) {
		return skip("the path is not behind a network")
	}
	var out []answer
	for _, n := range f.NICs() {
		sum := int64(0)
		for _, c := range []string{"rx_errors", "rx_dropped", "rx_missed_errors"} {
			v, _ := f.Integer("/sys/class/net/" + n.Name + "/statistics/" + c)
			sum += v
		}
		level, text := Pass, fmt.Sprintf("%d Mbit/s, nothing dropped", n.Mbit)
		if sum > 0 {
			level, text = Info, fmt.Sprintf("%d Mbit/s, %d packets lost since boot; check whether it grows", n.Mbit, sum)
		}
		out = append(out, answer{level: level, subject: n.Name, observed: text})
	}
	if out == nil {
		return skip("no network card on the bus")
	}
	return out
}

// netIRQ checks whether one CPU handles most interrupts of a card.
func netIRQ(f *exam) []answer {
	if f.Mount == nil || !facts.Remote(f.Mount.FSType) {
		return skip("the path is not behind a network")
	}
	s, _ := f.Text("/proc/interrupts")
	var out []answer
	for _, n := range f.NICs() {
		cpus, total := map[int]int64{}, int64(0)
		for line := range strings.Lines(s) {
			w := strings.Fields(line)
			if len(w) < 3 || !strings.Contains(w[len(w)-1], n.Name) && !strings.Contains(w[len(w)-1], n.BDF) {
				continue
			}
			for i, word := range w[1:] {
				c, err := strconv.ParseInt(word, 10, 64)
				if err != nil {
					break // the columns of CPUs end here
				}
				cpus[i] += c
				total += c
			}
		}
		most, at := int64(0), 0
		for i := range f.CPUs {
			if cpus[i] > most {
				most, at = cpus[i], i
			}
		}
		if total == 0 || f.CPUs < 2 {
			continue
		}
		level := Pass
		if most*100 > total*f.whole("net.irq", "share_pct") {
			level = Warn
		}
		out = append(out, answer{level: level, subject: n.Name,
			observed: fmt.Sprintf("CPU %d took %d %% of the interrupts since boot", at, most*100/total)})
	}
	if out == nil {
		return skip("no interrupts of a network card are listed")
	}
	return out
}
