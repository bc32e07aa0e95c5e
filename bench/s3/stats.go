// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// spread is the spread of a figure over the rounds of one run.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the spread of values; all zero if there are none.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	s := slices.Clone(values)
	slices.Sort(s)
	mid := len(s) / 2
	m := s[mid]
	if len(s)%2 == 0 {
		m = (s[mid-1] + s[mid]) / 2
	}
	return spread{m, s[0], s[len(s)-1]}
}

func (s spread) String() string {
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s [%s..%s]", number(s.Median), number(s.Min), number(s.Max))
}

// number prints a figure with three significant digits and no needless decimals.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.0995 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// percentile returns the smallest duration that at least p percent of sorted do not exceed; zero if sorted is empty.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// ratios divides a by b round by round, so that a disturbance of a whole round (a neighbour, a busy disk) affects
// both. Rounds without one of the two are left out.
func ratios(a, b []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 && a[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}
