// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

func networkChecks() []check {
	return []check{
		{"nfs.proto", nfsProto}, {"nfs.opts", nfsOpts}, {"nfs.stats", nfsStats}, {"sunrpc", sunrpc}, {"peermem", peermem}, {"ofed", ofed},
		{"net.tcp", netTCP}, {"net.mtu", netMTU}, {"net.link", netLink}, {"net.irq", netIRQ},
	}
}

// nic is a network interface that is up and on the bus.
type nic struct {
	name, bdf string
	mbit, mtu int64
}

func (f *facts) nics() []nic {
	var out []nic
	for _, dir := range glob(f.t, "/sys/class/net", "*") {
		state, _ := f.text(dir + "/operstate")
		real, err := f.t.Resolve(dir)
		if err != nil || state != "up" || lastBDF(real) == "" {
			continue
		}
		n := nic{name: path.Base(dir), bdf: lastBDF(real)}
		n.mbit, _ = f.integer(dir + "/speed")
		n.mtu, _ = f.integer(dir + "/mtu")
		out = append(out, n)
	}
	return out
}

// rdmaUp lists RDMA ports that are active.
func (f *facts) rdmaUp() []string {
	var out []string
	for _, dev := range glob(f.t, "/sys/class/infiniband", "*") {
		for _, port := range glob(f.t, dev+"/ports", "*") {
			if s, _ := f.text(port + "/state"); strings.Contains(s, "ACTIVE") {
				out = append(out, path.Base(dev)+"/"+path.Base(port))
			}
		}
	}
	return out
}

func (f *facts) nfs() bool {
	return f.mount != nil && (f.mount.fstype == "nfs" || f.mount.fstype == "nfs4")
}

func nfsProto(f *facts) []answer {
	if !f.nfs() {
		return skip("not on NFS")
	}
	proto, _ := f.mount.value("proto")
	a := answer{level: Pass, subject: f.mount.point, observed: "proto=" + proto}.with("mount", f.mount.point, "source", f.mount.source)
	if proto == "rdma" {
		return []answer{a}
	}
	up := f.rdmaUp()
	if len(up) > 0 {
		a.level, a.observed = Warn, a.observed+", with an RDMA port active: "+strings.Join(up, ", ")
	} else {
		a.level, a.observed = Warn, a.observed+", and no RDMA port is active"
	}
	if f.gpu == nil && len(up) == 0 {
		a.level = Info
	}
	return []answer{a}
}

func nfsOpts(f *facts) []answer {
	if !f.nfs() {
		return skip("not on NFS")
	}
	var bad []string
	for _, name := range []string{"rsize", "wsize"} {
		v, _ := f.mount.value(name)
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n < 262144 {
			bad = append(bad, name+"="+v)
		}
	}
	for _, name := range []string{"noac", "sync"} {
		if f.mount.has(name) {
			bad = append(bad, name)
		}
	}
	if v, ok := f.mount.value("actimeo"); ok && v == "0" {
		bad = append(bad, "actimeo=0")
	}
	if v, _ := f.mount.value("proto"); v != "rdma" {
		v, set := f.mount.value("nconnect")
		n, _ := strconv.Atoi(v)
		for _, c := range f.nics() {
			if c.mbit >= 25000 && n < 8 {
				if !set {
					v = "1"
				}
				bad = append(bad, fmt.Sprintf("nconnect=%s on %d Gbit/s (%s)", v, c.mbit/1000, c.name))
				break
			}
		}
	}
	a := answer{level: Pass, subject: f.mount.point, observed: strings.Join(f.mount.superOps, ",")}.with("mount", f.mount.point, "source", f.mount.source)
	if bad != nil {
		a.level, a.observed = Warn, strings.Join(bad, ", ")
	}
	return []answer{a}
}

// nfsStats compares transmissions with operations of the mount's reads.
func nfsStats(f *facts) []answer {
	if !f.nfs() {
		return skip("not on NFS")
	}
	s, st := f.text("/proc/self/mountstats")
	if st != there {
		return skip("no statistics of this mount")
	}
	_, own, ok := strings.Cut(s, " mounted on "+f.mount.point+" ")
	if own, _, _ = strings.Cut(own, "\ndevice "); !ok {
		return skip("no statistics of this mount")
	}
	for line := range strings.Lines(own) {
		w := strings.Fields(line)
		if len(w) < 3 || w[0] != "READ:" {
			continue
		}
		ops, err1 := strconv.ParseInt(w[1], 10, 64)
		sent, err2 := strconv.ParseInt(w[2], 10, 64)
		if err1 != nil || err2 != nil || ops <= 0 {
			break
		}
		text := fmt.Sprintf("%d of %d reads were sent again", max(sent-ops, 0), ops)
		if float64(sent-ops) > float64(ops)/1000 {
			return one(Warn, f.mount.point, text)
		}
		return one(Pass, f.mount.point, text)
	}
	return skip("nothing was read from this mount yet")
}

