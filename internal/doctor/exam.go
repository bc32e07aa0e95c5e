// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// exam is one diagnosis in progress: the machine, the options, and the rules with the thresholds.
type exam struct {
	*facts.Facts
	opt    Options
	rules  *ruleSet
	absent []string // values that a check asked for and the rules do not have
}

const (
	noPair = "needs a path and a GPU"
	noPath = "no path was given"
	noGPU  = "no GPU"
)

func (f *exam) machine() Machine {
	v := f.Virtual()
	if v == "" {
		v = "none seen"
	}
	if sign := f.Container(); sign != "" {
		v += ", in a container (" + sign + ")"
	}
	return Machine{Kernel: f.Kernel, Arch: f.Arch, CPUs: f.CPUs, Virtualisation: v,
		Driver: facts.DriverVersion(f.DriverText), Root: f.UID == 0}
}

func (f *exam) pathInfo() PathInfo {
	if f.Target == nil {
		return PathInfo{}
	}
	p := PathInfo{Path: f.Target.Path, Disks: f.Disks}
	if f.Mount != nil {
		p.Mount, p.FSType, p.Source = f.Mount.Point, f.Mount.FSType, f.Mount.Source
	}
	return p
}

// pairDevices returns the PCI addresses of the disks and the GPU.
func (f *exam) pairDevices() []string {
	var out []string
	for _, d := range f.Disks {
		if d.PCI != "" {
			out = append(out, d.PCI)
		}
	}
	if f.GPU != nil {
		out = append(out, f.GPU.PCI)
	}
	return out
}

// pairName describes path, disks and GPU in a few words.
func (f *exam) pairName() string {
	g := fmt.Sprintf("GPU %d", f.GPU.Index)
	switch {
	case f.Mount == nil:
		return g
	case len(f.Disks) == 0:
		return clean(f.Target.Path) + " (" + f.Mount.FSType + ") to " + g
	}
	var names []string
	for _, d := range f.Disks {
		names = append(names, d.Name)
	}
	return fmt.Sprintf("%s (%s) to %s", clean(f.Target.Path), strings.Join(names, ", "), g)
}

// gpuName returns the name of the diagnosed GPU in findings.
func (f *exam) gpuName() string { return gpuName(f.GPU) }

func gpuName(g *facts.GPU) string {
	if g.Model == "" {
		return fmt.Sprintf("GPU %d (%s)", g.Index, g.PCI)
	}
	return fmt.Sprintf("GPU %d (%s, %s)", g.Index, g.Model, g.PCI)
}

// unknown returns an answer that names the command to run.
func unknown(subject, observed, run string) answer {
	return answer{level: Unknown, subject: subject, observed: observed}.with("run", run)
}
