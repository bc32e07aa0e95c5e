// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Verdict is the outcome of comparing two runs.
type Verdict string

const (
	// Faster and Slower mean that the rate of run b is higher or lower than that of run a by more than the noise.
	Faster Verdict = "faster"
	Slower Verdict = "slower"
	// Same means that the rates of the two runs differ by no more than the noise.
	Same Verdict = "same within noise"
	// Incomparable means that the rates of the two runs cannot be compared. If the verdict is Incomparable, Pair.Why
	// has the reason.
	Incomparable Verdict = "not comparable"
)

// Comparison compares the results b with the results a. Every ratio in a Comparison is the value in result b divided
// by the value in result a.
type Comparison struct {
	A Side `json:"a"`
	B Side `json:"b"`
	// Differences are circumstances other than speed that may explain a ratio: machine, version, and for each pair
	// the route taken and the page cache.
	Differences []Difference `json:"differences"`
	Pairs       []Pair       `json:"pairs"`
	OnlyA       []Alone      `json:"only_a,omitempty"`
	OnlyB       []Alone      `json:"only_b,omitempty"`
	Limits      []LimitPair  `json:"limits,omitempty"`
	Train       *TrainPair   `json:"train,omitempty"`
	// Mean is the geometric mean of the rate ratios of all pairs, or 0 if no pair could be compared.
	Mean float64 `json:"geometric_mean,omitempty"`
	// Worst is the greatest loss of rate beyond noise from result a to result b, as a fraction of the rate in a.
	// Worst is 0.2 if the worst pair has a ratio of 0.8, and 0 if nothing became slower. Worst is 1 if a run of
	// result b moved nothing, or if data failed verification only in b. WorstName is the name of the run with the
	// greatest loss, and WorstWhy describes that loss.
	Worst     float64 `json:"worst_loss"`
	WorstName string  `json:"worst_name,omitempty"`
	WorstWhy  string  `json:"worst_why,omitempty"`
}

// Side describes the origin of one of the two compared results.
type Side struct {
	Version string `json:"version"`
	Started string `json:"started"`
	Command string `json:"command"`
	Device  string `json:"device"`
}

// Difference is a circumstance that differs between the two compared results.
type Difference struct {
	What string `json:"what"`          // name of the circumstance, such as "kernel" or "route taken"
	Run  string `json:"run,omitempty"` // name of the pair of runs; "" if the results as a whole differ
	A    string `json:"a"`
	B    string `json:"b"`
	// Means explains the consequence of this difference for the comparison. Means is "" if the difference is not
	// known to matter.
	Means string `json:"means,omitempty"`
}

// Pair has two runs with the same settings, one from each of the two compared results.
type Pair struct {
	Name  string  `json:"name"` // name of the run in result a
	A     float64 `json:"a_gbps"`
	B     float64 `json:"b_gbps"`
	Rate  float64 `json:"rate_ratio"`                  // rate in b divided by rate in a; 0 if a moved nothing
	P99   float64 `json:"p99_ratio,omitempty"`         // ratio of 99th-percentile latencies; 0 if one is missing
	CPU   float64 `json:"cpu_per_gib_ratio,omitempty"` // ratio of CPU times per GiB; 0 if one is missing
	Noise float64 `json:"noise"`
	// how the noise was estimated: "passes", "intervals" or "one measurement: noise unknown"
	From    string  `json:"noise_from"`
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why,omitempty"` // reason for the verdict Incomparable; else a warning, or ""
}

// Alone is a run that has no counterpart in the other result.
type Alone struct {
	Name string `json:"name"`
	// Nearest is the most similar unmatched run of the other result, and Differs lists the settings in which the two
	// runs differ. If no unmatched run is left, Nearest and Differs are empty.
	Nearest string   `json:"nearest,omitempty"`
	Differs []string `json:"differs,omitempty"`
}

// LimitPair compares one limit of the machine (a highest rate) that both results contain.
type LimitPair struct {
	Name  string  `json:"name"`
	A     float64 `json:"a_gbps"`
	B     float64 `json:"b_gbps"`
	Ratio float64 `json:"ratio"`
}

