// SPDX-License-Identifier: Apache-2.0

// Package doctor checks the route from a path to a GPU.
//
// A diagnosis tells whether data can go from the path directly to the GPU. If no direct route exists, the diagnosis
// names the first obstacle and its fix. Other findings follow, ordered by their cost.
//
// Package doctor contains the checks. Package facts reads the machine, so the same checks run on a live machine and
// on a capture of another one. Texts, weights and thresholds are data in rules.json. No check guesses: a check
// without permission to read a fact is UNKNOWN and names the command to run as root. Only Prove moves data: a
// separate process reads the path through cuFile and records cuFile's counters.
//
// Package doctor checks neither settings of a running data loader nor requirements of process checkpoints, which
// belong to a process.
package doctor

import (
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Version is the version of the JSON form of a Result.
const Version = 1

// Level is the outcome of a rule.
type Level string

// Levels of findings.
const (
	// Fail means that the direct path cannot work, or that data is at risk.
	Fail Level = "FAIL"
	// Warn means that something is slower than it could be.
	Warn Level = "WARN"
	// Unknown means that a fact could not be read. A finding of this level names the command that reads the fact.
	Unknown Level = "UNKNOWN"
	// Info means that a finding is worth knowing but costs nothing by itself.
	Info Level = "INFO"
	// Pass means that the rule holds.
	Pass Level = "PASS"
	// Skip means that the rule does not apply to this path and GPU.
	Skip Level = "SKIP"
)

// Profile is the workload for which a machine is diagnosed. The profile selects thresholds and affects the order of
// findings.
type Profile string

// Profiles of workloads.
const (
	Train      Profile = "train"
	Infer      Profile = "infer"
	Checkpoint Profile = "checkpoint"
)

// Finding is the outcome of one rule for one subject, such as a disk.
type Finding struct {
	ID        string `json:"id"` // identifier of the rule; never changes between versions
	Title     string `json:"title"`
	Subject   string `json:"subject"`
	Level     Level  `json:"level"`
	Observed  string `json:"observed"`
	Expected  string `json:"expected"`
	Why       string `json:"why"`
	FixNow    string `json:"fix_now,omitempty"`
	FixBoot   string `json:"fix_boot,omitempty"`
	Reference string `json:"reference"`
	// Cost is a measured or cited figure, or "unknown".
	Cost string `json:"cost"`
	// LostGBs is the cost in GB/s, or 0 if it cannot be computed. Among findings of one level, a greater loss comes
	// first.
	LostGBs float64 `json:"lost_gbs,omitempty"`
	weight  int
}

// Machine describes the diagnosed machine.
type Machine struct {
	Kernel         string `json:"kernel"`
	Arch           string `json:"arch"`
	CPUs           int    `json:"cpus"`
	Virtualisation string `json:"virtualisation"`
	Driver         string `json:"driver,omitempty"`
	Root           bool   `json:"root"` // the checks ran as root
}

// PathInfo describes the diagnosed path. All fields are zero if no path was given.
type PathInfo struct {
	Path   string       `json:"path,omitempty"`
	Mount  string       `json:"mount,omitempty"`
	FSType string       `json:"fs_type,omitempty"`
	Source string       `json:"source,omitempty"`
	Disks  []facts.Disk `json:"disks,omitempty"`
}

// Result is a complete diagnosis.
type Result struct {
	Version  int          `json:"version"`
	Rules    int          `json:"rules_version"`
	Profile  Profile      `json:"profile"`
	Machine  Machine      `json:"machine"`
	Path     PathInfo     `json:"path"`
	GPU      *facts.GPU   `json:"gpu"`
	Verdict  Verdict      `json:"verdict"`
	Proof    *facts.Proof `json:"proof,omitempty"` // nil if no proof was tried
	Findings []Finding    `json:"findings"`
}

// Failed reports whether any finding has the level FAIL.
func (r *Result) Failed() bool {
	for _, f := range r.Findings {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

// Options selects the GPU and the profile of a diagnosis.
type Options struct {
	// GPU is the CUDA index of the GPU, or -1 for the first GPU. A missing GPU is FAIL only if its index was given.
	GPU     int
	Profile Profile
}

// Diagnose runs every rule on the machine that t and m describe. An error of kind Other means that the embedded rules
// are invalid, which is a bug.
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

// Capture diagnoses the machine of t and writes the files that the checks read, and no others, to out. If the name
// out ends in .tar, Capture writes a tar file, else a new or empty directory. If Capture fails, it leaves no tar
// file. If out is in use, the error has the kind Invalid.
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

// answer is the outcome of a check. The rule adds the texts.
type answer struct {
	level    Level
	subject  string
	observed string
	cost     string            // overrides the rule's
	lost     float64           // GB/s, 0 unknown
	vars     map[string]string // {name} in the rule's fixes
}

// check binds a rule's ID to its code. A check that does not apply returns one SKIP with the reason.
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
