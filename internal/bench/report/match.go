// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// question returns the settings that identify the purpose of a run. Paths, seeds and the limit of the run are not
// among them.
func question(s record.Settings) [][2]string {
	return [][2]string{
		{"op", s.Op}, {"route", s.Route}, {"memory", s.Memory}, {"pattern", s.Pattern},
		{"block size", size(s.BlockSize)}, {"workers", fmt.Sprint(s.Workers)}, {"queue depth", fmt.Sprint(s.QueueDepth)},
		{"io", s.IO}, {"files", fmt.Sprint(s.Files)}, {"file size", fmt.Sprint(s.FileSize)}, {"cache", s.Cache},
		{"sync", yes(s.Sync)}, {"prefetch", fmt.Sprint(s.Prefetch)},
	}
}

// match pairs runs with the same question. Of several, those with the same paths are paired first, and the rest in
// their order.
func match(a, b []record.Run) (pairs [][2]int, onlyA, onlyB []int) {
	// Settings that differ by rounding in print must not meet: the key is exact.
	key := func(s record.Settings, paths bool) string {
		s.Seed, s.Limit = 0, ""
		if !paths {
			s.Paths = nil
		}
		return fmt.Sprintf("%#v", s)
	}
	of := make([]int, len(a))
	for i := range of {
		of[i] = -1
	}
	used := make([]bool, len(b))
	for _, paths := range []bool{true, false} {
		free := map[string][]int{}
		for j := range b {
			if !used[j] {
				k := key(b[j].Settings, paths)
				free[k] = append(free[k], j)
			}
		}
		for i := range a {
			if of[i] >= 0 {
				continue
			}
			k := key(a[i].Settings, paths)
			if l := free[k]; len(l) > 0 {
				of[i], used[l[0]], free[k] = l[0], true, l[1:]
			}
		}
	}
	for i, j := range of {
		if j >= 0 {
			pairs = append(pairs, [2]int{i, j})
		} else {
			onlyA = append(onlyA, i)
		}
	}
	for j, u := range used {
		if !u {
			onlyB = append(onlyB, j)
		}
	}
	return pairs, onlyA, onlyB
}

// alone returns the runs of mine without a match, each with the nearest unmatched run of the other side.
func alone(mine []record.Run, left []int, theirs []record.Run, others []int) []Alone {
	var out []Alone
	for _, i := range left {
		x := Alone{Name: mine[i].Name}
		for _, j := range others {
			d := differs(mine[i].Settings, theirs[j].Settings)
			if x.Nearest == "" || len(d) < len(x.Differs) {
				x.Nearest, x.Differs = theirs[j].Name, d
			}
		}
		out = append(out, x)
	}
	return out
}

func differs(a, b record.Settings) []string {
	var out []string
	qa, qb := question(a), question(b)
	for i := range qa {
		if qa[i][1] != qb[i][1] {
			out = append(out, fmt.Sprintf("%s %s against %s", qa[i][0], printable(blank(qa[i][1])), printable(blank(qb[i][1]))))
		}
	}
	return slices.Clip(out)
}

func blank(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
