// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// DirectPath tells a loader whether to open cuFile for direct reads from a path to a GPU. Opening cuFile creates a
// CUDA context on every GPU.
type DirectPath struct {
	// Plausible means that no obstacle is known on a direct route from the path to the GPU. Plausible does not prove
	// that a direct route works.
	Plausible bool
	// Reason is the first obstacle on the direct route and Fix its remedy, if Plausible is false.
	Reason, Fix string
}

// conditionChecks lists the checks that a direct route depends on, one by one. The loader thus links only these
// checks, and not the rest of doctor.
func conditionChecks() []check {
	return []check{
		{"gpu.present", gpuPresent}, {"gpu.arch", gpuArch}, {"fs.type", fsType}, {"nfs.proto", nfsProto}, {"blk.peer",
			blkPeer}, {"dm.crypt", dmCrypt},
		{"dio.support", dioSupport}, {"fs.ext4.journal", ext4Journal}, {"ct.udev", ctUdev}, {"iommu", iommu}, {"pcie.acs",
			pcieACS}, {"drv.open", drvOpen},
		{"cufile.json", cufileJSON}, {"p2p.model", p2pModel}, {"drv.p2pdma_min", drvMin}, {"p2p.kernel",
			p2pKernel}, {"p2p.topology", p2pTopology},
		{"p2p.multipath", p2pMultipath}, {"p2p.regkeys", p2pRegkeys}, {"p2p.cufile", p2pCuFile}, {"nvfs.loaded",
			nvfsLoaded}, {"nvfs.modules", nvfsModules},
		{"nvfs.devnodes", nvfsNodes},
	}
}

// Judge runs only the rules that a direct route depends on, for the GPU with the given CUDA index. A call of Judge
// takes a few milliseconds.
func Judge(t facts.Tree, m facts.Meta, gpu int) (DirectPath, error) {
	rules, err := parseRules(rulesJSON)
	if err != nil {
		return DirectPath{}, err
	}
	f := &exam{Facts: facts.Gather(t, m, gpu), opt: Options{GPU: gpu, Profile: Infer}, rules: rules}
	var all []Finding
	for _, c := range conditionChecks() {
		r, ok := rules.byID[c.id]
		if !ok {
			return DirectPath{}, errs.New(errs.Other, "check", c.id, "has no rule")
		}
		for _, a := range c.run(f) {
			all = append(all, r.finding(a, f.opt.Profile))
		}
	}
	v := judge(f, all)
	if v.Direct == "yes" || v.Direct == "unproven" {
		return DirectPath{Plausible: true}, nil
	}
	p := DirectPath{Reason: v.Summary, Fix: "none: the staged route is the fastest here; nebulaio doctor shows more"}
	if v.Direct == "none" {
		p.Reason = "the kernel shows no NVIDIA GPU of that number"
	}
	if v.Cause != nil && v.Cause.FixNow != "" {
		p.Fix = v.Cause.FixNow
	} else if v.Cause != nil && v.Cause.FixBoot != "" {
		p.Fix = v.Cause.FixBoot
	}
	return p, nil
}
