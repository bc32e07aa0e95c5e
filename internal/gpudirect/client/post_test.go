// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/report"
)

// Eight threads copied for two seconds each within one second and a half. The
// copy took less time than the whole, and so the server is told.
func TestNoStageIsReportedLongerThanTheTotal(t *testing.T) {
	r := &report.Report{Bytes: 1 << 30, Seconds: 2,
		Routes: []report.RouteShare{{Route: report.RouteTakenCache, Bytes: 3 << 28, Span: 0.5},
			{Route: report.RouteTakenDirect, Bytes: 1 << 28, Span: 0.4}},
		Stages: []report.Stage{
			{Stage: "plan", Busy: 0.1},
			{Stage: "read_cache", Busy: 4, Span: 1.5, Bytes: 3 << 28},
			{Stage: "read_direct", Busy: 3, Span: 1.2, Bytes: 1 << 28},
			{Stage: "copy", Busy: 16, Span: 1.5, Bytes: 1 << 30},
			{Stage: "verify", Busy: 6, Span: 1, Bytes: 1 << 30},
		}}
	r.Device.ID = "cuda:0"
	got := movedOf(r, false)
	total := time.Duration(0)
	for by, m := range got {
		if by.stage == "total" {
			total += m.time
		}
	}
	if total != 2*time.Second {
		t.Errorf("the routes' totals are %v, expected the transfer's 2s", total)
	}
	for by, want := range map[movedBy]moved{
		{false, "cuda:0", string(report.RouteTakenCache), "total"}:  {3 << 28, 1500 * time.Millisecond},
		{false, "cuda:0", string(report.RouteTakenDirect), "total"}: {1 << 28, 500 * time.Millisecond},
		{false, "cuda:0", "", "read"}:                               {1 << 30, 2 * time.Second},
		{false, "cuda:0", "", "copy"}:                               {1 << 30, 1500 * time.Millisecond},
		{false, "cuda:0", "", "verify"}:                             {1 << 30, time.Second},
	} {
		if got[by] != want {
			t.Errorf("%+v: %+v, expected %+v", by, got[by], want)
		}
	}
	for by, m := range got {
		if m.time > total {
			t.Errorf("%+v took %v, longer than the total of %v", by, m.time, total)
		}
	}
}
