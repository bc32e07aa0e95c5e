// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/nebulaio/nebulaio/internal/console/rates"
)

const (
	// mostStreams is the largest number of streams of live rates at a time.
	mostStreams = 64
	// keepAlive is the time between two lines of a stream that has nothing to say.
	keepAlive = 15 * time.Second
	// streamTime is the longest time of a stream. The browser connects again by itself.
	streamTime = time.Hour
)

// seen returns what the user sees of a sample.
func (c serverPage) seen(s *rates.Sample) *rates.Sample {
	if c.admin() {
		return s
	}
	return s.For(c.user.Account.AccessKey)
}

// rates answers GET rates.
func (c serverPage) rates() (any, error) {
	past, _, stop := c.Rates.Watch(c.Context)
	stop()
	out := make([]*rates.Sample, 0, len(past))
	for _, s := range past {
		out = append(out, c.seen(s))
	}
	return map[string]any{"samples": out}, nil
}

// live answers GET live with server-sent events.
func (c serverPage) live() (any, error) {
	if c.streams.Add(1) > mostStreams {
		c.streams.Add(-1)
		return nil, &failed{http.StatusServiceUnavailable, "SlowDown", "too many pages show live rates", "close some of them"}
	}
	defer c.streams.Add(-1)
	past, next, stop := c.Rates.Watch(c.Context)
	defer stop()
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // proxies pass events on at once
	c.w.WriteHeader(http.StatusOK)
	history := make([]*rates.Sample, 0, len(past))
	for _, s := range past {
		history = append(history, c.seen(s))
	}
	if !c.event("history", history) {
		return replied{}, nil
	}
	c.follow(next)
	return replied{}, nil
}

// follow sends samples until the client, the session or the server ends.
func (c serverPage) follow(next <-chan *rates.Sample) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	end := time.NewTimer(streamTime)
	defer end.Stop()
	for {
		select {
		case s := <-next:
			if !c.event("sample", c.seen(s)) {
				return
			}
		case <-tick.C:
			// A look at the session notices that it has expired, that the account is gone, or that its role has changed.
			user, err := c.sessions.Look(c.token)
			if err != nil {
				c.event("end", map[string]string{"reason": "expired"})
				return
			}
			c.user = user
			if !c.send(": keep\n\n") {
				return
			}
		case <-c.user.Done:
			c.event("end", map[string]string{"reason": "expired"})
			return
		case <-c.Context.Done():
			c.event("end", map[string]string{"reason": "stopping"})
			return
		case <-end.C:
			return
		case <-c.r.Context().Done():
			return
		}
	}
}

// event sends one event, and reports whether the client is still there.
func (c serverPage) event(name string, v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		return false
	}
	return c.send(fmt.Sprintf("event: %s\ndata: %s\n\n", name, b))
}

func (c serverPage) send(text string) bool {
	c.extend()
	if _, err := c.w.Write([]byte(text)); err != nil {
		return false
	}
	return http.NewResponseController(c.w).Flush() == nil
}
