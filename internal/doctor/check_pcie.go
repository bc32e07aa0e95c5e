// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

func pcieChecks() []check {
	return []check{
		{"pcie.link.nvme", linkNVMe}, {"pcie.link.gpu", linkGPU}, {"pcie.link.nic", linkNIC}, {"pcie.shared_uplink",
			sharedUplink},
		{"pcie.payload", pciePayload}, {"pcie.acs", pcieACS}, {"iommu", iommu}, {"topo.pair", topoPair}, {"topo.nvfs",
			topoNVFS},
		{"numa.node", numaNode}, {"numa.cpuset", numaCPUs},
	}
}

// judgeLink compares a link, and every link above it, with its best rate. The loss is computed from the lanes.
func (f *exam) judgeLink(rule, name, bdf string, idles bool) answer {
	subject := name + " (" + bdf + ")"
	l, ok := f.Link(bdf)
	if !ok {
		return unknown(subject, "the bus shows no link speed", "lspci -s "+bdf+" -vv | grep Lnk")
	}
	a := answer{level: Pass, subject: subject, observed: fmt.Sprintf("%s, %.1f GB/s", l, l.Now)}
	loses := func(level Level, now, best float64) {
		a.level, a.lost, a.cost = level, best-now, fmt.Sprintf("at most %.1f of %.1f GB/s", now, best)
	}
	switch {
	case float64(l.Width) <= float64(l.MaxWidth)*f.num(rule, "lost_ratio"):
		loses(Fail, l.Now, l.Best)
	case l.Width < l.MaxWidth:
		loses(Warn, l.Now, l.Best)
	case l.Speed < l.MaxSpeed && idles:
		a.level, a.observed = Info, a.observed+"; GPUs slow their link when idle, check again under load"
	case l.Speed < l.MaxSpeed:
		loses(Warn, l.Now, l.Best)
	}
	if a.level == Pass {
		for _, up := range f.PCI(bdf).Chain {
			if u, ok := f.Link(up); ok && up != bdf && u.Now < l.Now*f.num(rule, "uplink_slack") && u.Now < l.Now-a.lost {
				loses(Warn, u.Now, l.Now)
				a.observed = fmt.Sprintf("%s, but the bridge %s above it runs %s, %.1f GB/s", l, up, u, u.Now)
			}
		}
	}
	return a
}

func linkNVMe(f *exam) []answer {
	var out []answer
	for _, d := range f.Disks {
		if d.Kind == "nvme" && d.PCI != "" {
			out = append(out, f.judgeLink("pcie.link.nvme", d.Name, d.PCI, false))
		}
	}
	if out == nil {
		return skip("the path is not on a local NVMe disk")
	}
	return out
}

func linkGPU(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	a := f.judgeLink("pcie.link.gpu", fmt.Sprintf("GPU %d", f.GPU.Index), f.GPU.PCI, true)
	now, ok1 := f.GPUFact("pcie_link")
	best, ok2 := f.GPUFact("pcie_link_max")
	if a.level != Unknown || !ok1 || !ok2 {
		return []answer{a}
	}
	// In a guest the bus may hide what the driver still sees.
	a = answer{level: Pass, subject: a.subject, observed: now + " of " + best + ", as the driver sees it"}
	if _, width, _ := strings.Cut(now, " x"); width != "" && !strings.HasSuffix(best, " x"+width) {
		a.level = Warn
	} else if now != best {
		a.level, a.observed = Info, a.observed+"; GPUs slow their link when idle, check again under load"
	}
	return []answer{a}
}

func linkNIC(f *exam) []answer {
	if f.Mount == nil || !facts.Remote(f.Mount.FSType) {
		return skip("the path is not behind a network")
	}
	var out []answer
	for _, n := range f.NICs() {
		if n.BDF != "" {
			out = append(out, f.judgeLink("pcie.link.nic", n.Name, n.BDF, false))
		}
	}
	if out == nil {
		return skip("no network card on the bus")
	}
	return out
}

// sharedUplink adds up the rates of the disks behind each bridge.
func sharedUplink(f *exam) []answer {
	if len(f.Disks) < 2 {
		return skip("needs several disks under one path")
	}
	sum := map[string]float64{}
	for _, d := range f.Disks {
		l, ok := f.Link(d.PCI)
		for _, up := range d.Bus.Chain {
			if ok && up != d.PCI {
				sum[up] += l.Now
			}
		}
	}
	for _, up := range slices.Sorted(maps.Keys(sum)) {
		if u, ok := f.Link(up); ok && sum[up] > u.Now*f.num("pcie.shared_uplink", "ratio") {
			return []answer{{level: Warn, subject: up,
				observed: fmt.Sprintf("disks behind it want %.1f GB/s, it carries %.1f GB/s", sum[up], u.Now),
				lost:     sum[up] - u.Now, cost: fmt.Sprintf("at most %.1f of %.1f GB/s", u.Now, sum[up])}}
		}
	}
	return one(Pass, "", "no bridge carries less than the disks behind it")
}