// TrainPair compares two runs that simulate training.
type TrainPair struct {
	Workload string           `json:"workload"`
	AUa      float64          `json:"a_au"`
	AUb      float64          `json:"b_au"`
	IdleA    float64          `json:"a_idle_seconds"`
	IdleB    float64          `json:"b_idle_seconds"`
	BoundA   bottleneck.Bound `json:"a_bound"`
	BoundB   bottleneck.Bound `json:"b_bound"`
	Rate     float64          `json:"samples_ratio"` // ratio of samples per second; 0 if result a had none
}

// Compare compares the benchmark results b with the benchmark results a. Two runs match if they have the same
// settings, regardless of their names and positions. Matching runs may have different paths and seeds, so that
// results of two machines can be compared; the Comparison lists these differences. If several runs of a result have
// the same settings, they are matched in their order.
func Compare(a, b *record.File) Comparison {
	c := Comparison{A: side(a), B: side(b), Differences: machineDifferences(a, b)}
	matches, onlyA, onlyB := match(a.Runs, b.Runs)
	logs, n := 0.0, 0
	for _, m := range matches {
		ra, rb := &a.Runs[m[0]], &b.Runs[m[1]]
		p, diffs := pair(ra, rb)
		c.Pairs = append(c.Pairs, p)
		c.Differences = append(c.Differences, diffs...)
		if p.Verdict != Incomparable {
			logs, n = logs+math.Log(p.Rate), n+1
		}
		switch {
		case failed(rb) && !failed(ra):
			c.blame(p.Name, 1, "its data is wrong")
		case ra.GBps > 0 && rb.GBps == 0:
			c.blame(p.Name, 1, "moved nothing")
		case p.Verdict == Slower:
			c.blame(p.Name, 1-p.Rate, "lost "+percent(1-p.Rate)+" of its rate")
		}
	}
	if n > 0 {
		c.Mean = math.Exp(logs / float64(n))
	}
	c.OnlyA, c.OnlyB = alone(a.Runs, onlyA, b.Runs, onlyB), alone(b.Runs, onlyB, a.Runs, onlyA)
	c.Limits = limitPairs(a.Ceilings, b.Ceilings)
	if c.Train = trainPair(a.Train, b.Train); c.Train != nil {
		c.Differences = append(c.Differences, pairDifferences(reading(a.Train), reading(b.Train))...)
	}
	if t := c.Train; t != nil && a.Train.SamplesPerSec > 0 && t.Rate < 1-unknownNoise {
		c.blame(t.Workload, 1-t.Rate, "lost "+percent(1-t.Rate)+" of its samples a second")
	}
	return c
}

func (c *Comparison) blame(name string, loss float64, why string) {
	if loss > c.Worst {
		c.Worst, c.WorstName, c.WorstWhy = loss, name, why
	}
}

// Check returns an error if a pair's loss of rate beyond noise exceeds the fraction limit. If no run could be
// compared, Check returns an error of kind Invalid.
func (c Comparison) Check(limit float64) error {
	switch {
	case c.Worst > limit:
		return errs.New(errs.Other, "compare", c.WorstName,
			fmt.Sprintf("%s; a loss of at most %s is allowed", c.WorstWhy, percent(limit)))
	case c.Mean == 0 && c.Train == nil:
		return errs.New(errs.Invalid, "compare", "", "no run of one file could be compared with one of the other").
			WithFix("measure both with the same settings")
	}
	return nil
}

func pair(a, b *record.Run) (Pair, []Difference) {
	p := Pair{Name: a.Name, A: a.GBps, B: b.GBps}
	if a.GBps > 0 {
		p.Rate = b.GBps / a.GBps
	}
	if a.Latency != nil && b.Latency != nil && a.Latency.P99 > 0 {
		p.P99 = b.Latency.P99 / a.Latency.P99
	}
	if a.CPU.PerGiB > 0 {
		p.CPU = b.CPU.PerGiB / a.CPU.PerGiB
	}
	na, from, okA := noiseOf(a)
	nb, fromB, okB := noiseOf(b)
	if nb > na {
		from = fromB
	}
	p.Noise, p.From = max(na, nb, leastNoise), from
	if !okA || !okB {
		p.Noise, p.From = max(p.Noise, unknownNoise), "one measurement: noise unknown"
	}
	diffs := pairDifferences(a, b)
	for _, d := range diffs {
		if d.Means != "" && p.Why == "" {
			p.Why = d.Means
		}
	}
	switch {
	case failed(a) || failed(b):
		p.Verdict, p.Why = Incomparable, "verification failed: the data was wrong"
	case a.GBps == 0 || b.GBps == 0:
		p.Verdict, p.Why = Incomparable, "one of them moved nothing"
	case p.Rate > 1+p.Noise:
		p.Verdict = Faster
	case p.Rate < 1/(1+p.Noise):
		p.Verdict = Slower
	default:
		p.Verdict = Same
	}
	return p, diffs
}

