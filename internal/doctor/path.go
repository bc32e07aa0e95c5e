// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the answer for the pair.
type Verdict struct {
	// Direct is yes, no, unproven (nothing readable stands in the way, some
	// conditions could not be read) or none (there is no GPU).
	Direct  string `json:"direct"`
	Route   string `json:"route"` // p2pdma, nvidia-fs or staged
	Summary string `json:"summary"`
	// Cause is the first condition that fails on the nearest route or, where a
	// route is open, what costs most on it. Nil where there is neither.
	Cause  *Finding    `json:"cause"`
	Routes []RouteInfo `json:"routes"`
	// Loader says which way nebulaio's own loads take today.
	Loader string `json:"loader"`
}

// RouteInfo is one way past the CPU with its conditions in order.
type RouteInfo struct {
	Name  string `json:"name"`
	State string `json:"state"` // open, unproven, blocked
	Steps []Step `json:"steps"`
}

// Step is one condition of a route.
type Step struct {
	ID       string `json:"id"`
	State    string `json:"state"` // ok, blocked, unknown, skipped
	Observed string `json:"observed"`
}

// condition is a rule on a route; hard ones stop it at WARN already.
type condition struct {
	id   string
	hard bool
}

// common conditions come first: without them neither route is worth building.
func common() []condition {
	return []condition{{"gpu.present", false}, {"gpu.arch", true}, {"fs.type", true}, {"nfs.proto", true}, {"blk.peer", false}, {"dm.crypt", false},
		{"dio.support", false}, {"fs.ext4.journal", true}, {"ct.udev", false}, {"iommu", true}, {"pcie.acs", true},
		{"drv.open", true}, {"cufile.json", true}}
}

func p2pdmaOnly() []condition {
	return []condition{{"drv.p2pdma_min", false}, {"p2p.kernel", false}, {"p2p.topology", false}, {"p2p.multipath", false}, {"p2p.regkeys", false}, {"p2p.cufile", false}}
}

func nvfsOnly() []condition {
	return []condition{{"nvfs.loaded", false}, {"nvfs.modules", false}, {"nvfs.devnodes", false}}
}

// structural conditions are about what the machine is; where one fails, no
// setting of a route helps.
func structural(id string) bool {
	return slices.Contains([]string{"gpu.present", "fs.type", "blk.peer", "dm.crypt"}, id)
}

// walk judges one route by the findings.
func walk(name string, conditions []condition, all []Finding) (r RouteInfo, first *Finding, blocked int) {
	r = RouteInfo{Name: name, State: "open"}
	for _, c := range conditions {
		s := Step{ID: c.id, State: "skipped"}
		for i := range all {
			f := &all[i]
			if f.ID != c.id {
				continue
			}
			state := "ok"
			switch {
			case f.Level == Fail, f.Level == Warn && c.hard:
				state = "blocked"
			case f.Level == Unknown:
				state = "unknown"
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
		case "unknown":
			if r.State == "open" {
				r.State = "unproven"
			}
		}
	}
	return r, first, blocked
}

func worse(state string) int {
	return slices.Index([]string{"skipped", "ok", "unknown", "blocked"}, state)
}

// judge gives the verdict, and lowers what turns out not to matter: a fault on a
// route that is not needed, or that no fix could open, is INFO.
func judge(f *facts, all []Finding) Verdict {
	v := Verdict{Direct: "none", Route: "staged", Loader: loader(f)}
	if f.gpu == nil {
		lower(all, slices.Concat(common()[1:], p2pdmaOnly(), nvfsOnly()), "matters with a GPU alone")
		v.Summary = "no GPU: there is no pair to judge; the findings are about the path and the machine"
		if i := slices.IndexFunc(all, func(x Finding) bool { return x.ID == "gpu.present" && x.Level == Fail }); i >= 0 {
			c := all[i]
			v.Cause = &c
		}
		return v
	}
	p2p, p2pFirst, p2pN := walk("p2pdma", append(common(), p2pdmaOnly()...), all)
	nv, nvFirst, nvN := walk("nvidia-fs", append(common(), nvfsOnly()...), all)
	v.Routes = []RouteInfo{p2p, nv}
	onlyNVFS := f.mount != nil && remote(f.mount.fstype)
	if onlyNVFS {
		v.Routes = v.Routes[1:]
	}
	near, first, unwanted := nv, nvFirst, p2pdmaOnly()
	// With as many steps left, the route that has its module loaded is nearer;
	// P2PDMA needs no module at all.
	if !onlyNVFS && (p2pN < nvN || p2pN == nvN && !f.nvfs()) {
		near, first, unwanted = p2p, p2pFirst, nvfsOnly()
	}
	pair, note := f.pairName(), "not needed on the route "+near.Name
	switch {
	case first != nil:
		c := *first
		v.Direct, v.Cause = "no", &c
		v.Summary = fmt.Sprintf("no direct path for %s; nearest route %s, first cause %s: %s", pair, near.Name, c.ID, c.Observed)
		if structural(c.ID) {
			unwanted = slices.Concat(p2pdmaOnly(), nvfsOnly(), slices.DeleteFunc(common(), func(x condition) bool { return structural(x.id) || x.id == "dio.support" || x.id == "nfs.proto" }))
			note = "helps no route while " + c.ID + " stands"
			v.Summary = fmt.Sprintf("no direct path for %s: %s", pair, c.Observed)
		}
	case near.State == "unproven":
		v.Direct, v.Route = "unproven", near.Name
		v.Summary = fmt.Sprintf("nothing readable stands between %s on the route %s; what is UNKNOWN below is not proven", pair, near.Name)
	default:
		v.Direct, v.Route = "yes", near.Name
		v.Summary = fmt.Sprintf("direct path for %s over %s", pair, near.Name)
	}
	if f.mount == nil && v.Direct != "no" {
		v.Direct = "unproven"
		v.Summary += "; no path was given, so only the machine's part is judged"
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

func lower(all []Finding, conditions []condition, note string) {
	for i := range all {
		f := &all[i]
		if (f.Level == Fail || f.Level == Warn) && slices.ContainsFunc(conditions, func(c condition) bool { return c.id == f.ID }) {
			f.Level, f.FixNow, f.FixBoot = Info, "", ""
			f.Observed += " (" + note + ")"
		}
	}
}

func (f *facts) pairName() string {
	g := fmt.Sprintf("GPU %d", f.gpu.Index)
	switch {
	case f.mount == nil:
		return g
	case len(f.disks) == 0:
		return clean(f.Target.Path) + " (" + f.mount.fstype + ") to " + g
	}
	var names []string
	for _, d := range f.disks {
		names = append(names, d.Name)
	}
	return fmt.Sprintf("%s (%s) to %s", clean(f.Target.Path), strings.Join(names, ", "), g)
}

// loader states the route of nebulaio's own loads; they are staged whatever
// the verdict is.
func loader(f *facts) string {
	if f.Target == nil {
		return "staged: reads past the page cache, or from it, into pinned memory, then a copy to the GPU"
	}
	if dio := dioSupport(f); dio[0].level == Fail {
		return "staged: reads through the page cache into pinned memory, then a copy to the GPU (O_DIRECT is refused here)"
	}
	return "staged: O_DIRECT reads, or the page cache where the data is there, into pinned memory, then a copy to the GPU"
}
