// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

// proofLine returns the proof for WriteText. Without a GPU it is empty, because a missing proof needs no explanation.
func (r *Result) proofLine() string {
	if r.GPU == nil && r.Proof != nil && r.Proof.Skipped != "" {
		return ""
	}
	return proofText(r.Proof)
}

// directRoute returns the direct route that the counters show, or "".
func directRoute(p *facts.Proof) string {
	return map[string]string{device.RouteP2P: "p2pdma", device.RouteNVFS: "nvidia-fs"}[p.Route]
}

// proofText describes the proof in one line. It is empty for nil.
func proofText(p *facts.Proof) string {
	switch {
	case p == nil:
		return ""
	case p.Skipped != "":
		return clean("not made: " + p.Skipped)
	case !p.Done:
		return clean("failed: " + p.Error + logged(p))
	}
	text := fmt.Sprintf("cuFile read %d x %s: %s", p.Reads, units.Bytes(p.ReadSize), p.Route)
	if p.Counters.Known {
		text += " (" + p.Counters.Reads.String()
		if basis := p.Counters.Basis(); basis != "" {
			text += "; " + basis
		}
		text += ")"
	} else if p.Error != "" {
		text += " (" + p.Error + ")"
	}
	return clean(text + logged(p))
}

func logged(p *facts.Proof) string {
	if p.Log == "" {
		return ""
	}
	return "; its log says: " + p.Log
}

// proofChecks has only the rule's ID. The answer depends on the verdict, so settle computes it.
func proofChecks() []check {
	return []check{{"proof.path", func(*exam) []answer { return nil }}}
}

// settle first judges the proof against the verdict of the checks, then corrects the verdict by the proof. An
// observation outweighs a conclusion.
func settle(f *exam, r *rule, res *Result) {
	p, v := f.Proof, &res.Verdict
	if res.Proof = p; p == nil {
		return // a capture of before there were proofs
	}
	a := proofAnswer(f, v)
	finding := r.finding(a, res.Profile)
	res.Findings = append(res.Findings, finding)
	if f.GPU == nil || a.level == Skip {
		return
	}
	switch route := directRoute(p); {
	case p.Done && route != "" && (v.Direct != "yes" || v.Route != route):
		v.Direct, v.Route = "yes", route
		v.Summary = fmt.Sprintf("direct path for %s over %s, as cuFile's own counters show", f.pairName(), route)
	case a.level == Fail:
		v.Summary = fmt.Sprintf("no direct path for %s: no known obstacle on the route %s, but %s", f.pairName(), v.Route,
			finding.Observed)
		v.Direct, v.Route, v.Cause = "no", "staged", &finding
	case !p.Done && v.Direct == "yes":
		v.Direct = "unproven"
		v.Summary += "; the proof " + proofText(p)
	}
}

func proofAnswer(f *exam, v *Verdict) answer {
	p := f.Proof
	switch {
	case p.Skipped != "":
		return answer{level: Skip, observed: p.Skipped}
	case f.GPU != nil && f.GPU.Index != p.GPU:
		return answer{level: Skip, observed: fmt.Sprintf("made for GPU %d", p.GPU)}
	}
	a := answer{level: Unknown, subject: "cuFile", observed: proofText(p)}
	fix := p.Fix
	switch {
	case p.Done && directRoute(p) != "":
		a.level = Pass
	case p.Done && p.Route == device.RouteMixed:
		a.level = Warn
	case p.Done && p.Route == device.RouteCompat && v.Direct == "yes":
		a.level = Fail
	case p.Done && p.Route == device.RouteCompat && v.Direct != "unproven":
		a.level = Info // as the verdict said
	}
	if fix == "" {
		fix = "set logging.level to INFO in cufile.json, read this path with a cuFile program, and see cufile.log"
		if p.Log != "" {
			fix = "fix what cuFile's log names: " + p.Log
		}
	}
	return a.with("now", "# "+clean(strings.TrimLeft(fix, "# ")))
}
