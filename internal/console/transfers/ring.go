// SPDX-License-Identifier: Apache-2.0

// Package transfers keeps the recent transfers of a server for the console: those of S3 requests, and those that
// clients of the GPUDirect door reported.
package transfers

import (
	"sync"
	"time"
)

// Source names the front end that a transfer went through.
type Source string

// The sources of transfers.
const (
	S3   Source = "s3"
	Door Source = "door"
)

// Transfer is one finished transfer of content.
type Transfer struct {
	ID        int64     `json:"id"` // rises with every transfer
	At        time.Time `json:"at"` // end of the transfer
	Seconds   float64   `json:"seconds"`
	Source    Source    `json:"source"`
	Operation string    `json:"operation"`
	Direction string    `json:"direction"` // "read" or "write", as the client sees it
	Bucket    string    `json:"bucket"`
	Key       string    `json:"key"`
	Objects   int       `json:"objects"` // number of objects; Key is the first
	Account   string    `json:"account"`
	Client    string    `json:"client"`
	Status    int       `json:"status"` // HTTP status; 0 for transfers of the door
	Error     string    `json:"error,omitempty"`
	Bytes     int64     `json:"bytes"`
	Rate      float64   `json:"rate"` // bytes per second
	Routes    []Route   `json:"routes"`
	Stages    []Stage   `json:"stages"`
	Limit     *Limit    `json:"limit"` // nil if the stages do not tell
	Why       []Reason  `json:"why"`
}

// Route has the bytes that took one route.
type Route struct {
	Route  string `json:"route"`
	Device string `json:"device"`
	Bytes  int64  `json:"bytes"`
}

// Stage has the work of one stage of a transfer. Stages overlap, so their times can add up to more than the transfer's.
type Stage struct {
	Stage   string  `json:"stage"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the time of the transfer
}

// Limit is the stage that was busy for the largest share of the transfer.
type Limit struct {
	Stage string  `json:"stage"`
	Share float64 `json:"share"`
	Text  string  `json:"text"`
}

// Reason says why a transfer was not faster, and what to do.
type Reason struct {
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

// Most is the number of transfers that a Ring keeps.
const Most = 1000

// Ring keeps the last transfers. A Ring is safe for concurrent use. A transfer is described only when it is listed,
// because a server can finish many thousand transfers per second.
type Ring struct {
	mu   sync.Mutex
	all  []kept // in the order of their IDs, from position next on when the ring is full
	next int
	last int64
}

// kept is a transfer as it was observed: either an S3 request or a report.
type kept struct {
	id      int64
	request Request
	report  *Report
	write   bool // direction of the report
}

// AddRequest keeps an S3 request in place of the oldest transfer. Requests that move no content are not kept.
func (r *Ring) AddRequest(q *Request) {
	if q.moved() {
		r.add(kept{request: *q})
	}
}

// AddReport keeps what a client of the door reported: one transfer for its reads and one for its writes. The Ring keeps
// the Report, so the caller does not change it any more.
func (r *Ring) AddReport(p *Report) {
	for _, write := range []bool{false, true} {
		if p.moved(write) {
			r.add(kept{report: p, write: write})
		}
	}
}

func (r *Ring) add(k kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	k.id = r.last
	if len(r.all) < Most {
		r.all = append(r.all, k)
		return
	}
	r.all[r.next] = k
	r.next = (r.next + 1) % Most
}

// transfer describes a kept transfer.
func (k *kept) transfer() Transfer {
	var t Transfer
	if k.report != nil {
		t = k.report.transfer(k.write)
	} else {
		t = k.request.transfer()
	}
	t.ID = k.id
	return t
}

func (k *kept) account() string {
	if k.report != nil {
		return k.report.Account
	}
	return k.request.Account
}

func (k *kept) source() Source {
	if k.report != nil {
		return Door
	}
	return S3
}

// Query selects transfers.
type Query struct {
	// Account selects the transfers of one account, unless Everybody is set.
	Account   string
	Everybody bool
	Source    Source // empty means all
	After     int64  // only transfers with a higher ID
	Limit     int    // at most this many
}

// List returns the selected transfers, newest first.
func (r *Ring) List(q Query) []Transfer {
	var found []kept
	r.mu.Lock()
	for i := range r.all {
		k := &r.all[(r.next+2*len(r.all)-1-i)%len(r.all)]
		if k.id <= q.After || len(found) >= q.Limit {
			break
		}
		if (q.Everybody || k.account() == q.Account) && (q.Source == "" || k.source() == q.Source) {
			found = append(found, *k)
		}
	}
	r.mu.Unlock()
	out := make([]Transfer, 0, len(found))
	for i := range found {
		out = append(out, found[i].transfer())
	}
	return out
}

// Dropped returns how many transfers the ring no longer has.
func (r *Ring) Dropped() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last - int64(len(r.all))
}
