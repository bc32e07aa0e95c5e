// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
)

// An older build of our program runs twice, as two servers, beside the new one. The difference between these two is
// the noise of the machine, and the new build is judged against it.
const (
	beforeName      = "before"
	beforeAgainName = "before again"
)

// isBefore reports whether a target is the older build.
func isBefore(name string) bool { return name == beforeName || name == beforeAgainName }

// comparison is one row's rate and server CPU, divided by those of the older build, round by round.
type comparison struct {
	Row        string `json:"row"`
	RateNew    spread `json:"rate_new"`
	RateBefore spread `json:"rate_before_again"`
	CPUNew     spread `json:"cpu_new"`
	CPUBefore  spread `json:"cpu_before_again"`
}

// holds reports whether the new build loses no more than the two servers of the older build differ.
func (c comparison) holds() bool {
	return c.RateNew.Median >= c.RateBefore.Min && c.CPUNew.Median <= c.CPUBefore.Max
}

// compare computes the comparisons of a run. It returns none if no older build took part.
func (r *result) compare() []comparison {
	if !slices.Contains(r.Targets, beforeName) {
		return nil
	}
	var out []comparison
	for _, row := range r.Rows {
		rate, cpu := row.rate(beforeName), row.cpu(beforeName)
		if len(rate) == 0 || len(row.Samples["nebulaio"]) == 0 {
			continue
		}
		out = append(out, comparison{Row: row.Name,
			RateNew: spreadOf(ratios(row.rate("nebulaio"), rate)), RateBefore: spreadOf(ratios(row.rate(beforeAgainName), rate)),
			CPUNew: spreadOf(ratios(row.cpu("nebulaio"), cpu)), CPUBefore: spreadOf(ratios(row.cpu(beforeAgainName), cpu)),
		})
	}
	return out
}

// comparisonTable renders the comparisons as Markdown lines.
func comparisonTable(all []comparison) []string {
	lines := []string{
		"| row | rate, new / before | rate, before again / before | server CPU, new / before " +
			"| server CPU, before again / before | inside the spread, or better |",
		"|---|---|---|---|---|---|",
	}
	for _, c := range all {
		mark := "yes"
		if !c.holds() {
			mark = "**no**"
		}
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", c.Row, c.RateNew, c.RateBefore, c.CPUNew,
			c.CPUBefore, mark))
	}
	return lines
}
