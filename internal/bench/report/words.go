// SPDX-License-Identifier: Apache-2.0

// Package report prints benchmark results as text, as CSV, as one HTML file with plots, and as a comparison of two
// results.
//
// A report shows only data from the benchmark's results (record.File). Every rate is shown with its route and with
// the bytes that the page cache served.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/units"
)

// What a run measured.
const (
	ofStorage = "storage"
	ofMemory  = "memory"
	ofBoth    = "both"
	ofCopy    = "copy"
	ofUnknown = "unknown"
)

// measured returns what a run measured.
func measured(r *record.Run) string {
	switch {
	case r.Cache != nil && slices.Contains([]string{ofStorage, ofMemory, ofBoth}, r.Cache.Verdict):
		return r.Cache.Verdict
	case r.Settings.Op == "copy":
		return ofCopy
	}
	return ofUnknown
}

// measuredWords returns measured as words for a reader.
func measuredWords(m string) string {
	switch m {
	case ofStorage:
		return "storage"
	case ofMemory:
		return "memory, not storage"
	case ofBoth:
		return "storage and memory mixed"
	case ofCopy:
		return "a copy in memory"
	}
	return "an unknown mix of storage and memory"
}

// asked returns the route that was requested: "direct to pinned memory".
func asked(s record.Settings) string {
	route := s.Route
	if route == "" {
		route = s.Op
	}
	if s.Memory == "" {
		return printable(route)
	}
	way := " to "
	if s.Op == "write" {
		way = " from "
	}
	switch s.Memory {
	case "engine", "cufile":
		return printable(route) + " by " + s.Memory
	}
	return printable(route + way + s.Memory + " memory")
}

