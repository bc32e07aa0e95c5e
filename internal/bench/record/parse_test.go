// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const small = `{"schema":1,"tool":"nebulaio bench","version":"0.3.0","command":["nebulaio","bench"],
"started":"2026-11-15T04:00:00Z","seconds":1,"machine":{"kernel":"6.8","device":{"id":"host"}},
"runs":[{"name":"a","settings":{"op":"read"},"bytes":8,"gbps":1,"latency":{"p50":1,"p90":2,"p99":3,"p99_9":4,
"buckets":[{"up_to":1,"count":1},{"up_to":2,"count":1}]},"series":[{"at":1,"gbps":1},{"at":2,"gbps":1}],
"cache":{"before":-1,"after":-1},"engine":{"any":[-1]},"added_later":{"x":-5}}],
"sweeps":[{"id":"s","points":[{"x":1,"run":0}]}],
"train":{"trace":[{"ready":0,"begin":1,"end":2}]}}`

func TestParseTakesWhatABenchmarkWrites(t *testing.T) {
	f, err := Parse("a.json", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Runs) != 1 || f.Runs[0].Cache.Before != -1 || f.Version != "0.3.0" {
		t.Errorf("read as %+v", f)
	}
	again, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("again", again); err != nil {
		t.Errorf("what was written is refused: %v", err)
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{small, ``, "ends before its JSON does"},
		{small, `[]`, "is a JSON array; expected an object"},
		{small, `{"checks":[]}`, `has no "tool" or no "schema"`},
		{small, small[:len(small)/2], "ends before its JSON does"},
		{small, small + "x", "goes on after"},
		{`"schema":1`, `"schema":2`, "schema is 2; expected 1"},
		{`nebulaio bench"`, `fio"`, `tool is "fio"; expected "nebulaio bench"`},
		{`"gbps":1,"latency"`, `"gbps":-1,"latency"`, "runs[0].gbps is -1; expected a number from 0"},
		{`"gbps":1,"latency"`, `"gbps":1e300,"latency"`, "runs[0].gbps is 1e+300"},
		{`"gbps":1,"latency"`, `"gbps":1e999,"latency"`, "1e999"},
		{`"gbps":1,"latency"`, `"gbps":"fast","latency"`, "runs.gbps is string; expected a number"},
		{`"bytes":8`, `"bytes":-8`, "runs[0].bytes is -8; expected 0 or more"},
		{`"before":-1`, `"before":-2`, "runs[0].cache.before is -2; expected -1 or more"},
		{`"p90":2`, `"p90":0.5`, "runs[0].latency has p50 1, p90 0.5"},
		{`{"up_to":2,`, `{"up_to":1,`, "runs[0].latency.buckets[1].up_to is 1; expected more than 1"},
		{`{"at":2,`, `{"at":0.5,`, "runs[0].series[1].at is 0.5; expected more than 1"},
		{`"run":0`, `"run":1`, "sweeps[0].points[0].run is 1; expected an index into 1 runs"},
		{`"run":0`, `"run":-1`, "sweeps[0].points[0].run is -1; expected 0 or more"},
		{`"begin":1`, `"begin":3`, "train.trace[0] goes from 3 to 2"},
		{`"name":"a"`, `"name":"` + strings.Repeat("a", maxText+1) + `"`, "runs[0].name has 65537 bytes"},
		{small, strings.Repeat(" ", MaxFile) + small, "expected at most 67108864"},
	} {
		in := strings.Replace(small, c.old, c.new, 1)
		_, err := Parse("dir/a.json", []byte(in))
		switch {
		case err == nil:
			t.Errorf("taken, expected %q", c.want)
		case !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "dir/a.json") ||
			!errs.Is(err, errs.Corrupt):
			t.Errorf("got %v (%v), expected %q of dir/a.json", err, errs.KindOf(err), c.want)
		}
	}
}

func TestCheckRefusesWhatJSONCannotSay(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		f := File{Runs: []Run{{Latency: &Latency{Max: v}}}}
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), "runs[0].latency.max is") {
			t.Errorf("%g: %v", v, err)
		}
	}
	for name, f := range map[string]*File{
		"runs":   {Runs: make([]Run, maxRuns+1)},
		"sweeps": {Sweeps: make([]Sweep, maxStep+1)},
		"points": {Runs: make([]Run, 1), Sweeps: []Sweep{{Points: make([]SweepPoint, maxStep+1)}}},
		"notes":  {Notes: make([]string, maxList+1)},
	} {
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), "expected at most") {
			t.Errorf("any number of %s is taken: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"schema":1,"tool":"nebulaio bench"}`))
	f.Add(
		[]byte(`{"schema":1,"tool":"nebulaio bench","runs":[null,{"passes":[{}]}],"ceilings":{"limits":[{"rounds":[1,2]}]}}`))
	f.Add([]byte(`{"schema":1,"tool":"nebulaio bench","sweeps":[{"points":[{"run":7}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse("fuzz", b)
		if err != nil {
			if !errs.Is(err, errs.Corrupt) || got != nil {
				t.Fatalf("error of kind %v with %v: %v", errs.KindOf(err), got, err)
			}
			return
		}
		out, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("taken but cannot be written: %v", err)
		}
		if _, err := Parse("again", out); err != nil {
			t.Fatalf("taken but not again: %v", err)
		}
	})
}
