// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// printLoad prints the report of one load as text.
func printLoad(w io.Writer, l loadJSON) {
	if l.Device.Kind == report.HostDevice {
		field(w, "device", "%s (memory of this machine; no GPU was used)", l.Device.ID)
	} else {
		field(w, "device", "%s (%s)", l.Device.ID, printable(l.Device.Model))
	}
	field(w, "path", "%s", printable(l.Path))
	field(w, "tensors", "%d in %s", l.Tensors, plural(len(l.Files), "file"))
	field(w, "bytes", "%s", sized(l.Bytes))
	if l.ReadTotals != nil && l.Read > l.Bytes {
		field(w, "read", "%s, %.2f times the requested bytes", sized(l.Read), l.Amplification)
	}
	total := l.total()
	field(w, "total", "%s, %s", seconds(total), units.Rate(rate(l.Bytes, total)))
	field(w, "open", "%s", seconds(l.OpenSeconds))
	field(w, "alloc", "%s", seconds(l.AllocSeconds))
	field(w, "transfer", "%s, %s", seconds(l.Seconds), units.Rate(l.GBps))
	if l.Dropped != nil {
		field(w, "cache", "%s", l.Dropped)
	}

	fmt.Fprintln(w)
	printRoutesAndStages(w, l.Report)

	fmt.Fprintln(w)
	field(w, "limiting", "%s", l.Limiting)
	printEngine(w, l.Engine)
	if c := l.CuFile; c != nil {
		printCuFile(w, c)
	}
	if v := l.Verify; v != nil {
		field(w, "verified", "%s, %s; %s read only for that; %s checked on the device; %s of CPU time",
			plural(int(v.Blocks), "block"), units.Bytes(v.Bytes), units.Bytes(v.Extra),
			units.Bytes(v.DeviceBytes), seconds(v.Busy))
	}
	for _, line := range refusalLines(l.Refusals) {
		fmt.Fprintln(w, line)
	}
	for _, n := range l.Notes {
		fmt.Fprintf(w, "note: %s\n", printable(n))
	}
}

// routed returns the bytes read by all routes, including gaps between tensors.
func routed(all []report.RouteShare) (sum int64) {
	for _, r := range all {
		sum += r.Bytes
	}
	return sum
}

// printRoutesAndStages prints the two tables of a report.
func printRoutesAndStages(w io.Writer, l report.Report) {
	whole := routed(l.Routes)
	t := newTable("route", ">bytes", ">share", ">rate")
	for _, r := range l.Routes {
		t.add(string(r.Route), units.Bytes(r.Bytes), percent(r.Bytes, whole), units.Rate(r.GBps))
	}
	t.print(w)
	fmt.Fprintln(w)
	t = newTable("stage", ">busy", ">span", ">rate")
	for _, s := range l.Stages {
		span, pace := "-", "-"
		if s.Span > 0 {
			span, pace = seconds(s.Span), units.Rate(s.GBps)
		}
		t.add(s.Stage, seconds(s.Busy), span, pace)
	}
	t.print(w)
}

func printEngine(w io.Writer, e report.Engine) {
	staging := "no staging, bytes were read into place"
	if e.StagingUsed {
		staging = fmt.Sprintf("staging %s (%s in huge pages, %s)",
			units.Bytes(e.StagingSize), units.Bytes(e.HugePages), e.StagingState)
	}
	field(w, "engine", "%s, chunks of %s, direct reads: %s, queue depth %d; %s",
		plural(e.Workers, "worker"), units.Bytes(e.ChunkSize), e.IO, e.QueueDepth, staging)
}

// printCuFile prints cuFile's operations by route. If libcufile did not count them, it names who did.
func printCuFile(w io.Writer, c *report.CuFile) {
	counted := "libcufile did not count"
	if c.Uncounted != "" {
		counted += ": " + printable(c.Uncounted)
	}
	if c.Counters != nil {
		ops := device.RouteOps(c.Counters.Reads).Plus(device.RouteOps(c.Counters.Batch)).String()
		if counted = "libcufile counted " + ops; c.Counters.Basis() != "" {
			counted = ops + ", " + c.Counters.Basis()
		}
	}
	if c.Others {
		counted += ", including operations of other loads"
	}
	if c.Shared {
		counted += "; another part of this process had opened libcufile with its own settings"
	}
	field(w, "cufile", "%s, interface %s; %s; %s registered", printable(c.Version), c.API, counted,
		units.Bytes(c.Registered))
}

// refusalLines lists each reason once, because the shards of a model often share it.
func refusalLines(all []report.Refusal) []string {
	var lines []string
	var seen []report.Refusal
	for _, r := range all {
		key := r
		key.On = ""
		if slices.Contains(seen, key) {
			continue
		}
		seen = append(seen, key)
		more := -1
		for _, o := range all {
			if o.What == r.What && o.Reason == r.Reason && o.Fix == r.Fix {
				more++
			}
		}
		on := printable(r.On)
		if more > 0 {
			on += fmt.Sprintf(" and %d more", more)
		}
		line := fmt.Sprintf("not used: %s on %s: %s", r.What, on, printable(r.Reason))
		if r.Fix != "" {
			line += "; fix: " + printable(r.Fix)
		}
		lines = append(lines, line)
	}
	return lines
}

// summaryJSON compares the loads of one command. The rates and Seconds cover the
// transfers. TotalSeconds also covers opening and allocating memory.
type summaryJSON struct {
	Loads        int     `json:"loads"`
	Bytes        int64   `json:"bytes"`
	MinGBps      float64 `json:"min_gbps"`
	MedianGBps   float64 `json:"median_gbps"`
	MaxGBps      float64 `json:"max_gbps"`
	Seconds      float64 `json:"seconds"`
	TotalSeconds float64 `json:"total_seconds"`
}

func summarize(all []loadJSON) summaryJSON {
	s := summaryJSON{Loads: len(all)}
	var rates []float64
	for _, l := range all {
		s.Bytes += l.Bytes
		s.Seconds += l.Seconds
		s.TotalSeconds += l.total()
		rates = append(rates, l.GBps)
	}
	slices.Sort(rates)
	n := len(rates)
	s.MinGBps, s.MaxGBps = rates[0], rates[n-1]
	s.MedianGBps = (rates[(n-1)/2] + rates[n/2]) / 2
	return s
}

func (s summaryJSON) print(w io.Writer) {
	field(w, "summary", "%s, %s: min %s, median %s, max %s", plural(s.Loads, "load"), units.Bytes(s.Bytes),
		units.Rate(s.MinGBps), units.Rate(s.MedianGBps), units.Rate(s.MaxGBps))
	field(w, "", "%s in transfer, %s in total", seconds(s.Seconds), seconds(s.TotalSeconds))
}

// total returns the whole time of a load: open, allocate and transfer.
func (l loadJSON) total() float64 { return l.OpenSeconds + l.AllocSeconds + l.Seconds }

func rate(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) / seconds / 1e9
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "0.0 %"
	}
	return fmt.Sprintf("%.1f %%", float64(part)/float64(whole)*100)
}