// taken lists the routes with their bytes, most bytes first.
func taken(r *record.Run) string {
	if len(r.Routes) == 0 {
		return "not known"
	}
	routes := slices.Clone(r.Routes)
	slices.SortStableFunc(routes, func(a, b record.Route) int {
		switch {
		case a.Bytes > b.Bytes:
			return -1
		case a.Bytes < b.Bytes:
			return 1
		}
		return 0
	})
	total := 0.0
	for _, x := range routes {
		total += float64(x.Bytes)
	}
	var out []string
	for _, x := range routes {
		s := routeName(x.Route) + " " + size(x.Bytes)
		if len(routes) > 1 && total > 0 {
			s += " (" + percent(float64(x.Bytes)/total) + ")"
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// takenNames lists the routes without bytes, for narrow columns.
func takenNames(r *record.Run) string {
	var names []string
	for _, x := range r.Routes {
		if x.Bytes > 0 {
			names = append(names, routeName(x.Route))
		}
	}
	if len(names) == 0 {
		return "not known"
	}
	return strings.Join(names, " + ")
}

func routeName(s string) string { return printable(strings.ReplaceAll(s, "_", " ")) }

// strayed describes how the routes taken differ from the requested one. It returns "" if they do not differ.
func strayed(r *record.Run) string {
	allowed := map[string][]string{
		"direct":   {"direct", "direct_unproven", "cufile_p2p", "cufile_nvfs"},
		"buffered": {"buffered", "buffered_unproven", "page_cache"},
	}[r.Settings.Route]
	for _, x := range r.Routes {
		switch {
		case x.Bytes == 0 || x.Route == "unknown":
		case r.Settings.Memory == "cufile" && x.Route == "cufile_compat":
			return size(x.Bytes) + " went through host memory: cuFile was in compatibility mode"
		case r.Settings.Memory == "cufile":
		case allowed != nil && !slices.Contains(allowed, x.Route):
			return size(x.Bytes) + " did not go the " + r.Settings.Route + " way but by " + routeName(x.Route)
		}
	}
	return ""
}

// coldButCached returns a warning if a run was to be cold but found cached data.
func coldButCached(r *record.Run) string {
	if r.Settings.Cache == "cold" && (measured(r) == ofMemory || measured(r) == ofBoth) {
		return "should be cold, but the page cache served it"
	}
	return ""
}

// reading converts the reads of a training-shaped run into a Run, so that both are described in the same words.
func reading(t *record.Train) *record.Run {
	return &record.Run{Name: t.Workload, Routes: t.Routes, Cache: t.Cache, Proof: t.Proof,
		Settings: record.Settings{Op: "read", Route: t.Route, Memory: t.Memory, Pattern: t.Pattern}}
}

// shareWords prints a share: "0.97 of storage read 4.00 GB/s".
func shareWords(s *record.Share) string {
	if s == nil {
		return "limit not measured"
	}
	out := fmt.Sprintf("%.2f of %s %s", s.Ratio, printable(s.Name), units.Rate(s.Ceiling))
	if above(s) {
		out += ", " + aboveWords
	}
	return out
}

// Ratios of a rate to its limit at which the words for it change: both are
// measured, and neither to better than some percent.
const (
	atLimit     = 0.95
	aboveLimit  = 1.05
	limitTooLow = 1.1
)

// aboveWords is printed with each share that exceeds its limit by more than noise.
const aboveWords = "above the stored limit: measure it again"

func above(s *record.Share) bool { return s != nil && s.Ratio > max(aboveLimit, 1+s.Spread) }

// tooLow reports whether a share leaves no doubt that the limit is wrong.
func tooLow(s *record.Share) bool { return s != nil && s.Ratio > max(limitTooLow, 1+s.Spread) }

// cacheWords describes the state of the page cache in one line.
func cacheWords(c *record.Cache) string {
	if c == nil {
		return "not looked at: the rate may be of memory"
	}
	s := fmt.Sprintf("dataset %s of %s memory", size(c.Dataset), size(c.Memory))
	if c.Memory > 0 {
		s += " (" + times(part(c.Dataset, c.Memory)) + ")"
	}
	resident := func(n int64) string {
		if n < 0 {
			return "unknown"
		}
		if n == 0 || c.Dataset == 0 {
			return size(n)
		}
		return size(n) + " (" + percent(part(n, c.Dataset)) + ")"
	}
	s += "; resident before " + resident(c.Before) + ", after " + resident(c.After)
	if c.Probe != "" {
		s += " (" + printable(c.Probe) + ")"
	}
	return s
}

func times(r float64) string {
	if r < 0.1 {
		return fmt.Sprintf("%.3f x", r)
	}
	return fmt.Sprintf("%.2f x", r)
}

func verifyWords(v *record.Verify) string {
	switch {
	case v == nil:
		return "not asked for"
	case v.Mismatches > 0:
		s := fmt.Sprintf("FAILED: %s wrong of %s compared", plural(int(v.Mismatches), "block"), size(v.Bytes))
		if v.First != "" {
			s += ", first at " + printable(v.First)
		}
		return s + " (" + printable(v.Where) + "); the rate means nothing"
	}
	return size(v.Bytes) + " compared, no difference (" + printable(v.Where) + ")"
}

func failed(r *record.Run) bool { return r.Verify != nil && r.Verify.Mismatches > 0 }

func stableWords(s *record.Stable) string {
	word := "not reached"
	if s.Reached {
		word = "reached"
	}
	return fmt.Sprintf("%s: the last %d intervals lie %s apart, %s wanted", word, s.Window, percent(s.Spread),
		percent(s.Wanted))
}

func settingsWords(s record.Settings) string {
	var p []string
	add := func(x string) {
		if x != "" {
			p = append(p, printable(x))
		}
	}
	add(s.Pattern)
	if s.BlockSize > 0 {
		add("blocks of " + size(s.BlockSize))
	}
	if s.Workers > 0 {
		add(plural(s.Workers, "worker"))
	}
	if s.QueueDepth > 0 {
		add(fmt.Sprintf("queue depth %d", s.QueueDepth))
	}
	if s.IO != "" {
		add("by " + s.IO)
	}
	if s.Files > 0 {
		add(plural(s.Files, "file") + " of " + size(s.FileSize))
	}
	if s.Cache != "" {
		add("asked " + s.Cache)
	}
	if s.Sync {
		add("synced")
	}
	if s.Prefetch > 0 {
		add(fmt.Sprintf("%d ahead", s.Prefetch))
	}
	return strings.Join(p, ", ")
}

func machineWords(m record.Machine) string {
	return fmt.Sprintf("%s, %s, %s memory", printable(m.CPU), plural(m.CPUs, "CPU"), size(m.Memory))
}

func deviceWords(d record.Device) string {
	if d.Kind == "host" {
		return "host (memory of this machine; no GPU was used)"
	}
	s := printable(d.ID + " " + d.Model)
	if d.Memory > 0 {
		s += ", " + size(d.Memory)
	}
	if d.PCI != "" {
		s += ", PCI " + printable(d.PCI)
	}
	return s
}

func storageWords(s record.Storage) string {
	out := printable(s.Path + ": " + s.FS)
	if s.Source != "" {
		out += " on " + printable(s.Source)
	}
	var p []string
	for _, x := range []string{s.Block, s.Model} {
		if x != "" {
			p = append(p, printable(x))
		}
	}
	if s.Firmware != "" {
		p = append(p, "firmware "+printable(s.Firmware))
	}
	if !s.Direct {
		p = append(p, "no direct I/O")
	}
	if len(p) > 0 {
		out += " (" + strings.Join(p, ", ") + ")"
	}
	return out
}
