// SPDX-License-Identifier: Apache-2.0

// Package doctor checks the route from a path to a GPU.
//
// It tells whether data can go there directly. If not, it names the first cause and
// its fix. Other findings follow, ordered by their cost.
//
// The checks are here. Package facts reads the machine, so the same checks run on a
// live machine and on a capture of another one. Texts, weights and thresholds are
// data, in rules.json. Nothing is guessed: a check that may not read something is
// UNKNOWN and names the command to run as root. Only Prove does work: a separate
// process reads the path through cuFile and keeps its counters.
//
// Settings of a running data loader and needs of process checkpoints are not checked
// here. They belong to a process, not to a path and a GPU.
package doctor

import (
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Version is that of the JSON a Result becomes.
const Version = 1

// Level is the result of a rule.
type Level string

// The levels.
const (
	// Fail means that the direct path cannot work or data is at risk.
	Fail Level = "FAIL"
	// Warn means slower than it could be.
	Warn Level = "WARN"
	// Unknown means that it could not be read; the finding says what to run.
	Unknown Level = "UNKNOWN"
	// Info is worth knowing and costs nothing by itself.
	Info Level = "INFO"
	// Pass means that the rule holds.
	Pass Level = "PASS"
	// Skip means that the rule does not apply to this pair.
	Skip Level = "SKIP"
)

// Profile is the workload of the machine. It decides the order of findings and
// selects thresholds.
type Profile string

// The profiles.
const (
	Train      Profile = "train"
	Infer      Profile = "infer"
	Checkpoint Profile = "checkpoint"
)

// Finding is one rule's answer about one subject.
type Finding struct {
	ID        string `json:"id"` // stable
	Title     string `json:"title"`
	Subject   string `json:"subject"`
	Level     Level  `json:"level"`
	Observed  string `json:"observed"`
	Expected  string `json:"expected"`
	Why       string `json:"why"`
	FixNow    string `json:"fix_now,omitempty"`
	FixBoot   string `json:"fix_boot,omitempty"`
	Reference string `json:"reference"`
	// Cost is a figure only where one is measured or cited, else "unknown".
	Cost string `json:"cost"`
	// LostGBs is the same in GB/s where it can be computed, 0 unknown. It orders
	// findings of one level before those whose cost is unknown.
	LostGBs float64 `json:"lost_gbs,omitempty"`
	weight  int
}

// Machine is what the findings are about.
type Machine struct {
	Kernel         string `json:"kernel"`
	Arch           string `json:"arch"`
	CPUs           int    `json:"cpus"`
	Virtualisation string `json:"virtualisation"`
	Driver         string `json:"driver,omitempty"`
	Root           bool   `json:"root"` // the checks ran as root
}

// PathInfo is the path as it was found. Zero fields mean that no path was given.
type PathInfo struct {
	Path   string       `json:"path,omitempty"`
	Mount  string       `json:"mount,omitempty"`
	FSType string       `json:"fs_type,omitempty"`
	Source string       `json:"source,omitempty"`
	Disks  []facts.Disk `json:"disks,omitempty"`
}

// Result is a whole diagnosis.
type Result struct {
	Version  int          `json:"version"`
	Rules    int          `json:"rules_version"`
	Profile  Profile      `json:"profile"`
	Machine  Machine      `json:"machine"`
	Path     PathInfo     `json:"path"`
	GPU      *facts.GPU   `json:"gpu"`
	Verdict  Verdict      `json:"verdict"`
	Proof    *facts.Proof `json:"proof,omitempty"` // nil: not tried
	Findings []Finding    `json:"findings"`
}

// Failed reports whether any finding is FAIL.
func (r *Result) Failed() bool {
	for _, f := range r.Findings {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

// Options selects what to diagnose.
type Options struct {
	// GPU is the index of the GPU, -1 for the first one; only a GPU asked for
	// by its index is FAIL when it is missing.
	GPU     int
	Profile Profile
}

// Diagnose runs every rule on a machine. An error of kind Other means that the
// embedded rules are broken, which is a defect.
func Diagnose(t facts.Tree, m facts.Meta, o Options) (*Result, error) {
	rules, err := parseRules(rulesJSON)
	if err != nil {
		return nil, err
	}
	return diagnose(rules, t, m, o)
}

func diagnose(rules *ruleSet, t facts.Tree, m facts.Meta, o Options) (*Result, error) {
	if o.Profile == "" {
		o.Profile = Train
	}
	f := &exam{Facts: facts.Gather(t, m, o.GPU), opt: o, rules: rules}
	res := &Result{Version: Version, Rules: rules.Version, Profile: o.Profile, Machine: f.machine(), Path: f.pathInfo(),
		GPU: f.GPU}
	for _, c := range checks() {
		r, ok := rules.byID[c.id]
		if !ok {
			return nil, errs.New(errs.Other, "check", c.id, "has no rule")
		}
		for _, a := range c.run(f) {
			res.Findings = append(res.Findings, r.finding(a, o.Profile))
		}
	}
	if len(f.absent) > 0 {
		return nil, errs.New(errs.Other, "check", f.absent[0], "is no value in rules.json")
	}
	res.Verdict = judge(f, res.Findings)
	settle(f, rules.byID["proof.path"], res)
	order(res.Findings)
	return res, nil
}

// Capture diagnoses the machine of t and writes what the checks read, and
// nothing else, to out: a tar where the name ends in .tar, else a new or empty
// directory. On failure no tar is left. It returns kind Invalid if out is in use.
func Capture(out string, t facts.Tree, m facts.Meta) (*facts.Captured, error) {
	rec := facts.NewRecorder(t)
	// Which GPU is asked about is known only when the capture is read.
	gpus := facts.Gather(rec, m, -1).GPUs
	for i := -1; i < min(len(gpus), 64); i++ {
		if _, err := Diagnose(rec, m, Options{GPU: i, Profile: Checkpoint}); err != nil {
			return nil, err
		}
	}
	return rec.Write(out, m)
}

// answer is what a check says; the rule adds the words.
type answer struct {
	level    Level
	subject  string
	observed string
	cost     string            // overrides the rule's
	lost     float64           // GB/s, 0 unknown
	vars     map[string]string // {name} in the rule's fixes
}

// check binds a rule's id to its code. A check that does not apply gives one
// SKIP that says why.
type check struct {
	id  string
	run func(*exam) []answer
}

func one(l Level, subject, observed string) []answer {
	return []answer{{level: l, subject: subject, observed: observed}}
}

func skip(why string) []answer { return one(Skip, "", why) }

func (a answer) with(kv ...string) answer {
	a.vars = map[string]string{}
	for i := 0; i+1 < len(kv); i += 2 {
		a.vars[kv[i]] = kv[i+1]
	}
	return a
}

func checks() []check {
	var all []check
	for _, part := range [][]check{gpuChecks(), routeChecks(), cufileChecks(), pcieChecks(), platformChecks(),
		blockChecks(), fsChecks(), systemChecks(), cgroupChecks(), nfsChecks(), networkChecks(), proofChecks()} {
		all = append(all, part...)
	}
	return all
}
