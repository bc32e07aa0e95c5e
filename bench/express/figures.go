// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
)

// cost is what the requests of one measurement cost. CPU times are of the server alone, in microseconds per request.
type cost struct {
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu_us"`
	User     float64 `json:"user_us"`
	System   float64 `json:"system_us"`
}

// spread is the median of a figure over the rounds, with the least and the most.
type spread struct{ median, least, most float64 }

// spreadOf returns the spread of at least one value.
func spreadOf(values []float64) spread {
	s := slices.Sorted(slices.Values(values))
	mid := len(s) / 2
	m := s[mid]
	if len(s)%2 == 0 {
		m = (s[mid-1] + s[mid]) / 2
	}
	return spread{m, s[0], s[len(s)-1]}
}

// text prints the spread with this many digits after the point.
func (s spread) text(digits int) string {
	return fmt.Sprintf("%.*f [%.*f..%.*f]", digits, s.median, digits, s.least, digits, s.most)
}

// each returns one figure of all rounds.
func each(costs []cost, of func(cost) float64) []float64 {
	var out []float64
	for _, c := range costs {
		out = append(out, of(c))
	}
	return out
}

// ratios divides the CPU times of two rows round by round, so that a disturbance of a round affects both.
func ratios(a, b []cost) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i].CPU > 0 {
			out = append(out, a[i].CPU/b[i].CPU)
		}
	}
	return out
}

// report prints the rows, and the ratios of the two kinds of bucket.
func report(w io.Writer, o *options, rows []*row, load string) {
	fmt.Fprintf(w, "%d bytes, %d streams, %d requests a measurement, %d rounds; load of the machine %s\n\n", o.Size,
		o.Streams, o.Requests, o.Rounds, load)
	fmt.Fprintln(w, "| request | server CPU per request, µs | user | system | requests/s |")
	fmt.Fprintln(w, "|---|---|---|---|---|")
	costs := map[string][]cost{}
	for _, r := range rows {
		costs[r.name()] = r.costs
		mid := func(of func(cost) float64) float64 { return spreadOf(each(r.costs, of)).median }
		fmt.Fprintf(w, "| %s | %s | %.1f | %.1f | %.0f |\n", r.name(),
			spreadOf(each(r.costs, func(c cost) float64 { return c.CPU })).text(1),
			mid(func(c cost) float64 { return c.User }), mid(func(c cost) float64 { return c.System }),
			mid(func(c cost) float64 { return float64(c.Requests) / c.Seconds }))
	}
	fmt.Fprintln(w)
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		all := ratios(costs[method+" "+directory], costs[method+" "+ordinary])
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s: CPU of the directory bucket / ordinary bucket, by round: %s; rounds %.2f\n", method,
			spreadOf(all).text(2), all)
	}
}
