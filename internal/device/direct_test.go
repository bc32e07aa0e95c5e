// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"encoding/json"
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
	if err != nil || string(b) != `{"known":true,"reads":{"total":1,"p2p":1,"nvfs":0,"posix":0,"unaligned":0,"sparse":0,"errors":0},`+
		`"writes":{"total":0,"p2p":0,"nvfs":0,"posix":0,"unaligned":0,"sparse":0,"errors":0},"read_bytes":7,"write_bytes":0}` {
		t.Errorf("%s, %v", b, err)
	}
}
