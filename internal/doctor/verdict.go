// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// Verdict is the conclusion of a diagnosis for a path and a GPU.
type Verdict struct {
	// Direct says whether data can go directly from the path to the GPU: "yes", "no", "unproven" or "none". The value
	// "unproven" means that no obstacle was found, but that a direct route is not certain. The value "none" means
	// that there is no GPU.
	Direct  string `json:"direct"`
	Route   string `json:"route"` // route of the data: p2pdma, nvidia-fs or staged
	Summary string `json:"summary"`
	// If no direct route works, Cause is the first failed condition of the route that is nearest to working. If a
	// direct route is possible, Cause is the most important finding of level FAIL or WARN. Cause is nil if no
	// condition fails and no finding costs speed.
	Cause  *Finding    `json:"cause"`
	Routes []RouteInfo `json:"routes"`
	// Loader describes the route that nebulaio itself uses when it loads models.
	Loader string `json:"loader"`
}

// RouteInfo is one direct route (P2PDMA or nvidia-fs) and the conditions on which it depends, in order.
type RouteInfo struct {
	Name  string `json:"name"`
	State string `json:"state"` // open, unproven, blocked
	Steps []Step `json:"steps"`
}

// Step is one condition on which a direct route depends.
type Step struct {
	ID       string `json:"id"`
	State    string `json:"state"` // state of the condition: ok, blocked, unknown, redirected or skipped
	Observed string `json:"observed"`
}

// common lists the conditions of both routes, which come first. A failed condition blocks its route; a condition that
// only costs speed does not.
func common() []string {
	return []string{"gpu.present", "gpu.arch", "fs.type", "nfs.proto", "blk.peer", "dm.crypt", "dio.support",
		"fs.ext4.journal", "ct.udev", "iommu", "pcie.acs",
		"drv.open", "cufile.json"}
}

func p2pdmaOnly() []string {
	return []string{"p2p.model", "drv.p2pdma_min", "p2p.kernel", "p2p.topology", "p2p.multipath", "p2p.regkeys",
		"p2p.cufile"}
}

func nvfsOnly() []string {
	return []string{"nvfs.loaded", "nvfs.modules", "nvfs.devnodes"}
}

// redirects reports whether a failed condition sends traffic between peers through the root complex. Some root
// complexes forward it more slowly, others do not forward it. No file tells which, so the route is unproven.
func redirects(id string) bool { return id == "iommu" || id == "pcie.acs" }

// structural reports whether a condition concerns the hardware or the storage itself. If such a condition fails, no
// setting opens a route.
func structural(id string) bool {
	return slices.Contains([]string{"gpu.present", "gpu.arch", "fs.type", "blk.peer", "dm.crypt"}, id)
}

// walk judges one route by the findings.
func walk(name string, conditions []string, all []Finding) (r RouteInfo, first *Finding, blocked int) {
	r = RouteInfo{Name: name, State: "open"}
	for _, id := range conditions {
		s := Step{ID: id, State: "skipped"}
		for i := range all {
			f := &all[i]
			if f.ID != id {
				continue
			}
			state := "ok"
			switch {
			case f.Level == Fail:
				state = "blocked"
			case f.Level == Unknown:
				state = "unknown"
			case f.Level == Warn && redirects(id):
				state = "redirected"
			case f.Level == Skip:
				state = "skipped"
			}
			if worse(state) >= worse(s.State) {
				s.State, s.Observed = state, f.Observed
			}
			if state == "blocked" && first == nil {
				first = f
			}
		}
		r.Steps = append(r.Steps, s)
		switch s.State {
		case "blocked":
			blocked++
			r.State = "blocked"
		case "unknown", "redirected":
			if r.State == "open" {
				r.State = "unproven"
			}
		}
	}
	return r, first, blocked
}

// steps lists the conditions of a route that have a state.
func steps(r RouteInfo, state string) []string {
	var out []string
	for _, s := range r.Steps {
		if s.State == state {
			out = append(out, s.ID)
		}
	}
	return out
}

func worse(state string) int {
	return slices.Index([]string{"skipped", "ok", "redirected", "unknown", "blocked"}, state)
}

