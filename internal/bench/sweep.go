// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Sweeps returns the IDs of the sweeps that Session.Sweep can run.
func Sweeps() []string { return []string{"pattern", "block-size", "workers", "memory"} }

// plan is a sweep before it is run.
type plan struct {
	record.Sweep
	specs  []Spec
	answer func(rates []point) string
}

// point is a sweep's point with its rate.
type point struct {
	record.SweepPoint
	gbps float64
}

func (p *plan) add(series string, x float64, label string, s Spec) {
	p.Points = append(p.Points, record.SweepPoint{Series: series, X: x, Label: label})
	p.specs = append(p.specs, s)
}

// Sweep performs all runs of the sweep with the given ID. The parameter base has the settings that the sweep does not
// vary. Sweep leaves out a run that is impossible on this machine, and adds a note to the results.
func (s *Session) Sweep(ctx context.Context, id string, base Spec) error {
	p, err := s.plan(id, base)
	if err != nil {
		return err
	}
	sweep := p.Sweep
	sweep.Points = nil
	var points []point
	var stopped error
	for i, spec := range p.specs {
		r, err := s.Run(ctx, spec)
		if errs.Is(err, errs.Unsupported) {
			s.File.Notes = append(s.File.Notes, fmt.Sprintf("skipped %s at %s: %v", p.Points[i].Series, p.Points[i].Label, err))
			continue
		}
		if err != nil && !r.Interrupted {
			return err
		}
		pt := p.Points[i]
		pt.Run = len(s.File.Runs) - 1
		sweep.Points = append(sweep.Points, pt)
		points = append(points, point{pt, r.GBps})
		if stopped = err; err != nil {
			break
		}
	}
	sweep.Answer = "not enough measurements for an answer"
	if stopped == nil && len(points) > 1 {
		sweep.Answer = p.answer(points)
	}
	s.File.Sweeps = append(s.File.Sweeps, sweep)
	return stopped
}

// SweepRuns returns the approximate number of runs of a sweep, or 1 if the ID is unknown.
func (s *Session) SweepRuns(id string, base Spec) int {
	if id == "prefetch" {
		return len(depths)
	}
	p, err := s.plan(id, base)
	if err != nil {
		return 1
	}
	return len(p.specs)
}

func (s *Session) plan(id string, base Spec) (*plan, error) {
	base = base.withDefaults()
	base.Op = Read
	p := &plan{Sweep: record.Sweep{ID: id}}
	switch id {
	case "pattern":
		p.patterns(base)
	case "block-size":
		p.blockSizes(base)
	case "workers":
		p.workers(base)
	case "memory":
		if s.Device == nil {
			return nil, errs.New(errs.Invalid, "sweep", "memory", "needs a device")
		}
		p.memories(base, s.Device.Info().Kind == device.Host)
	default:
		return nil, errs.New(errs.Invalid, "sweep", strconv.Quote(id),
			"is not a sweep; expected one of "+strings.Join(Sweeps(), ", "))
	}
	return p, nil
}

func (p *plan) sizes(base Spec, sizes ...int64) {
	for _, pattern := range []Pattern{Sequential, Random} {
		for _, n := range sizes {
			s := base
			s.Memory, s.Pattern, s.BlockSize = Host, pattern, n
			p.add(string(pattern), float64(n), shortSize(n), s)
		}
	}
}

func shortSize(n int64) string { return strings.Replace(units.Bytes(n), ".00", "", 1) }

func (p *plan) patterns(base Spec) {
	p.Question = "How much slower is random access than sequential?"
	p.Axis, p.Unit = "read size", "bytes"
	p.sizes(base, 4*units.KiB, 16*units.KiB, 64*units.KiB, 256*units.KiB, units.MiB, 4*units.MiB)
	p.answer = func(pts []point) string {
		rates := bySeries(pts)
		seq, rnd := rates[string(Sequential)], rates[string(Random)]
		if len(seq) == 0 || len(rnd) == 0 {
			return "one of the two was not measured"
		}
		text := fmt.Sprintf("Random reads of %s run at %s of the sequential rate (%s against %s).", rnd[0].Label,
			ratio(rnd[0].gbps, at(seq, rnd[0].X)), units.Rate(rnd[0].gbps), units.Rate(at(seq, rnd[0].X)))
		for i, r := range rnd {
			if s := at(seq, r.X); s > 0 && r.gbps >= 0.9*s {
				if i == 0 {
					return text + " Order hardly matters on this storage; the size of a read does."
				}
				return text + fmt.Sprintf(" From %s on the order hardly matters (%s): pack samples into records of that size, "+
					"or read them in order.", r.Label, ratio(r.gbps, s))
			}
		}
		return text + " At every size measured the order matters: store samples in the order in which they are read."
	}
}

