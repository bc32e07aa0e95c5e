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

// Stats are the numbers of the door. A number that says "ever" counts from the start of the server.
type Stats struct {
	Connections   int64 `json:"connections"`     // open, those that log in included
	Logins        int64 `json:"logins"`          // ever
	LoginsRefused int64 `json:"logins_refused"`  // ever
	Messages      int64 `json:"messages"`        // of clients, refused ones and those of logins included, ever
	Handles       int64 `json:"handles"`         // objects that clients have open
	HeldBytes     int64 `json:"held_bytes"`      // content of the objects that clients have open
	Drafts        int64 `json:"drafts"`          // objects that clients write
	DraftBytes    int64 `json:"draft_bytes"`     // reserved for the objects that clients write
	Opened        int64 `json:"opened_objects"`  // handed out as files, ever
	Inline        int64 `json:"inline_objects"`  // handed out inside a reply, ever
	InlineBytes   int64 `json:"inline_bytes"`    // ever
	Created       int64 `json:"created_objects"` // drafts begun, ever
	Committed     int64 `json:"committed_objects"`
	Aborted       int64 `json:"aborted_objects"`
	Listed        int64 `json:"listed_pages"`
	// Refused counts refused requests by code. It has an entry for every code.
	Refused map[string]int64 `json:"refused"`
	// Moved is what clients report to have moved, sorted by its labels.
	Moved []Moved `json:"moved"`
}

// Moved is the bytes and the time of one stage of transfers, as clients reported them.
type Moved struct {
	Direction string  `json:"direction"` // read, write
	Route     string  `json:"route"`
	Device    string  `json:"device"`
	Stage     string  `json:"stage"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`
}

// Stats returns the present numbers.
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

// Other is the label of what a client calls by a name that is not on the list,
// so that clients cannot make labels.
const Other = "other"

// maxReported bounds what one report may add, so that one client cannot spoil the sums for long.
const (
	maxReportedBytes = 1 << 50
	maxReportedTime  = 24 * time.Hour
	maxLabelledGPU   = wire.MaxDevices
)

// report adds what a client says; nothing of it where a part makes no sense.
func (c *counters) report(all []wire.Report) *wire.Error {
	if e := believable(all); e != nil {
		return e
	}
	c.add(all)
	return nil
}

// believable refuses reports of which a part makes no sense.
func believable(all []wire.Report) *wire.Error {
	for i := range all {
		if r := &all[i]; r.Bytes < 0 || r.Bytes > maxReportedBytes || r.Time < 0 || r.Time > maxReportedTime {
			return invalid(wire.CodeInvalidArgument, "report bytes and time of one transfer",
				"a report has %d bytes in %v, expected up to %d in %v", r.Bytes, r.Time, int64(maxReportedBytes), maxReportedTime)
		}
	}
	return nil
}

// add adds reports that are believable.
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

// add stays at the largest number instead of beginning anew below zero.
func add[T ~int64](a, b T) T {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Routes are the names of routes that have a label of their own.
func Routes() []string {
	return []string{"page_cache", "buffered", "buffered_unproven", "direct", "direct_unproven",
		"cufile_p2p", "cufile_nvfs", "cufile_compat", "cufile_unknown", "socket", "network", "peer_p2p", "peer_staging",
		"peer_memory"}
}

// Stages are the names of stages that have a label of their own.
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
