// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestSpreads(t *testing.T) {
	for want, values := range map[string][]float64{
		"2.0 [1.0..9.0]": {9, 1, 2}, "1.5 [1.0..2.0]": {2, 1}, "3.0 [3.0..3.0]": {3},
	} {
		if got := spreadOf(values).text(1); got != want {
			t.Errorf("%v: %s, expected %s", values, got, want)
		}
	}
}

func TestRatiosAreByRound(t *testing.T) {
	got := ratios([]cost{{CPU: 1}, {CPU: 6}, {CPU: 1}}, []cost{{CPU: 2}, {CPU: 3}, {CPU: 0}})
	if !slices.Equal(got, []float64{0.5, 2}) {
		t.Errorf("%v", got)
	}
}

func TestTheReport(t *testing.T) {
	rows := []*row{
		{method: "PUT", bucket: &bucket{name: directory},
			costs: []cost{{Requests: 10, Seconds: 2, CPU: 40, User: 30, System: 10}}},
		{method: "PUT", bucket: &bucket{name: ordinary},
			costs: []cost{{Requests: 10, Seconds: 2, CPU: 50, User: 35, System: 15}}},
	}
	var out bytes.Buffer
	report(&out, &options{Size: 4096, Streams: 1, Requests: 10, Rounds: 1}, rows, "0.5")
	for _, want := range []string{"| PUT plain | 50.0 [50.0..50.0] | 35.0 | 15.0 | 5 |", "by round: 0.80 [0.80..0.80]"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, out.String())
		}
	}
}
