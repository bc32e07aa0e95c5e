// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Limits of wrong keys. After perAddress wrong keys from one address, or perKey wrong secrets of one access key, no
// further keys are compared until the window has passed.
const (
	window      = 5 * time.Minute
	perAddress  = 10
	perKey      = 100
	mostGuarded = 4096 // entries that the guard keeps
	longestKey  = 128  // bytes of an access key that the guard keeps
)

// TooMany is the error of a log in after too many wrong keys.
type TooMany struct {
	After time.Duration // time after which the client may try again
}

// Error returns the reason and the time to wait.
func (e *TooMany) Error() string {
	return fmt.Sprintf("log in: there were too many wrong keys; try again in %v", e.After.Round(time.Second))
}

// Unwrap returns an error of kind Permission.
func (e *TooMany) Unwrap() error {
	return errs.New(errs.Permission, "log in", "", "there were too many wrong keys").WithFix("wait, then try again")
}

// guard counts wrong keys by address and by access key. It counts a try before the keys are compared, so that many
// tries at the same time are not more than the limit.
type guard struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]*tries
}

type tries struct {
	n   int
	end time.Time // when the tries are forgotten
}

func newGuard(now func() time.Time) *guard { return &guard{now: now, all: map[string]*tries{}} }

// names returns the entries that count a try, with their limits.
func names(accessKey, from string) [2]struct {
	name  string
	limit int
} {
	if len(accessKey) > longestKey {
		accessKey = accessKey[:longestKey]
	}
	return [2]struct {
		name  string
		limit int
	}{{"from " + network(from), perAddress}, {"key " + accessKey, perKey}}
}

// network returns the part of an address that one client controls: an IPv4 address, or the /64 network of an IPv6
// address.
func network(from string) string {
	a, err := netip.ParseAddr(from)
	if err != nil {
		return from
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// try counts a try, or fails if there were too many.
func (g *guard) try(accessKey, from string) error {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	both := names(accessKey, from)
	for _, e := range both {
		if t := g.all[e.name]; t != nil && now.Before(t.end) && t.n >= e.limit {
			return &TooMany{After: max(t.end.Sub(now), time.Second)}
		}
	}
	for _, e := range both {
		t := g.all[e.name]
		if t == nil || !now.Before(t.end) {
			g.makeRoom(now)
			t = &tries{end: now.Add(window)}
			g.all[e.name] = t
		}
		t.n++
	}
	return nil
}

// succeeded takes back the try of a log in with right keys.
func (g *guard) succeeded(accessKey, from string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range names(accessKey, from) {
		if t := g.all[e.name]; t != nil && t.n > 0 {
			t.n--
		}
	}
}

// makeRoom removes what is over, and the oldest entry if there are too many.
func (g *guard) makeRoom(now time.Time) {
	if len(g.all) < mostGuarded {
		return
	}
	oldest, end := "", time.Time{}
	for name, t := range g.all {
		if !now.Before(t.end) {
			delete(g.all, name)
		} else if oldest == "" || t.end.Before(end) {
			oldest, end = name, t.end
		}
	}
	if len(g.all) >= mostGuarded {
		delete(g.all, oldest)
	}
}
