// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Stats has the current counts and totals of the door. All totals in Stats count from the start of the server.
type Stats struct {
	Connections   int64 `json:"connections"`    // number of open connections, including unfinished logins
	Logins        int64 `json:"logins"`         // total of successful logins
	LoginsRefused int64 `json:"logins_refused"` // total of refused logins
	// Messages is the total of messages received from clients, including refused requests and logins.
	Messages  int64 `json:"messages"`
	Handles   int64 `json:"handles"`    // number of objects that clients have open now
	HeldBytes int64 `json:"held_bytes"` // size of all objects that clients have open now, in bytes
	Drafts    int64 `json:"drafts"`     // number of objects that clients are writing now
	// Announced size of all objects that clients are writing now, in bytes.
	DraftBytes  int64 `json:"draft_bytes"`
	Opened      int64 `json:"opened_objects"`  // total of objects sent to clients as file descriptors
	Inline      int64 `json:"inline_objects"`  // total of objects sent to clients inside a reply
	InlineBytes int64 `json:"inline_bytes"`    // total of bytes sent to clients inside replies
	Created     int64 `json:"created_objects"` // total of drafts that clients have begun
	Committed   int64 `json:"committed_objects"`
	Aborted     int64 `json:"aborted_objects"`
	Listed      int64 `json:"listed_pages"`
	// Refused is the total of refused requests by error code. The map Refused has an entry for every code of
	// wire.Codes.
	Refused map[string]int64 `json:"refused"`
	// Moved holds the bytes and times of transfers that clients reported, sorted by direction, device, route and
	// stage.
	Moved []Moved `json:"moved"`
}

// Moved has the total bytes and the total time of one stage of transfers, as clients reported them.
type Moved struct {
	Direction string  `json:"direction"` // "read" or "write"
	Route     string  `json:"route"`
	Device    string  `json:"device"`
	Stage     string  `json:"stage"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`
}

// Stats returns the current values of the door's counters.
func (s *Server) Stats() Stats {
	c := &s.count
	out := Stats{
		Logins: c.logins.Load(), LoginsRefused: c.loginsRefused.Load(), Messages: c.messages.Load(),
		Handles: c.handles.Load(), HeldBytes: c.heldBytes.Load(), Drafts: c.drafts.Load(), DraftBytes: c.draftBytes.Load(),
		Opened: c.opened.Load(), Inline: c.inline.Load(), InlineBytes: c.inlineBytes.Load(), Created: c.created.Load(),
		Committed: c.committed.Load(), Aborted: c.aborted.Load(), Listed: c.listed.Load(), Refused: map[string]int64{},
		Moved: []Moved{},
	}
	s.mu.Lock()
	out.Connections = int64(len(s.conns))
	s.mu.Unlock()
	for code, n := range c.byCode {
		out.Refused[code] = n.Load()
	}
	c.mu.Lock()
	for k, v := range c.moved {
		out.Moved = append(out.Moved, Moved{k.direction, k.route, k.device, k.stage, v.bytes, v.time.Seconds()})
	}
	c.mu.Unlock()
	slices.SortFunc(out.Moved, func(a, b Moved) int {
		return cmp.Or(strings.Compare(a.Direction, b.Direction), strings.Compare(a.Device, b.Device),
			strings.Compare(a.Route, b.Route), strings.Compare(a.Stage, b.Stage))
	})
	return out
}

// counters are the numbers behind Stats.
type counters struct {
	messages, logins, loginsRefused     atomic.Int64
	handles, heldBytes                  atomic.Int64
	drafts, draftBytes                  atomic.Int64
	opened, inline, inlineBytes         atomic.Int64
	created, committed, aborted, listed atomic.Int64
	byCode                              map[string]*atomic.Int64 // not changed after init

	mu    sync.Mutex
	moved map[moveKey]*moveSum
}

type moveKey struct{ direction, route, device, stage string }

type moveSum struct {
	bytes int64
	time  time.Duration
}

func (c *counters) init() {
	c.moved = map[moveKey]*moveSum{}
	c.byCode = map[string]*atomic.Int64{}
	for _, code := range wire.Codes() {
		c.byCode[code] = &atomic.Int64{}
	}
}

func (c *counters) refused(code string) {
	if n := c.byCode[code]; n != nil {
		n.Add(1)
	}
}

func (c *counters) held(n, bytes int64) {
	c.handles.Add(n)
	c.heldBytes.Add(bytes)
}

func (c *counters) drafting(n, bytes int64) {
	c.drafts.Add(n)
	c.draftBytes.Add(bytes)
}

// Other is the metric label that replaces the name of a route, device or stage that the door does not know. The label
// Other keeps clients from creating new metric labels.
const Other = "other"

// These constants bound the values of one report, so that one client cannot distort the totals for long.
const (
	maxReportedBytes = 1 << 50
	maxReportedTime  = 24 * time.Hour
	maxLabelledGPU   = wire.MaxDevices
)

// report adds a client's reports to the totals. If one report is out of bounds, none is added.
func (c *counters) report(all []wire.Report) *wire.Error {
	if e := believable(all); e != nil {
		return e
	}
	c.add(all)
	return nil
}

// believable refuses reports if one of them is out of bounds.
func believable(all []wire.Report) *wire.Error {
	for i := range all {
		if r := &all[i]; r.Bytes < 0 || r.Bytes > maxReportedBytes || r.Time < 0 || r.Time > maxReportedTime {
			return invalid(wire.CodeInvalidArgument, "report bytes and time of one transfer",
				"a report has %d bytes in %v, expected up to %d in %v", r.Bytes, r.Time, int64(maxReportedBytes), maxReportedTime)
		}
	}
	return nil
}

// add adds reports that are within bounds to the totals.
func (c *counters) add(all []wire.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range all {
		r := &all[i]
		k := moveKey{"read", routeLabel(r.Route), deviceLabel(r.Device), stageLabel(r.Stage)}
		if r.Write {
			k.direction = "write"
		}
		v := c.moved[k]
		if v == nil {
			v = &moveSum{}
			c.moved[k] = v
		}
		v.bytes = add(v.bytes, r.Bytes)
		v.time = add(v.time, r.Time)
	}
}

// add returns a+b, or the largest number if the sum overflows.
func add[T ~int64](a, b T) T {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Routes returns the names of the routes that have their own metric label.
func Routes() []string {
	return []string{"page_cache", "buffered", "buffered_unproven", "direct", "direct_unproven",
		"shared_memory", "cufile_p2p", "cufile_nvfs", "cufile_compat", "cufile_unknown", "socket", "network", "peer_p2p",
		"peer_staging", "peer_memory"}
}

// Stages returns the names of the stages that have their own metric label.
func Stages() []string { return []string{"read", "copy", "write", "verify", "commit", "total"} }

func routeLabel(s string) string {
	if s == "" {
		return "none"
	}
	return oneOf(s, Routes())
}

func stageLabel(s string) string { return oneOf(s, Stages()) }

func deviceLabel(s string) string {
	if s == "host" {
		return s
	}
	if number, ok := strings.CutPrefix(s, "cuda:"); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < maxLabelledGPU && strconv.Itoa(n) == number {
			return s
		}
	}
	return Other
}

func oneOf(s string, known []string) string {
	if slices.Contains(known, s) {
		return s
	}
	return Other
}