func pciePayload(f *exam) []answer {
	poor, least := int(f.whole("pcie.payload", "poor")), int(f.whole("pcie.payload", "read_request"))
	var out []answer
	for _, bdf := range f.pairDevices() {
		if slices.ContainsFunc(f.Disks, func(d facts.Disk) bool { return d.PCI == bdf && d.Kind == "virtio" }) {
			continue // its packets never leave the host's memory
		}
		can, set, read, ok := facts.Payload(f.Config(bdf))
		switch {
		case !ok && f.UID == 0:
			continue // no PCIe capability: a virtual function
		case !ok:
			out = append(out, answer{level: Unknown, subject: bdf,
				observed: "only root can read the configuration space"}.with("run", "lspci -s "+bdf+
				" -vv | grep -E 'MaxPayload|MaxReadReq'"))
		case can > poor && set <= poor || read < least:
			out = append(out, answer{level: Warn, subject: bdf,
				observed: fmt.Sprintf("payload %d of %d bytes, read request %d bytes", set, can, read)})
		default:
			out = append(out, answer{level: Pass, subject: bdf,
				observed: fmt.Sprintf("payload %d of %d bytes, read request %d bytes", set, can, read)})
		}
	}
	if out == nil {
		return skip("no PCIe device in this pair")
	}
	return out
}

