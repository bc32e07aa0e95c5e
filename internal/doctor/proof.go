// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Proof is what cuFile itself counted while it read the path to the GPU. The
// checks say what should happen; this is what does. One of Done, Error and
// Skipped tells how it ended; Done with Error means that the reads were done
// and the library could not say on which route.
type Proof struct {
	Done     bool  `json:"done"`
	GPU      int   `json:"gpu"` // as CUDA counts
	Reads    int   `json:"reads,omitempty"`
	ReadSize int64 `json:"read_size,omitempty"` // of each, in bytes
	// Route is p2p, nvfs, compat, mixed, unknown or none.
	Route    string                `json:"route,omitempty"`
	Counters device.DirectCounters `json:"counters,omitzero"`
	Version  string                `json:"cufile_version,omitempty"`
	Error    string                `json:"error,omitempty"`
	// Log is the first ERROR line that cuFile wrote.
	Log     string `json:"log,omitempty"`
	Skipped string `json:"skipped,omitempty"` // why it was not tried
	Fix     string `json:"fix,omitempty"`
}

// Text is the proof in one line; empty for nil.
func (p *Proof) Text() string {
	switch {
	case p == nil:
		return ""
	case p.Skipped != "":
		return clean("not made: " + p.Skipped)
	case !p.Done:
		return clean("failed: " + p.Error + p.logged())
	}
	text := fmt.Sprintf("cuFile read %d x %s: %s", p.Reads, units.Bytes(p.ReadSize), p.Route)
	if p.Counters.Known {
		text += " (" + p.Counters.Reads.String() + ")"
	} else if p.Error != "" {
		text += " (" + p.Error + ")"
	}
	return clean(text + p.logged())
}

// proofLine is the proof as WriteText shows it: without a GPU it goes without
// saying that there is none.
func (r *Result) proofLine() string {
	if r.GPU == nil && r.Proof != nil && r.Proof.Skipped != "" {
		return ""
	}
	return r.Proof.Text()
}

func (p *Proof) logged() string {
	if p.Log == "" {
		return ""
	}
	return "; its log says: " + p.Log
}

// direct is the route of the verdict that the counters show, or "".
func (p *Proof) direct() string {
	return map[string]string{device.RouteP2P: "p2pdma", device.RouteNVFS: "nvidia-fs"}[p.Route]
}

// proofChecks has the rule's id alone: its answer needs the verdict, and
// settle gives it.
func proofChecks() []check {
	return []check{{"proof.path", func(*facts) []answer { return nil }}}
}

// settle judges the proof against the verdict that the checks gave, and then
// the verdict by the proof: what was seen outweighs what was concluded.
func settle(f *facts, r rule, res *Result) {
	p, v := f.Proof, &res.Verdict
	if res.Proof = p; p == nil {
		return // a capture of before there were proofs
	}
	a := proofAnswer(f, v)
	finding := r.finding(a, res.Profile)
	res.Findings = append(res.Findings, finding)
	if f.gpu == nil || a.level == Skip {
		return
	}
	switch route := p.direct(); {
	case p.Done && route != "" && (v.Direct != "yes" || v.Route != route):
		v.Direct, v.Route = "yes", route
		v.Summary = fmt.Sprintf("direct path for %s over %s, as cuFile's own counters show", f.pairName(), route)
	case a.level == Fail:
		v.Summary = fmt.Sprintf("no direct path for %s: nothing readable stands in the way on the route %s, and yet %s", f.pairName(), v.Route, finding.Observed)
		v.Direct, v.Route, v.Cause = "no", "staged", &finding
	case !p.Done && v.Direct == "yes":
		v.Direct = "unproven"
		v.Summary += "; the proof " + p.Text()
	}
}

func proofAnswer(f *facts, v *Verdict) answer {
	p := f.Proof
	switch {
	case p.Skipped != "":
		return answer{level: Skip, observed: p.Skipped}
	case f.gpu != nil && f.gpu.Index != p.GPU:
		return answer{level: Skip, observed: fmt.Sprintf("made for GPU %d", p.GPU)}
	}
	a := answer{level: Unknown, subject: "cuFile", observed: p.Text()}
	fix := p.Fix
	switch {
	case p.Done && p.direct() != "":
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
			fix = "mend what cuFile's log names: " + p.Log
		}
	}
	return a.with("now", "# "+clean(strings.TrimLeft(fix, "# ")))
}
