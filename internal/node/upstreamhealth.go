// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"html"
	"io"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// upstreamHealth is the state of the upstream of one bucket, as /readyz and the first page of the console show it. The
// address of the upstream is not shown, because the console asks for no password.
type upstreamHealth struct {
	Bucket string `json:"bucket"`
	upstream.State
}

// healthOf returns the state of the upstream of each upstream bucket, or nil if the store has none.
func healthOf(st store) []upstreamHealth {
	u, ok := st.(*withUpstreams)
	if !ok {
		return nil
	}
	var all []upstreamHealth
	for _, b := range u.Stats().Buckets {
		all = append(all, upstreamHealth{Bucket: b.Name, State: b.State})
	}
	return all
}

// upstreamsOf returns a function that returns the state of each upstream; nil before the store is open.
func upstreamsOf(open *atomic.Pointer[store]) func() []upstreamHealth {
	return func() []upstreamHealth {
		if st := open.Load(); st != nil {
			return healthOf(*st)
		}
		return nil
	}
}

// writeUpstreams writes the states of upstreams as a list in HTML.
func writeUpstreams(w io.Writer, all []upstreamHealth) {
	if len(all) == 0 {
		return
	}
	fmt.Fprint(w, "<h2>Upstreams</h2>\n<ul>")
	for _, u := range all {
		fmt.Fprintf(w, "<li>%s: %s</li>\n", html.EscapeString(u.Bucket), html.EscapeString(u.text()))
	}
	fmt.Fprint(w, "</ul>\n")
}

// text describes the state in one sentence.
func (u upstreamHealth) text() string {
	if u.Failures == 0 {
		return "the upstream answers"
	}
	how := "the upstream is asked"
	if u.Phase != upstream.Closed {
		how = "the upstream is not asked until " + u.Retry.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s, and has failed %d times in a row since %s; the last failure: %s", how, u.Failures,
		u.Since.UTC().Format(time.RFC3339), u.Last)
}
