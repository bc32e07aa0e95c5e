// SPDX-License-Identifier: Apache-2.0

package liar

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
)

// Fault is one way in which the proxy falsifies a reply.
type Fault int

// The faults. Faults of bodies concern replies to GET with status 200 or 206; other replies pass unchanged.
const (
	Honest      Fault = iota // the reply passes unchanged
	Delay                    // the first byte comes after the delay of the options
	HangHeader               // no byte of the reply comes
	HangBody                 // the headers and half of the body come, then nothing
	Cut                      // the connection is closed in mid-body
	Reset                    // the connection is reset in mid-body
	Refuse                   // the connection is reset before the first byte
	Whole                    // a range is answered with status 200
	WrongRange               // Content-Range names other bytes than those that follow
	WrongLength              // Content-Length and body lack the last byte
	Short                    // a body without Content-Length ends early, and ends properly
	Flip                     // one bit of the body is flipped
	WrongETag                // the ETag is another one
	NotModified              // the reply is 304, whatever was asked
	Unavailable              // the reply is 503 SlowDown
	faults                   // the number of faults
)

var faultNames = [faults]string{"honest", "delay", "hang-header", "hang-body", "cut", "reset", "refuse", "whole",
	"wrong-range", "wrong-length", "short", "flip", "wrong-etag", "not-modified", "unavailable"}

// String returns the name of the fault.
func (f Fault) String() string {
	if f < 0 || f >= faults {
		return "unknown fault"
	}
	return faultNames[f]
}

// All returns every fault but Honest.
func All() []Fault {
	var all []Fault
	for f := Honest + 1; f < faults; f++ {
		all = append(all, f)
	}
	return all
}

// Without returns every fault but Honest and those named.
func Without(not ...Fault) []Fault {
	var all []Fault
next:
	for _, f := range All() {
		for _, n := range not {
			if f == n {
				continue next
			}
		}
		all = append(all, f)
	}
	return all
}

// Plan chooses the fault of each request. A plan runs on the goroutines of the requests.
type Plan func(*http.Request) Fault

// Always returns a plan that falsifies each reply in the same way.
func Always(f Fault) Plan { return func(*http.Request) Fault { return f } }

// Script returns a plan that uses the faults in order and is honest afterwards. Only reads of objects use up a fault.
func Script(list ...Fault) Plan {
	var mu sync.Mutex
	return func(r *http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(list) == 0 || !readsObject(r) {
			return Honest
		}
		f := list[0]
		list = list[1:]
		return f
	}
}

// Random returns a plan that falsifies the given share of replies to reads of objects, each by one of the faults. The
// same seed gives the same choices in the same order of requests.
func Random(seed uint64, share float64, list ...Fault) Plan {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func(r *http.Request) Fault {
		if !readsObject(r) {
			return Honest
		}
		mu.Lock()
		defer mu.Unlock()
		if random.Float64() >= share {
			return Honest
		}
		return list[random.IntN(len(list))]
	}
}

// readsObject reports whether the request reads an object or its metadata, not a bucket or a setting.
func readsObject(r *http.Request) bool {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return key != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}
