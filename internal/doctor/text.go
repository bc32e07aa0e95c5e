// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes a diagnosis as text: the verdict, then the findings by level. If the parameter all is false,
// WriteText only counts the rules that are met or do not apply.
func WriteText(w io.Writer, r *Result, all bool) {
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "%-10s%s\n", name, text)
		}
	}
	line("verdict", r.Verdict.Summary)
	if c := r.Verdict.Cause; c != nil {
		name := "first"
		if r.Verdict.Direct != "no" && c.ID != "gpu.present" {
			name = "costs"
		}
		line(name, strings.TrimSpace(c.ID+" "+c.Subject)+": "+c.Observed)
		writeFix(w, c, "  ")
	}
	for _, route := range r.Verdict.Routes {
		line("route", route.Name+": "+route.text())
	}
	line("proof", r.proofLine())
	line("loader", r.Verdict.Loader)
	line("path", describe(r.Path))
	if r.GPU != nil {
		line("gpu", gpuName(r.GPU))
	}
	m := r.Machine
	line("machine", fmt.Sprintf("kernel %s %s, %d CPUs, hypervisor: %s", m.Kernel, m.Arch, m.CPUs, m.Virtualisation))
	if !m.Root {
		line("", "not root: checks that need root are UNKNOWN")
	}

	counts := map[Level]int{}
	for i := range r.Findings {
		f := &r.Findings[i]
		counts[f.Level]++
		if !all && (f.Level == Pass || f.Level == Skip) {
			continue
		}
		if counts[f.Level] == 1 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%-8s%s", f.Level, f.ID)
		if f.Subject != "" {
			fmt.Fprintf(w, "  %s", f.Subject)
		}
		fmt.Fprintf(w, ": %s\n", f.Observed)
		if f.Level == Fail || f.Level == Warn {
			fmt.Fprintf(w, "        want: %s\n        why:  %s\n", f.Expected, f.Why)
			if f.Cost != "unknown" {
				fmt.Fprintf(w, "        cost: %s\n", f.Cost)
			}
		}
		if f.Level == Fail || f.Level == Warn || f.Level == Unknown {
			writeFix(w, f, "        ")
		}
	}
	fmt.Fprintf(w, "\n%d FAIL, %d WARN, %d UNKNOWN, %d INFO, %d PASS, %d SKIP\n",
		counts[Fail], counts[Warn], counts[Unknown], counts[Info], counts[Pass], counts[Skip])
}

func writeFix(w io.Writer, f *Finding, indent string) {
	if f.FixNow != "" {
		fmt.Fprintf(w, "%sfix:  %s\n", indent, strings.TrimPrefix(f.FixNow, "# "))
	}
	if f.FixBoot != "" {
		fmt.Fprintf(w, "%sboot: %s\n", indent, strings.TrimPrefix(f.FixBoot, "# "))
	}
}

func describe(p PathInfo) string {
	if p.Path == "" {
		return ""
	}
	s := clean(fmt.Sprintf("%s: %s on %s from %s", p.Path, p.FSType, p.Mount, p.Source))
	for _, d := range p.Disks {
		s += ", " + d.Name
		if d.PCI != "" {
			s += " (" + d.PCI + ")"
		}
	}
	return s
}

// WriteDiff writes the changes between an earlier diagnosis and the current one as text.
func WriteDiff(w io.Writer, d Diff) {
	fmt.Fprintf(w, "\nbaseline  %d better, %d worse, %d new, %d gone\n", len(d.Better), len(d.Worse), len(d.New),
		len(d.Gone))
	for _, g := range []struct {
		name string
		list []Change
	}{{"worse", d.Worse}, {"new", d.New}, {"better", d.Better}, {"gone", d.Gone}} {
		for _, c := range g.list {
			fmt.Fprintf(w, "  %-7s %s %s: %s -> %s (%s)\n", g.name, c.ID, clean(c.Subject), or(c.From), or(c.To),
				clean(c.Observed))
		}
	}
}

func or(l Level) string {
	if l == "" {
		return "-"
	}
	return string(l)
}

// text describes the state of a route and the conditions that cause it.
func (r RouteInfo) text() string {
	text := r.State
	for _, kind := range []struct{ state, words string }{{"blocked", " by "}, {"redirected", "; redirected by "},
		{"unknown", "; not known: "}} {
		var ids []string
		for _, s := range r.Steps {
			if s.State == kind.state {
				ids = append(ids, s.ID)
			}
		}
		if len(ids) > 0 {
			text += kind.words + strings.Join(ids, ", ")
		}
	}
	return text
}
