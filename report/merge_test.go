// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"testing"
)

func TestMergeAddsTransfersOfOneJob(t *testing.T) {
	one := func(route RouteTaken, bytes int64) *Report {
		return &Report{Direction: "load", Bytes: bytes, Limiting: "disk", Seconds: 5, Error: "x",
			Routes:     []RouteShare{{Route: route, Bytes: bytes, Chunks: 1, Span: 2}},
			Stages:     []Stage{{Stage: "read", Busy: 1, Span: 2, Bytes: bytes}},
			ReadTotals: &ReadTotals{Wanted: bytes, Read: 2 * bytes}, Files: []File{{Path: fmt.Sprint(bytes)}},
			Refusals: []Refusal{{What: "direct", On: fmt.Sprint(bytes), Reason: "tmpfs"}}, Notes: []string{"n"},
			Verify:  &Verification{Files: 1, Blocks: 2, Bytes: bytes},
			Network: &Network{Traffic: Traffic{Requests: 3, Retries: 1, Connections: 4}, Fetchers: 2}}
	}
	r := Report{Notes: []string{"before"}}
	r.Merge(one(RouteTakenDirect, 4_000_000_000))
	r.Merge(one(RouteTakenBuffered, 100))
	r.Merge(one(RouteTakenDirect, 4_000_000_000))
	if r.Bytes != 8_000_000_100 || len(r.Routes) != 2 || r.Routes[0].Bytes != 8_000_000_000 || r.Routes[0].Chunks != 2 ||
		r.Routes[0].GBps != 2 || len(r.Stages) != 1 || r.Stages[0].Busy != 3 || len(r.Files) != 3 {
		t.Errorf("%+v", r)
	}
	if r.Wanted != r.Bytes || r.Amplification != 2 || r.Verify.Blocks != 6 || r.Network.Requests != 9 ||
		r.Network.Connections != 4 || r.Network.Fetchers != 2 {
		t.Errorf("%+v %+v %+v", r.ReadTotals, r.Verify, r.Network)
	}
	if len(r.Refusals) != 1 || len(r.Notes) != 2 || r.Limiting != "disk" || r.Seconds != 0 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	for i := range 100 {
		r.Merge(&Report{Notes: []string{fmt.Sprint(i)}})
	}
	if len(r.Notes) != mostNotes {
		t.Errorf("%d notes", len(r.Notes))
	}
}
