// SPDX-License-Identifier: Apache-2.0

// Package doctor checks the route of data from a path on storage to a GPU.
//
// A diagnosis tells whether data can go from the path directly to the GPU. If no direct route exists, the diagnosis
// names the first obstacle and its fix. All findings are listed by level, and within a level the finding that costs
// most comes first.
//
// Package doctor contains the checks of a machine. Package facts reads the state of the machine, so the same checks
// run on a live machine and on a capture of another one. The texts, weights and thresholds of the checks are data in
// rules.json. If a check may not read a fact, its level is UNKNOWN and it names the command to run as root; no check
// guesses. Only the function Prove moves data: it starts a process that reads the path through cuFile and records
// cuFile's counters.
//
// Package doctor checks the machine, so it checks neither settings of a running data loader nor requirements of
// process checkpoints.
package doctor

import (
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Version is the version of the JSON form of a Result.
const Version = 1

// Level is the outcome of a check, such as FAIL or PASS.
type Level string

// Levels of findings.
const (
	// Fail means that data cannot go directly from storage to the GPU, or that data is at risk.
	Fail Level = "FAIL"
	// Warn means that the checked part of the machine is slower than it could be.
	Warn Level = "WARN"
	// Unknown means that a fact could not be read. A finding of the level UNKNOWN names the command that reads the
	// fact.
	Unknown Level = "UNKNOWN"
	// Info means that a finding is worth knowing but costs nothing by itself.
	Info Level = "INFO"
	// Pass means that the machine meets the rule.
	Pass Level = "PASS"
	// Skip means that the rule does not apply to this path and GPU.
	Skip Level = "SKIP"
)

// Profile is the workload for which a machine is diagnosed. The profile selects the thresholds of checks and affects
// the order of findings.
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
	// Cost says what the finding costs: a measured or cited figure, or "unknown".
	Cost string `json:"cost"`
	// LostGBs is the rate that the finding costs in GB/s, or 0 if it cannot be computed. Among findings of one level,
	// the finding with the greater LostGBs comes first.
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
	Root           bool   `json:"root"` // true if the checks ran as root
}

// PathInfo describes the path that was diagnosed. All fields of PathInfo are zero if no path was given.
type PathInfo struct {
	Path   string       `json:"path,omitempty"`
	Mount  string       `json:"mount,omitempty"`
	FSType string       `json:"fs_type,omitempty"`
	Source string       `json:"source,omitempty"`
	Disks  []facts.Disk `json:"disks,omitempty"`
}

// Result is the complete diagnosis of a machine.
type Result struct {
	Version  int          `json:"version"`
	Rules    int          `json:"rules_version"`
	Profile  Profile      `json:"profile"`
	Machine  Machine      `json:"machine"`
	Path     PathInfo     `json:"path"`
	GPU      *facts.GPU   `json:"gpu"`
	Verdict  Verdict      `json:"verdict"`
	Proof    *facts.Proof `json:"proof,omitempty"` // result of reading through cuFile; nil if not tried
	Findings []Finding    `json:"findings"`
}

// Failed reports whether any finding of the diagnosis has the level FAIL.
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
	// GPU is the CUDA index of the GPU, or -1 for the first GPU. A missing GPU is a finding of level FAIL only if GPU
	// is not negative.
	GPU     int
	Profile Profile
}

// Diagnose runs every check on the machine that the Tree t and the Meta m describe. If Diagnose returns an error of
// kind Other, the embedded rules are invalid, which is a bug.
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

// Capture diagnoses the machine that the Tree t shows, and writes exactly the files that the checks read to out. If
// the name out ends in .tar, Capture writes a tar file, else a new or empty directory. If Capture fails, it removes
// the incomplete tar file. If out is a directory that is not empty, the error has the kind Invalid; if out is an
// existing tar file, it has the kind IO.
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