// pcieACS checks the bridges above the disks and the GPU.
func pcieACS(f *exam) []answer {
	if !f.Pair() || len(f.Disks) == 0 {
		return skip("needs a path on a disk and a GPU")
	}
	if !f.X86() {
		return skip("checked only on x86")
	}
	bridges := map[string]bool{}
	for _, bdf := range f.pairDevices() {
		for _, up := range f.PCI(bdf).Chain {
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
		switch ctl, ok := facts.ACS(f.Config(b)); {
		case !ok:
			hidden = append(hidden, b)
		case ctl != 0:
			on = append(on, b)
		}
	}
	if s, st := f.Text("/proc/driver/nvidia-fs/bridges"); st == facts.There && len(on) == 0 {
		// nvidia-fs lists the bridges with ACS on, wherever they are.
		for b := range strings.FieldsSeq(s) {
			if facts.IsBDF(b) && bridges[b] {
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
		return []answer{answer{level: Warn, subject: strings.Join(on, ", "),
			observed: "ACS redirects peer traffic"}.with("acs", strings.Join(cmds, "; "))}
	case len(hidden) > 0:
		return []answer{answer{level: Unknown, subject: strings.Join(hidden, ", "),
			observed: "only root can read the configuration space"}.with("run",
			"lspci -vvv | grep -E '^[0-9a-f]|ACSCtl' | grep -B1 'ReqRedir+'")}
	case seen == 0:
		return skip("no bridge above disk and GPU is visible")
	}
	return one(Pass, "", fmt.Sprintf("no redirect on %d bridges", seen))
}

func iommu(f *exam) []answer {
	boot, _ := f.Text("/proc/cmdline")
	options := strings.Join(facts.BootOptions(boot), " ")
	units, _ := f.ReadDir("/sys/class/iommu")
	groups, _ := f.ReadDir("/sys/kernel/iommu_groups")
	kind := ""
	if f.GPU != nil {
		kind, _ = f.Text(path.Join(facts.PCIDir(f.GPU.PCI), "iommu_group/type"))
	}
	for i := 0; kind == "" && i < min(len(groups), 64); i++ {
		kind, _ = f.Text("/sys/kernel/iommu_groups/" + groups[i] + "/type")
	}
	on := len(units) > 0 || len(groups) > 0
	text := "off"
	if f.Virtual() != "" {
		text = "none in this guest; the host's cannot be seen"
	}
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
	case f.GPU == nil:
		return one(Info, "", text)
	case f.Grace() && (!on || through):
		boot := "# put iommu.passthrough=0 on the kernel command line, and remove iommu.passthrough=1 and iommu=pt"
		if !on {
			boot = "# turn the SMMU on in the firmware, and boot a kernel with CONFIG_ARM_SMMU_V3=y and iommu.passthrough=0 " +
				"on its command line"
		}
		return []answer{answer{level: Fail, observed: text}.with("boot", boot)}
	case f.Grace() || !on || through:
		return one(Pass, "", text)
	}
	return []answer{answer{level: Warn, observed: text}.with("boot",
		"# put iommu=pt on the kernel command line, or intel_iommu=off or amd_iommu=off; then update-grub")}
}

func topoPair(f *exam) []answer {
	if f.GPU == nil || len(f.Disks) == 0 {
		return skip("needs a path on a disk and a GPU")
	}
	var out []answer
	g := f.PCI(f.GPU.PCI)
	for _, d := range f.Disks {
		if d.PCI == "" || d.Kind != "nvme" {
			continue // no peer: how far it is from the GPU says nothing
		}
		subject := fmt.Sprintf("%s to GPU %d", d.Name, f.GPU.Index)
		switch dist := facts.Distance(d.Bus, g); dist {
		case "":
			out = append(out, answer{level: Info, subject: subject, observed: "the bus does not show how far apart they are"})
		case "PIX/PXB":
			out = append(out, answer{level: Pass, subject: subject, observed: "behind one PCIe switch (PIX/PXB)"})
		case "SYS":
			a := answer{level: Warn, subject: subject,
				observed: fmt.Sprintf("across sockets (SYS): disk on node %d, GPU on node %d; nearer: %s", d.NUMA, g.NUMA,
					f.nearer(d))}.with("nearer", f.nearer(d))
			if l, ok := f.Link(d.PCI); ok {
				a.lost = l.Now * (1 - f.num("topo.pair", "kept_ratio"))
			}
			out = append(out, a)
		default:
			out = append(out, answer{level: Info, subject: subject, observed: "same root complex or node (" + dist + ")"})
		}
	}
	if out == nil {
		return skip("the path is not on a local NVMe disk")
	}
	return out
}

// nearer names the GPUs that a disk reaches without crossing sockets.
func (f *exam) nearer(d facts.Disk) string {
	var near []string
	for i := range f.GPUs {
		if dist := facts.Distance(d.Bus, f.PCI(f.GPUs[i].PCI)); dist != "" && dist != "SYS" && f.GPUs[i].Index >= 0 {
			near = append(near, fmt.Sprintf("--gpu %d", f.GPUs[i].Index))
		}
	}
	if near == nil {
		return fmt.Sprintf("no GPU; move the data to a disk on node %d", f.GPU.NUMA)
	}
	return strings.Join(near, ", ")
}

func topoNVFS(f *exam) []answer {
	s, st := f.Text("/proc/driver/nvidia-fs/peer_distance")
	if st != facts.There || f.GPU == nil {
		return skip("nvidia-fs shows no distances")
	}
	for line := range strings.Lines(s) {
		if strings.Contains(strings.ToLower(line), f.GPU.PCI) {
			return one(Info, f.gpuName(), line)
		}
	}
	return one(Info, f.gpuName(), "not in peer_distance")
}

func numaNode(f *exam) []answer {
	if f.Nodes < 2 {
		return skip("one NUMA node")
	}
	var out []answer
	for _, bdf := range f.pairDevices() {
		if d := f.PCI(bdf); d.Known && d.NUMA < 0 {
			out = append(out, answer{level: Warn, subject: bdf, observed: fmt.Sprintf("node -1 on a machine of %d nodes",
				f.Nodes)})
		}
	}
	if out == nil {
		return one(Pass, "", fmt.Sprintf("devices of this pair name their node, %d nodes", f.Nodes))
	}
	return out
}

// numaCPUs checks whether the process may run on the CPUs next to the GPU.
func numaCPUs(f *exam) []answer {
	if f.Nodes < 2 || f.GPU == nil || f.GPU.NUMA < 0 {
		return skip("one NUMA node, no GPU, or the GPU does not name its node")
	}
	allowed, near := f.AllowedCPUs(), f.NodeCPUs(f.GPU.NUMA)
	if len(allowed) == 0 || len(near) == 0 {
		return skip("the CPUs of the process or of the node are not shown")
	}
	both := 0
	for _, c := range near {
		if slices.Contains(allowed, c) {
			both++
		}
	}
	a := answer{level: Pass, subject: f.gpuName(), observed: fmt.Sprintf("%d of the %d CPUs of node %d are allowed", both,
		len(near), f.GPU.NUMA)}.with("node", fmt.Sprint(f.GPU.NUMA))
	if both == 0 {
		a.level = Warn
	}
	return []answer{a}
}
