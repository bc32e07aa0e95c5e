// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

func pcieChecks() []check {
	return []check{
		{"pcie.link.nvme", linkNVMe}, {"pcie.link.gpu", linkGPU}, {"pcie.link.nic", linkNIC}, {"pcie.shared_uplink", sharedUplink},
		{"pcie.payload", pciePayload}, {"pcie.acs", pcieACS}, {"iommu", iommu}, {"topo.pair", topoPair}, {"topo.nvfs", topoNVFS},
		{"numa.node", numaNode},
	}
}

// judgeLink compares a link with its best, and every link above it.
func (f *facts) judgeLink(name, bdf string, idles bool) answer {
	subject := name + " (" + bdf + ")"
	l, ok := f.link(bdf)
	if !ok {
		return answer{level: Unknown, subject: subject, observed: "the bus shows no link speed"}.with("run", "lspci -s "+bdf+" -vv | grep Lnk")
	}
	a := answer{level: Pass, subject: subject, observed: fmt.Sprintf("%s, %.1f GB/s", l, l.now)}
	lost := fmt.Sprintf("at most %.1f of %.1f GB/s", l.now, l.best)
	switch {
	case l.width*2 <= l.maxWidth:
		a.level, a.cost = Fail, lost
	case l.width < l.maxWidth:
		a.level, a.cost = Warn, lost
	case l.speed < l.maxSpeed && idles:
		a.level, a.observed = Info, a.observed+"; GPUs slow their link when idle, look again under load"
	case l.speed < l.maxSpeed:
		a.level, a.cost = Warn, lost
	}
	if a.level == Pass {
		for _, up := range f.pci(bdf).chain {
			if u, ok := f.link(up); ok && up != bdf && u.now < l.now*.99 {
				a.level, a.cost = Warn, fmt.Sprintf("at most %.1f of %.1f GB/s", u.now, l.now)
				a.observed = fmt.Sprintf("%s, but the bridge %s above it runs %s, %.1f GB/s", l, up, u, u.now)
			}
		}
	}
	return a
}

func linkNVMe(f *facts) []answer {
	var out []answer
	for _, d := range f.disks {
		if d.Kind == "nvme" && d.PCI != "" {
			out = append(out, f.judgeLink(d.Name, d.PCI, false))
		}
	}
	if out == nil {
		return skip("the path is not on an NVMe disk of this machine")
	}
	return out
}

func linkGPU(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	return []answer{f.judgeLink(fmt.Sprintf("GPU %d", f.gpu.Index), f.gpu.PCI, true)}
}

func linkNIC(f *facts) []answer {
	if f.mount == nil || !remote(f.mount.fstype) {
		return skip("the path is not behind a network")
	}
	var out []answer
	for _, n := range f.nics() {
		if n.bdf != "" {
			out = append(out, f.judgeLink(n.name, n.bdf, false))
		}
	}
	if out == nil {
		return skip("no network card on the bus")
	}
	return out
}

// sharedUplink adds up the disks behind each bridge.
func sharedUplink(f *facts) []answer {
	if len(f.disks) < 2 {
		return skip("needs several disks under one path")
	}
	sum := map[string]float64{}
	for _, d := range f.disks {
		l, ok := f.link(d.PCI)
		for _, up := range d.pci.chain {
			if ok && up != d.PCI {
				sum[up] += l.now
			}
		}
	}
	for _, up := range slices.Sorted(maps.Keys(sum)) {
		if u, ok := f.link(up); ok && sum[up] > u.now*1.2 {
			return []answer{{level: Warn, subject: up, observed: fmt.Sprintf("disks behind it want %.1f GB/s, it carries %.1f GB/s", sum[up], u.now),
				cost: fmt.Sprintf("at most %.1f of %.1f GB/s", u.now, sum[up])}}
		}
	}
	return one(Pass, "", "no bridge carries less than the disks behind it")
}

func pciePayload(f *facts) []answer {
	var out []answer
	for _, bdf := range f.pairDevices() {
		can, set, read, ok := payload(f.config(bdf))
		switch {
		case !ok && f.UID == 0:
			continue // no PCIe capability: a virtual function
		case !ok:
			out = append(out, answer{level: Unknown, subject: bdf, observed: "the configuration space is for root"}.with("run", "lspci -s "+bdf+" -vv | grep -E 'MaxPayload|MaxReadReq'"))
		case can > 128 && set == 128 || read < 512:
			out = append(out, answer{level: Warn, subject: bdf, observed: fmt.Sprintf("payload %d of %d bytes, read request %d bytes", set, can, read)})
		default:
			out = append(out, answer{level: Pass, subject: bdf, observed: fmt.Sprintf("payload %d of %d bytes, read request %d bytes", set, can, read)})
		}
	}
	if out == nil {
		return skip("no PCIe device in this pair")
	}
	return out
}

