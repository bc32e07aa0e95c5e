// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

func names(all []report.Stage) (out []string) {
	for _, s := range all {
		out = append(out, s.Stage)
	}
	return out
}

// Every byte is counted once by its route, whoever counts it, and extra bytes by none.
func TestRoutesAddUp(t *testing.T) {
	var y Tally
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			now := Ago(0)
			y.Read(false, report.RouteTakenDirect, 10, now)
			y.ReadParts(false, 7, []Part{{report.RouteTakenCache, 3}, {report.RouteTakenDirect, 4}}, now)
			y.ReadBuffered(false, vfs.Buffered{Cached: 1, Missed: 2}, report.RouteTakenBuffered, now)
			y.Read(true, report.RouteTakenDirect, 100, now)
			y.ReadByCuFile(5, now)
			y.Padded(6)
		})
	}
	all.Wait()
	s := y.Sums()
	for r, want := range map[report.RouteTaken]int64{report.RouteTakenDirect: 8 * 14, report.RouteTakenCache: 8 * 4,
		report.RouteTakenBuffered: 8 * 2} {
		if got := s.Routes[r].Bytes; got != want {
			t.Errorf("%s: %d bytes, expected %d", r, got, want)
		}
	}
	if r := s.ReadTotals(8 * 25); r.Read != 8*(25+100+6) || r.Amplification != 131.0/25 {
		t.Errorf("%+v", r)
	}
	if x := s.Shares(report.RouteTakenCache, report.RouteTakenNetwork); len(x) != 1 || x[0].Bytes != 8*4 {
		t.Errorf("%+v", x)
	}
}

// Stages come in the order of the flow, and only those that did something.
func TestStagesInTheOrderOfTheFlow(t *testing.T) {
	var y Tally
	now := Ago(0)
	y.Copied(1, now, now)
	y.Verified(1, now)
	y.Wrote(report.RouteTakenDirect, 1, now)
	s := y.Sums()
	if got := names(s.LoadStages()); !slices.Equal(got, []string{"plan", "verify", "copy", "wait_copy"}) {
		t.Errorf("of a load: %v", got)
	}
	steps := []report.Stage{{Stage: "reserve"}, {Stage: "sync"}}
	if got := names(s.SaveStages(steps)); !slices.Equal(got,
		[]string{"reserve", "copy", "wait_copy", "checksum", "write", "sync"}) {
		t.Errorf("of a save: %v", got)
	}
	if got := names(s.PutStages()); !slices.Equal(got, []string{"copy", "write"}) {
		t.Errorf("of a write in place: %v", got)
	}
}

// The pace is set by what took longest.
func TestLimits(t *testing.T) {
	for want, s := range map[string]Sums{
		"none":             {},
		"storage write":    {Writing: Account{Chunks: 1, Busy: 3}, CopyWait: 2},
		"copy from device": {Writing: Account{Chunks: 1, Busy: 1}, CopyWait: 2},
		"checksums (CPU)":  {Writing: Account{Chunks: 1, Busy: 1}, Verify: Account{Busy: 2}},
	} {
		if got := s.SaveLimit(time.Second, nil); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	once := []report.Stage{{Stage: "sync", Busy: 0.6}}
	if got := (&Sums{Writing: Account{Chunks: 1}}).SaveLimit(time.Second, once); got != "making it durable" {
		t.Errorf("%q", got)
	}
}
