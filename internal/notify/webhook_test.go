// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// receiver is a webhook whose reply a test changes.
type receiver struct {
	url string

	mu    sync.Mutex
	reply func(w http.ResponseWriter, r *http.Request) // nil confirms the event
	got   []string                                     // identifiers of the confirmed events
}

func newReceiver(t *testing.T, reply func(http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	r := &receiver{reply: reply}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // only then the server notices that the client has gone
	r.mu.Lock()
	reply := r.reply
	if reply == nil {
		r.got = append(r.got, req.Header.Get("X-Nebulaio-Event-Id"))
	}
	r.mu.Unlock()
	if reply != nil {
		reply(w, req)
	}
}

func (r *receiver) confirm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reply = nil
}

// wantAll checks that the receiver confirmed n events in order. An event can be there twice in a row, because the
// dispatcher sends an event again if its confirmation came too late.
func (r *receiver) wantAll(t *testing.T, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("store-%016x", i+1))
	}
	if !slices.Equal(slices.Compact(slices.Clone(r.got)), want) {
		t.Errorf("the receiver confirmed %q, expected %q", r.got, want)
	}
}

// TestAWebhookThatHangs accepts an event and never answers. The events stay, other targets go on, and the dispatcher
// ends.
func TestAWebhookThatHangs(t *testing.T) {
	asked := make(chan struct{}, 100)
	hanging := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	good := newReceiver(t, nil)
	slow, quick := newQueue(), newQueue()
	for i := range 20 {
		slow.add(fmt.Sprint(i), object.ChangePut)
		quick.add(fmt.Sprint(i), object.ChangePut)
	}
	target := Settings{Name: "slow", Type: "webhook", Address: []string{hanging.url}, Timeout: 50 * time.Millisecond}
	other := Settings{Name: "quick", Type: "webhook", Address: []string{good.url}, Timeout: 10 * time.Second}
	s := startSender(t, queues{Consumer("slow"): slow, Consumer("quick"): quick}, target, other)
	<-asked
	<-asked // after the timeout, the event is sent again
	quick.waitAck(t, 20)
	good.wantAll(t, 20)
	<-s.failed
	if st := s.Status()[0]; st.Healthy || st.Delivered != 0 || !strings.Contains(st.LastError, "exceeded") {
		t.Errorf("the status of a target that hangs is %+v", st)
	}
	hanging.confirm()
	slow.waitAck(t, 20)
	hanging.wantAll(t, 20)
}

// TestAHangingWebhookDoesNotKeepTheServer ends the dispatcher while a receiver owes its reply.
func TestAHangingWebhookDoesNotKeepTheServer(t *testing.T) {
	asked := make(chan struct{}, 100)
	hanging := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	q := newQueue()
	q.add("k", object.ChangePut)
	s := startSender(t, q, Settings{Name: "t", Type: "webhook", Address: []string{hanging.url}, Timeout: 10 * time.Minute})
	<-asked
	s.stop()
}

// TestAWebhookThatAlwaysFails answers 500. The pauses double up to their limit, and no event is lost.
func TestAWebhookThatAlwaysFails(t *testing.T) {
	failing := newReceiver(t, func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	q := newQueue()
	for i := range 5 {
		q.add(fmt.Sprint(i), object.ChangePut)
	}
	pauses := pausesOf(t, q, failing, 8)
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(pauses, want) {
		t.Errorf("the pauses are %v, expected %v", pauses, want)
	}
}

// TestAWebhookThatAsksForAPause answers 429 or 503 with Retry-After. The next try waits at least that long.
func TestAWebhookThatAsksForAPause(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		want   time.Duration
	}{
		{http.StatusTooManyRequests, "90", 90 * time.Second},
		{http.StatusServiceUnavailable, "90", 90 * time.Second},
		{http.StatusTooManyRequests, "0", time.Second}, // the pause of the server itself is longer
		{http.StatusTooManyRequests, "86400", mostAskedWait},
		{http.StatusTooManyRequests, "Fri, 31 Dec 9999 23:59:59 GMT", mostAskedWait},
		{http.StatusTooManyRequests, "Fri, 31 Dec 1999 23:59:59 GMT", time.Second},
		{http.StatusTooManyRequests, "soon", time.Second},
		{http.StatusTooManyRequests, "", time.Second},
		{http.StatusInternalServerError, "90", time.Second},
	} {
		busy := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.header)
			w.WriteHeader(c.status)
		})
		q := newQueue()
		q.add("k", object.ChangePut)
		if got := pausesOf(t, q, busy, 1); got[0] != c.want {
			t.Errorf("status %d with Retry-After %q: the pause is %v, expected %v", c.status, c.header, got[0], c.want)
		}
	}
}

// pausesOf lets a receiver fail n times and returns the pauses after them. Then the receiver confirms all events of the
// queue.
func pausesOf(t *testing.T, q *queue, r *receiver, n int) []time.Duration {
	t.Helper()
	d, err := NewDispatcher(q, "store", "r", []Settings{{Name: "t", Type: "webhook", Address: []string{r.url},
		Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	d.after = func(pause time.Duration) <-chan time.Time {
		if pauses = append(pauses, pause); len(pauses) == n {
			r.confirm()
		}
		now := make(chan time.Time, 1)
		now <- time.Time{}
		return now
	}
	last := q.entries[len(q.entries)-1].Seq
	s := start(t, d)
	q.waitAck(t, last)
	s.stop()
	r.wantAll(t, int(last))
	if st := s.Status()[0]; !st.Healthy || st.Delivered != int64(last) || st.Failures != int64(n) || st.LastTry.IsZero() {
		t.Errorf("the status after %d failures is %+v", n, st)
	}
	return pauses
}

// TestNoErrorShowsTheSecretsOfATarget fails in several ways, with secrets in the URL and in the header.
func TestNoErrorShowsTheSecretsOfATarget(t *testing.T) {
	refusing := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for _, address := range []string{refusing.url, "http://127.0.0.1:1"} {
		q := newQueue()
		q.add("k", object.ChangePut)
		s := startSender(t, q, Settings{Name: "t", Type: "webhook", Address: []string{address + "/hook/hidden?token=hidden"},
			Secret: "Bearer hidden", Timeout: time.Minute})
		err := <-s.failed
		st := s.Status()[0]
		if text := fmt.Sprint(err, st); strings.Contains(text, "hidden") || !strings.Contains(text, address) {
			t.Errorf("the error is %v, the status %+v", err, st)
		}
		s.stop()
	}
	for address, want := range map[string]string{
		"https://hooks.example.com":                "https://hooks.example.com",
		"https://hooks.example.com:8443/":          "https://hooks.example.com:8443",
		"https://u:hidden@hooks.example.com/a?b=c": "https://hooks.example.com/...",
		"nats://hidden@n1:4222":                    "nats://n1:4222",
		"broker:9092":                              "broker:9092",
		"http://%zz/hidden":                        "http://...",
	} {
		if got := Shown(address); got != want {
			t.Errorf("%s is shown as %s, expected %s", address, got, want)
		}
	}
}
