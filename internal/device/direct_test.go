// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
)

func TestRouteInAWord(t *testing.T) {
	for _, c := range []struct {
		reads, writes device.RouteOps
		want          string
	}{
		{device.RouteOps{}, device.RouteOps{}, "none"},
		{device.RouteOps{Total: 3}, device.RouteOps{}, "unknown"},
		{device.RouteOps{Total: 3, P2P: 3}, device.RouteOps{}, "p2p"},
		{device.RouteOps{Total: 3, NVFS: 3, Unaligned: 3}, device.RouteOps{}, "nvfs"},
		{device.RouteOps{Total: 3, Posix: 3}, device.RouteOps{Total: 1, Posix: 1}, "compat"},
		{device.RouteOps{Total: 3, Posix: 2, P2P: 1}, device.RouteOps{}, "mixed"},
		{device.RouteOps{Total: 3, P2P: 3}, device.RouteOps{Total: 1, Posix: 1}, "mixed"},
		{device.RouteOps{Total: 2, P2P: 1, NVFS: 1}, device.RouteOps{}, "mixed"},
	} {
		if got := (device.DirectCounters{Known: true, Reads: c.reads, Writes: c.writes}).Route(); got != c.want {
			t.Errorf("reads %+v, writes %+v: %s, want %s", c.reads, c.writes, got, c.want)
		}
		if got := (device.DirectCounters{Reads: c.reads, Writes: c.writes}).Route(); got != "unknown" {
			t.Errorf("counters that are not known: %s", got)
		}
	}
}

// TestWhoCounted: what NebulaIO counted says so, also as a difference and in JSON.
func TestWhoCounted(t *testing.T) {
	ours := device.DirectCounters{Known: true, CountedBy: device.CountedByNebulaIO,
		Reads: device.RouteOps{Total: 1, Posix: 1}}
	if got := ours.Minus(device.DirectCounters{Known: true}); got != ours ||
		got.Basis() != "counted by nebulaio: only compatibility mode is possible here" {
		t.Errorf("%+v, %q", got, got.Basis())
	}
	if b, err := json.Marshal(ours); err != nil || !strings.HasPrefix(string(b),
		`{"known":true,"counted_by":"nebulaio","reads":{`) {
		t.Errorf("%s, %v", b, err)
	}
	for _, c := range []device.DirectCounters{{Known: true}, {CountedBy: device.CountedByNebulaIO},
		ours.Minus(device.DirectCounters{})} {
		if c.Basis() != "" {
			t.Errorf("%+v: %q", c, c.Basis())
		}
	}
}

func TestRouteOpsAddUpAndRead(t *testing.T) {
	a := device.RouteOps{Total: 10, P2P: 1, NVFS: 2, Posix: 3, Unaligned: 4, Sparse: 5, Errors: 6}
	if got := a.Plus(a).Minus(a); got != a {
		t.Errorf("a + a - a is %+v", got)
	}
	if got := a.String(); got != "posix 3, p2p 1, nvfs 2, unaligned 4, sparse 5, failed 6" {
		t.Error(got)
	}
	if got := (device.RouteOps{Posix: 16}).String(); got != "posix 16, p2p 0, nvfs 0" {
		t.Error(got)
	}
	b, err := json.Marshal(device.DirectCounters{Known: true, Reads: device.RouteOps{Total: 1, P2P: 1}, ReadBytes: 7})
	if err != nil ||
		string(b) != `{"known":true,"reads":{"total":1,"p2p":1,"nvfs":0,"posix":0,"unaligned":0,"sparse":0,"errors":0},`+
			`"writes":{"total":0,"p2p":0,"nvfs":0,"posix":0,"unaligned":0,"sparse":0,"errors":0},"read_bytes":7,"write_bytes":0}` {
		t.Errorf("%s, %v", b, err)
	}
}