// pcieACS looks at the bridges above disks and GPU.
func pcieACS(f *facts) []answer {
	if !f.pair() || len(f.disks) == 0 {
		return skip("needs a path on a disk and a GPU")
	}
	if !f.x86() {
		return skip("judged on x86 alone")
	}
	bridges := map[string]bool{}
	for _, bdf := range f.pairDevices() {
		for _, up := range f.pci(bdf).chain {
			bridges[up] = bridges[up] || up != bdf
		}
	}
	var on, hidden []string
	seen := 0
	for _, b := range slices.Sorted(maps.Keys(bridges)) {
		if !bridges[b] {
			continue
		}
		seen++
		switch ctl, ok := acs(f.config(b)); {
		case !ok:
			hidden = append(hidden, b)
		case ctl != 0:
			on = append(on, b)
		}
	}
	if s, st := f.text("/proc/driver/nvidia-fs/bridges"); st == there && len(on) == 0 {
		// nvidia-fs lists the bridges with ACS on, wherever they are.
		for b := range strings.FieldsSeq(s) {
			if isBDF(b) && bridges[b] {
				on = append(on, b)
			}
		}
	}
	switch {
	case len(on) > 0:
		cmds := make([]string, len(on))
		for i, b := range on {
			cmds[i] = "setpci -s " + b + " ECAP_ACS+6.w=0000"
		}
		return []answer{answer{level: Warn, subject: strings.Join(on, ", "), observed: "ACS redirects peer traffic"}.with("acs", strings.Join(cmds, "; "))}
	case len(hidden) > 0:
		return []answer{answer{level: Unknown, subject: strings.Join(hidden, ", "), observed: "the configuration space is for root"}.with("run", "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl' | grep -B1 'ReqRedir+'")}
	case seen == 0:
		return skip("no bridge above disk and GPU is visible")
	}
	return one(Pass, "", fmt.Sprintf("no redirect on %d bridges", seen))
}

func iommu(f *facts) []answer {
	boot, _ := f.text("/proc/cmdline")
	options := strings.Join(bootOptions(boot), " ")
	units, _ := f.t.ReadDir("/sys/class/iommu")
	groups, _ := f.t.ReadDir("/sys/kernel/iommu_groups")
	kind := ""
	if f.gpu != nil {
		kind, _ = f.text(path.Join(pciDir(f.gpu.PCI), "iommu_group/type"))
	}
	for i := 0; kind == "" && i < min(len(groups), 64); i++ {
		kind, _ = f.text("/sys/kernel/iommu_groups/" + groups[i] + "/type")
	}
	on := len(units) > 0 || len(groups) > 0
	text := "off"
	if on {
		text = fmt.Sprintf("on, groups: %d, type: %s", len(groups), cmp.Or(kind, "not shown"))
	}
	if options != "" {
		text += " (" + options + ")"
	}
	through := kind == "identity"
	if kind == "" {
		through = strings.Contains(options, "iommu=pt") || strings.Contains(options, "iommu.passthrough=1")
	}
	switch {
	case f.gpu == nil:
		return one(Info, "", text)
	case f.grace() && (!on || through):
		return []answer{answer{level: Fail, observed: text}.with("iommu", "iommu.passthrough=0", "drop", "iommu.passthrough=1, iommu=pt and arm-smmu.disable")}
	case f.grace() || !on || through:
		return one(Pass, "", text)
	}
	return []answer{answer{level: Warn, observed: text}.with("iommu", "iommu=pt", "drop", "intel_iommu=on or amd_iommu=on without iommu=pt")}
}

func topoPair(f *facts) []answer {
	if f.gpu == nil || len(f.disks) == 0 {
		return skip("needs a path on a disk and a GPU")
	}
	var out []answer
	g := f.pci(f.gpu.PCI)
	for _, d := range f.disks {
		if d.PCI == "" {
			continue
		}
		subject := fmt.Sprintf("%s to GPU %d", d.Name, f.gpu.Index)
		switch dist := distance(d.pci, g); dist {
		case "":
			out = append(out, answer{level: Info, subject: subject, observed: "the bus does not show how far apart they are"})
		case "PIX/PXB":
			out = append(out, answer{level: Pass, subject: subject, observed: "behind one PCIe switch (PIX/PXB)"})
		case "SYS":
			out = append(out, answer{level: Warn, subject: subject, observed: fmt.Sprintf("across sockets (SYS): disk on node %d, GPU on node %d; nearer: %s", d.NUMA, g.numa, f.nearer(d))}.with("nearer", f.nearer(d)))
		default:
			out = append(out, answer{level: Info, subject: subject, observed: "same root complex or node (" + dist + ")"})
		}
	}
	if out == nil {
		return skip("the disk is on no PCI bus")
	}
	return out
}

// nearer names the GPUs that are closer to a disk than across sockets.
func (f *facts) nearer(d disk) string {
	var near []string
	for i := range f.gpus {
		if dist := distance(d.pci, f.pci(f.gpus[i].PCI)); dist != "" && dist != "SYS" && f.gpus[i].Index >= 0 {
			near = append(near, fmt.Sprintf("--gpu %d", f.gpus[i].Index))
		}
	}
	if near == nil {
		return fmt.Sprintf("no GPU; move the data to a disk on node %d", f.gpu.NUMA)
	}
	return strings.Join(near, ", ")
}

func topoNVFS(f *facts) []answer {
	s, st := f.text("/proc/driver/nvidia-fs/peer_distance")
	if st != there || f.gpu == nil {
		return skip("nvidia-fs shows no distances")
	}
	for line := range strings.Lines(s) {
		if strings.Contains(strings.ToLower(line), f.gpu.PCI) {
			return one(Info, f.gpu.String(), line)
		}
	}
	return one(Info, f.gpu.String(), "not in peer_distance")
}

func numaNode(f *facts) []answer {
	if f.nodes < 2 {
		return skip("one NUMA node")
	}
	var out []answer
	for _, bdf := range f.pairDevices() {
		if d := f.pci(bdf); d.known && d.numa < 0 {
			out = append(out, answer{level: Warn, subject: bdf, observed: fmt.Sprintf("node -1 on a machine of %d nodes", f.nodes)})
		}
	}
	if out == nil {
		return one(Pass, "", fmt.Sprintf("devices of this pair name their node, %d nodes", f.nodes))
	}
	return out
}