// judge returns the verdict. It lowers two kinds of findings to INFO: faults on a route that is not needed, and
// faults on a route that no fix can open.
func judge(f *exam, all []Finding) Verdict {
	v := Verdict{Direct: "none", Route: "staged", Loader: loader(f)}
	if f.GPU == nil {
		lower(all, slices.DeleteFunc(slices.Concat(common()[1:], p2pdmaOnly(), nvfsOnly()),
			func(id string) bool { return id == "fs.type" || id == "nfs.proto" }), "matters only with a GPU")
		v.Summary = "no GPU: there is no direct path to check; the findings are about the path and the machine"
		if i := slices.IndexFunc(all, func(x Finding) bool { return x.ID == "gpu.present" && x.Level == Fail }); i >= 0 {
			c := all[i]
			v.Cause = &c
		}
		return v
	}
	p2p, p2pFirst, p2pN := walk("p2pdma", append(common(), p2pdmaOnly()...), all)
	nv, nvFirst, nvN := walk("nvidia-fs", append(common(), nvfsOnly()...), all)
	v.Routes = []RouteInfo{p2p, nv}
	// Neither a file system behind a network nor an array or a GPU that is not
	// listed for it ever gets to P2PDMA, however few steps are left.
	onlyNVFS := f.Mount != nil && facts.Remote(f.Mount.FSType)
	if onlyNVFS {
		v.Routes = v.Routes[1:]
	}
	onlyNVFS = onlyNVFS || slices.ContainsFunc(all, func(x Finding) bool {
		return (x.ID == "p2p.model" || x.ID == "p2p.topology") && x.Level == Fail
	})
	near, first, unwanted := nv, nvFirst, p2pdmaOnly()
	// With as many steps left, the route that has its module loaded is nearer;
	// P2PDMA needs no module at all.
	if !onlyNVFS && (p2pN < nvN || p2pN == nvN && !f.NVFS()) {
		near, first, unwanted = p2p, p2pFirst, nvfsOnly()
	}
	pair, note := f.pairName(), "not needed on the route "+near.Name
	switch {
	case first != nil:
		c := *first
		v.Direct, v.Cause = "no", &c
		v.Summary = fmt.Sprintf("no direct path for %s; nearest route %s, first cause %s: %s", pair, near.Name, c.ID,
			c.Observed)
		if structural(c.ID) || c.ID == "nfs.proto" && f.EFS() {
			unwanted = slices.Concat(p2pdmaOnly(), nvfsOnly(), slices.DeleteFunc(common(), func(id string) bool {
				return structural(id) || id == "dio.support" || id == "nfs.proto"
			}))
			note = "helps no route while " + c.ID + " stands"
			v.Summary = fmt.Sprintf("no direct path for %s: %s", pair, c.Observed)
		}
	case near.State == "unproven":
		v.Direct, v.Route = "unproven", near.Name
		if ids := steps(near, "unknown"); ids != nil {
			v.Summary = fmt.Sprintf("no known obstacle for %s on the route %s; not proven: %s", pair, near.Name,
				strings.Join(ids, ", "))
		} else {
			v.Summary = fmt.Sprintf("the route %s for %s goes through the root complex (%s): slower, if it works at all",
				near.Name, pair, strings.Join(steps(near, "redirected"), ", "))
		}
	default:
		v.Direct, v.Route = "yes", near.Name
		v.Summary = fmt.Sprintf("direct path for %s over %s", pair, near.Name)
	}
	if f.Mount == nil && v.Direct != "no" {
		v.Direct = "unproven"
		v.Summary += "; no path was given, so only the machine was checked"
	}
	if v.Direct != "no" && f.Mount != nil {
		v.Loader = "cuFile for what is not in the page cache, unless its counters show the way through host memory; else " +
			v.Loader
	}
	lower(all, unwanted, note)
	if v.Cause == nil {
		sorted := slices.Clone(all)
		order(sorted)
		if len(sorted) > 0 && (sorted[0].Level == Fail || sorted[0].Level == Warn) {
			v.Cause = &sorted[0]
		}
	}
	return v
}

func lower(all []Finding, conditions []string, note string) {
	for i := range all {
		f := &all[i]
		if (f.Level == Fail || f.Level == Warn) && slices.Contains(conditions, f.ID) {
			f.Level, f.FixNow, f.FixBoot, f.Cost, f.LostGBs = Info, "", "", "unknown", 0
			f.Observed += " (" + note + ")"
		}
	}
}

// loader describes the route of nebulaio's own loads without cuFile.
func loader(f *exam) string {
	if f.GPU == nil {
		return "host memory: O_DIRECT reads, or the page cache where the data is there"
	}
	if f.Target == nil {
		return "staged: reads past the page cache, or from it, into pinned memory, then a copy to the GPU"
	}
	if dio := dioSupport(f); dio[0].level == Fail {
		return "staged: reads through the page cache into pinned memory, then a copy to the GPU (O_DIRECT is refused here)"
	}
	return "staged: O_DIRECT reads, or the page cache where the data is there, into pinned memory, then a copy to the GPU"
}