// pairDifferences lists the differences between two runs of the same settings.
func pairDifferences(a, b *record.Run) []Difference {
	var out []Difference
	add := func(what, x, y, means string) {
		if x != y {
			out = append(out, Difference{what, a.Name, x, y, means})
		}
	}
	if ma, mb := measured(a), measured(b); ma != mb {
		means := "not like for like: a rate of " + source(ma) + " against one of " + source(mb)
		add("measured", measuredWords(ma), measuredWords(mb), means)
	}
	if takenNames(a) != takenNames(b) {
		add("route taken", taken(a), taken(b), "the bytes took another way")
	}
	add("interrupted", yes(a.Interrupted), yes(b.Interrupted), "one of them was stopped early")
	add("paths", printable(fmt.Sprint(a.Settings.Paths)), printable(fmt.Sprint(b.Settings.Paths)), "")
	return out
}

func source(m string) string {
	if m == ofMemory {
		return m
	}
	return measuredWords(m)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func machineDifferences(a, b *record.File) []Difference {
	var out []Difference
	add := func(what, x, y, means string) {
		if x != y {
			out = append(out, Difference{What: what, A: printable(x), B: printable(y), Means: means})
		}
	}
	const other = "another machine: ratios do not compare the tool"
	ma, mb := a.Machine, b.Machine
	add("device", ma.Device.ID+" "+ma.Device.Model, mb.Device.ID+" "+mb.Device.Model, other)
	add("CPU", fmt.Sprintf("%s, %d CPUs", ma.CPU, ma.CPUs), fmt.Sprintf("%s, %d CPUs", mb.CPU, mb.CPUs), other)
	// The kernel's part of memory changes from boot to boot.
	if math.Abs(float64(ma.Memory-mb.Memory)) > 0.02*float64(max(ma.Memory, mb.Memory)) {
		add("memory", size(ma.Memory), size(mb.Memory), other)
	}
	add("storage", storageNames(ma), storageNames(mb), "other storage")
	add("version", a.Version, b.Version, "")
	add("kernel", ma.Kernel+" "+ma.Arch, mb.Kernel+" "+mb.Arch, "")
	add("driver", ma.Device.Driver, mb.Device.Driver, "")
	add("interrupted", yes(a.Interrupted), yes(b.Interrupted), "one of them was stopped early")
	return out
}

func storageNames(m record.Machine) string {
	s := ""
	for i, x := range m.Storage {
		if i > 0 {
			s += "; "
		}
		s += fmt.Sprintf("%s on %s %s %s %s", x.FS, x.Source, x.Block, x.Model, x.Firmware)
	}
	return s
}

func side(f *record.File) Side {
	return Side{printable(f.Version), f.Started.UTC().Format("2006-01-02 15:04:05 UTC"), shell(f.Command),
		deviceWords(f.Machine.Device)}
}

func limitPairs(a, b *record.Ceilings) []LimitPair {
	var out []LimitPair
	if a == nil || b == nil {
		return nil
	}
	for _, l := range a.Limits {
		m, ok := b.Find(l.ID, l.On)
		if !ok {
			continue
		}
		p := LimitPair{Name: l.Name, A: l.GBps, B: m.GBps}
		if l.GBps > 0 {
			p.Ratio = m.GBps / l.GBps
		}
		out = append(out, p)
	}
	return out
}

func trainPair(a, b *record.Train) *TrainPair {
	if a == nil || b == nil || a.Workload != b.Workload {
		return nil
	}
	p := &TrainPair{a.Workload, a.AU, b.AU, a.Idle, b.Idle, bottleneck.Current(a.Bound),
		bottleneck.Current(b.Bound), 0}
	if a.SamplesPerSec > 0 {
		p.Rate = b.SamplesPerSec / a.SamplesPerSec
	}
	return p
}

func rateCell(v float64) string {
	if v == 0 {
		return none
	}
	return units.Rate(v)
}