func (p *plan) blockSizes(base Spec) {
	p.Question = "How large should a read be?"
	p.Axis, p.Unit = "read size", "bytes"
	for _, n := range []int64{4 * units.KiB, 16 * units.KiB, 64 * units.KiB, 256 * units.KiB, 512 * units.KiB, units.MiB,
		4 * units.MiB, 16 * units.MiB} {
		for _, r := range []Route{Direct, Buffered} {
			s := base
			s.Memory, s.Pattern, s.BlockSize, s.Route, s.Cache = Host, Sequential, n, r, Cold
			p.add(map[Route]string{Direct: "past the page cache", Buffered: "through the page cache, cold"}[r], float64(n),
				shortSize(n), s)
		}
	}
	p.answer = func(pts []point) string {
		var out []string
		for _, name := range seriesOf(pts) {
			s := bySeries(pts)[name]
			best, first := knee(s)
			out = append(out, fmt.Sprintf("%s: %s reads reach %s, %s of the best; %s reads %s of it.", name, first.Label,
				units.Rate(first.gbps), ratio(first.gbps, best.gbps), s[0].Label, ratio(s[0].gbps, best.gbps)))
		}
		return sentences(out)
	}
}

func (p *plan) workers(base Spec) {
	p.Question = "How many workers are worth using?"
	p.Axis, p.Unit = "workers", "count"
	for _, c := range []Cache{Cold, Warm} {
		for _, n := range []int{1, 2, 4, 8, 16, 32} {
			s := base
			s.Memory, s.Workers, s.QueueDepth = Host, n, 1
			name := "from storage"
			if c == Warm {
				s.Route, s.Cache, name = Buffered, Warm, "from the page cache"
			} else {
				s.Route = Auto
			}
			p.add(name, float64(n), strconv.Itoa(n), s)
		}
	}
	p.answer = func(pts []point) string {
		var out []string
		for _, name := range seriesOf(pts) {
			s := bySeries(pts)[name]
			best, first := knee(s)
			text := fmt.Sprintf("%s: %s workers reach %s, %s of the best", name, first.Label, units.Rate(first.gbps),
				ratio(first.gbps, best.gbps))
			if last := s[len(s)-1]; last.gbps < 0.9*best.gbps {
				text += fmt.Sprintf("; %s are slower again (%s)", last.Label, units.Rate(last.gbps))
			} else if first.X < last.X {
				text += "; more add nothing"
			}
			out = append(out, text+".")
		}
		return sentences(out)
	}
}

func (p *plan) memories(base Spec, host bool) {
	p.Question = "How much faster are pinned memory and the engine?"
	p.Axis = "memory"
	for _, c := range []Cache{Warm, Cold} {
		for i, m := range []Memory{Pageable, Pinned, Engine} {
			s := base
			s.Memory, s.Cache, s.Pattern = m, c, Sequential
			name := "cold"
			if s.Route = Auto; c == Warm {
				name = "cached"
				if m != Engine {
					s.Route = Buffered
				}
			}
			p.add(name, float64(i), string(m), s)
		}
	}
	p.answer = func(pts []point) string {
		var out []string
		for _, name := range seriesOf(pts) {
			s := bySeries(pts)[name]
			if len(s) < 3 {
				continue
			}
			out = append(out, fmt.Sprintf("%s: pinned memory gives %s against %s pageable (%s times), the engine %s (%s times).",
				name,
				units.Rate(s[1].gbps), units.Rate(s[0].gbps), ratio(s[1].gbps, s[0].gbps), units.Rate(s[2].gbps), ratio(s[2].gbps,
					s[0].gbps)))
		}
		if host {
			out = append(out, "There is no GPU here: the copies are within host memory, and pinning changes nothing.")
		}
		return sentences(out)
	}
}

// knee returns the best point, and the first point that is within five per cent of the best.
func knee(s []point) (best, first point) {
	for _, p := range s {
		if p.gbps > best.gbps {
			best = p
		}
	}
	for _, p := range s {
		if p.gbps >= 0.95*best.gbps {
			return best, p
		}
	}
	return best, best
}

func bySeries(pts []point) map[string][]point {
	m := map[string][]point{}
	for _, p := range pts {
		m[p.Series] = append(m[p.Series], p)
	}
	return m
}

func seriesOf(pts []point) []string {
	var names []string
	seen := map[string]bool{}
	for _, p := range pts {
		if !seen[p.Series] {
			seen[p.Series] = true
			names = append(names, p.Series)
		}
	}
	return names
}

func at(s []point, x float64) float64 {
	for _, p := range s {
		if p.X == x {
			return p.gbps
		}
	}
	return 0
}

func ratio(a, b float64) string {
	if b == 0 {
		return "an unknown share"
	}
	return strconv.FormatFloat(a/b, 'f', 2, 64)
}

func sentences(all []string) string {
	for i, s := range all {
		all[i] = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.Join(all, " ")
}
