// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// TestTheConsoleShowsUpstreams shows the state of each upstream, and that a server without its upstreams is ready.
func TestTheConsoleShowsUpstreams(t *testing.T) {
	since := time.Date(2026, 11, 17, 7, 0, 0, 0, time.UTC)
	all := []upstreamHealth{
		{Bucket: "good", State: upstream.State{Phase: upstream.Closed}},
		{Bucket: "shaky", State: upstream.State{Phase: upstream.Closed, Failures: 2, Since: since, Last: "reset"}},
		{Bucket: "gone", State: upstream.State{Phase: upstream.Open, Failures: 7, Since: since, Retry: since.Add(time.Minute),
			Last: "deadline: <nothing> came"}},
	}
	c := &console{store: func() error { return nil }, upstreams: func() []upstreamHealth { return all },
		metrics: newMetrics("1", gauges{none, none})}
	c.set(ready)
	code, text := get(t, c.handler(), "/readyz")
	var h health
	if err := json.Unmarshal([]byte(text), &h); err != nil || code != 200 || !h.Ready || len(h.Upstreams) != len(all) {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	for i, want := range all {
		if h.Upstreams[i] != want {
			t.Errorf("/readyz shows %+v, expected %+v", h.Upstreams[i], want)
		}
	}
	if strings.Contains(text, "0001-01-01") {
		t.Errorf("a time that is not set is shown: %s", text)
	}
	_, page := get(t, c.handler(), "/")
	for _, want := range []string{"good: the upstream answers<",
		"shaky: the upstream is asked, and has failed 2 times in a row",
		"gone: the upstream is not asked until 2026-11-17T07:01:00Z, and has failed 7 times in a row since 2026-11-17T07:00:00Z; " +
			"the last failure: deadline: &lt;nothing&gt; came"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	all = nil
	if _, text := get(t, c.handler(), "/readyz"); strings.Contains(text, "upstreams") {
		t.Errorf("a server without upstream buckets: %s", text)
	}
}