func sunrpc(f *facts) []answer {
	if !f.nfs() {
		return skip("not on NFS")
	}
	n, ok := f.integer("/proc/sys/sunrpc/tcp_max_slot_table_entries")
	switch {
	case !ok:
		return skip("the setting is not there")
	case n < 128:
		return one(Warn, "tcp_max_slot_table_entries", fmt.Sprint(n))
	}
	return one(Pass, "tcp_max_slot_table_entries", fmt.Sprint(n))
}

func peermem(f *facts) []answer {
	switch {
	case f.gpu == nil || len(glob(f.t, "/sys/class/infiniband", "*")) == 0:
		return skip("no GPU or no RDMA card")
	case f.t.Exists("/sys/module/nvidia_peermem"):
		return one(Pass, "nvidia_peermem", "loaded")
	case strings.Contains(f.version, "Open Kernel Module"):
		return one(Info, "nvidia_peermem", "not loaded; the open driver offers DMA-BUF instead")
	}
	return one(Warn, "nvidia_peermem", "not loaded")
}

func ofed(f *facts) []answer {
	v, st := f.text("/sys/module/mlx5_core/version")
	switch {
	case !f.t.Exists("/sys/module/mlx5_core"):
		return skip("no Mellanox card")
	case st != there:
		return one(Info, "mlx5_core", "the kernel's own driver, neither MLNX_OFED nor DOCA")
	case older(parseVersion(v), [3]int{5, 3}):
		return one(Warn, "mlx5_core", v)
	}
	return one(Info, "mlx5_core", v)
}

// fast is the rate in Mbit/s from which network settings matter to storage.
const fast = 25000

func netTCP(f *facts) []answer {
	if f.mount == nil || !remote(f.mount.fstype) {
		return skip("the path is not behind a network")
	}
	most := int64(0)
	for _, n := range f.nics() {
		most = max(most, n.mbit)
	}
	var out []answer
	for _, name := range []string{"rmem_max", "wmem_max"} {
		v, ok := f.integer("/proc/sys/net/core/" + name)
		if !ok {
			continue
		}
		level := Pass
		if most >= fast && v < 64<<20 {
			level = Warn
		}
		out = append(out, answer{level: level, subject: "net.core." + name, observed: fmt.Sprintf("%d bytes at %d Mbit/s", v, most)})
	}
	if out == nil {
		return skip("not readable here")
	}
	return out
}

func netMTU(f *facts) []answer {
	if f.mount == nil || !remote(f.mount.fstype) {
		return skip("the path is not behind a network")
	}
	var out []answer
	for _, n := range f.nics() {
		level := Pass
		if n.mbit >= fast && n.mtu <= 1500 {
			level = Warn
		}
		out = append(out, answer{level: level, subject: n.name, observed: fmt.Sprintf("mtu %d at %d Mbit/s", n.mtu, n.mbit)})
	}
	if out == nil {
		return skip("no network card on the bus")
	}
	return out
}

// netLink judges drops alone: what a card could do at best is not in a file.
func netLink(f *facts) []answer {
	if f.mount == nil || !remote(f.mount.fstype) {
		return skip("the path is not behind a network")
	}
	var out []answer
	for _, n := range f.nics() {
		sum := int64(0)
		for _, c := range []string{"rx_errors", "rx_dropped", "rx_missed_errors"} {
			v, _ := f.integer("/sys/class/net/" + n.name + "/statistics/" + c)
			sum += v
		}
		level, text := Pass, fmt.Sprintf("%d Mbit/s, nothing dropped", n.mbit)
		if sum > 0 {
			level, text = Info, fmt.Sprintf("%d Mbit/s, %d packets lost since boot; look whether it grows", n.mbit, sum)
		}
		out = append(out, answer{level: level, subject: n.name, observed: text})
	}
	if out == nil {
		return skip("no network card on the bus")
	}
	return out
}

// netIRQ looks whether one CPU takes most interrupts of a card.
func netIRQ(f *facts) []answer {
	if f.mount == nil || !remote(f.mount.fstype) {
		return skip("the path is not behind a network")
	}
	s, _ := f.text("/proc/interrupts")
	var out []answer
	for _, n := range f.nics() {
		cpus, total := map[int]int64{}, int64(0)
		for line := range strings.Lines(s) {
			w := strings.Fields(line)
			if len(w) < 3 || !strings.Contains(w[len(w)-1], n.name) && !strings.Contains(w[len(w)-1], n.bdf) {
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
		if most*2 > total {
			level = Warn
		}
		out = append(out, answer{level: level, subject: n.name, observed: fmt.Sprintf("CPU %d took %d %% of the interrupts since boot", at, most*100/total)})
	}
	if out == nil {
		return skip("no interrupts of a network card are listed")
	}
	return out
}
