// SPDX-License-Identifier: Apache-2.0

// Package doctor judges the way from a path to a GPU: whether data can go
// there directly, the first cause why not with its fix, and everything else
// that costs, ordered by how much.
//
// The checks only read: files under /proc, /sys, /etc, /run, /dev and /boot through
// a Tree, and what files cannot tell through Meta. Prove alone does something, in
// a process of its own: it reads the path through cuFile and keeps its counters. The same checks run on a live
// machine and on a capture of another one. Nothing is guessed: what may not be
// read is UNKNOWN and says what to run as root.
package doctor

import "github.com/nebulaio/nebulaio/internal/errs"

// Version is that of the JSON a Result becomes.
const Version = 1

// Level says how a rule ended.
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

// Profile is what the machine is used for; it decides the order of findings.
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
	Cost      string `json:"cost"` // a figure only where one is known, else "unknown"
	weight    int
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
	Path   string `json:"path,omitempty"`
	Mount  string `json:"mount,omitempty"`
	FSType string `json:"fs_type,omitempty"`
	Source string `json:"source,omitempty"`
	Disks  []Disk `json:"disks,omitempty"`
}

// Disk is one block device at the bottom of a path.
type Disk struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // nvme, virtio, scsi, other
	PCI  string `json:"pci,omitempty"`
	NUMA int    `json:"numa"` // -1 unknown
}

// GPU is one NVIDIA GPU as the kernel shows it.
type GPU struct {
	Index int    `json:"index"` // as CUDA counts; -1 where CUDA does not see it
	Model string `json:"model"`
	PCI   string `json:"pci"`
	NUMA  int    `json:"numa"` // -1 unknown
}

// Result is a whole diagnosis.
type Result struct {
	Version  int       `json:"version"`
	Rules    int       `json:"rules_version"`
	Profile  Profile   `json:"profile"`
	Machine  Machine   `json:"machine"`
	Path     PathInfo  `json:"path"`
	GPU      *GPU      `json:"gpu"`
	Verdict  Verdict   `json:"verdict"`
	Proof    *Proof    `json:"proof,omitempty"` // nil: not tried
	Findings []Finding `json:"findings"`
}

// Failed says that a finding is FAIL.
func (r *Result) Failed() bool {
	for _, f := range r.Findings {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

// Options say what to diagnose.
type Options struct {
	// GPU is the index of the GPU, -1 for the first one; only a GPU asked for
	// by its index is FAIL when it is missing.
	GPU     int
	Profile Profile
}

// Diagnose runs every rule over a machine. Kind Other means that the embedded
// rules are broken, which is a defect.
func Diagnose(t Tree, m Meta, o Options) (*Result, error) {
	rules, err := loadRules()
	if err != nil {
		return nil, err
	}
	if o.Profile == "" {
		o.Profile = Train
	}
	f := gather(t, m, o)
	res := &Result{Version: Version, Rules: rules.Version, Profile: o.Profile, Machine: f.machine(), Path: f.pathInfo(), GPU: f.gpu}
	for _, c := range checks() {
		r, ok := rules.byID[c.id]
		if !ok {
			return nil, errs.New(errs.Other, "check", c.id, "has no rule")
		}
		for _, a := range c.run(f) {
			res.Findings = append(res.Findings, r.finding(a, o.Profile))
		}
	}
	res.Verdict = judge(f, res.Findings)
	settle(f, rules.byID["proof.path"], res)
	order(res.Findings)
	return res, nil
}

// answer is what a check says; the rule adds the words.
type answer struct {
	level    Level
	subject  string
	observed string
	cost     string            // overrides the rule's
	vars     map[string]string // {name} in the rule's fixes
}

// check binds a rule's id to its code. A check that does not apply gives one
// SKIP that says why.
type check struct {
	id  string
	run func(*facts) []answer
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
	for _, part := range [][]check{gpuChecks(), routeChecks(), cufileChecks(), pcieChecks(), platformChecks(), blockChecks(), fsChecks(), systemChecks(), networkChecks(), proofChecks()} {
		all = append(all, part...)
	}
	return all
}
