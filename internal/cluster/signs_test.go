// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// firstByte is the deadline of the tests for a sign of a member. Only the test's own clock ends it.
const firstByte = 1234 * time.Hour

// clock replaces the deadline for a sign of a member. The other deadlines are those of the operating system.
type clock struct {
	late  func(f func()) // called with the function of each deadline for a sign
	reset chan struct{}  // gets a value for each sign, as long as there is room
}

type clockTimer struct{ c *clock }

func (clockTimer) Stop() bool { return true }

func (t clockTimer) Reset(time.Duration) bool {
	select {
	case t.c.reset <- struct{}{}:
	default:
	}
	return true
}

func (c *clock) after(d time.Duration, f func()) timer {
	if d != firstByte {
		return time.AfterFunc(d, f)
	}
	c.late(f)
	return clockTimer{c}
}

// hung is a listener of a process that hangs: connections are accepted, and nobody reads them.
type hung struct {
	net.Listener
	asked chan struct{} // closed when a connection was accepted
	once  sync.Once
}

func (h *hung) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h.once.Do(func() { close(h.asked) })
	return &deaf{Conn: c, closed: make(chan struct{})}, nil
}

type deaf struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (d *deaf) Read([]byte) (int, error) {
	<-d.closed
	return 0, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// three starts three nodes. The first one has the clock.
func three(t *testing.T, c *clock, owner Extents, change func(*Options)) *Node {
	t.Helper()
	k := testKey(t)
	a := startNode(t, "node-0", k, &source{}, nil, func(o *Options) { o.Limits.FirstByte, o.after = firstByte, c.after })
	seeds := []string{a.list.LocalNode().Address()}
	b := startNode(t, "node-1", k, owner, nil, func(o *Options) {
		o.Seeds = seeds
		change(o)
	})
	d := startNode(t, "node-2", k, &source{}, nil, func(o *Options) { o.Seeds = seeds })
	for _, n := range []*Node{a, b, d} {
		waitMembers(t, n, 3)
	}
	return a
}

// TestAnOwnerThatHangs asks an owner that gossips and does not answer requests. The deadline for a sign of it ends,
// long before that for the first block, and the second owner gives the blocks.
func TestAnOwnerThatHangs(t *testing.T) {
	owner := &hung{asked: make(chan struct{})}
	var first sync.Once
	c := &clock{reset: make(chan struct{}, 1000), late: func(f func()) {
		first.Do(func() {
			go func() {
				<-owner.asked
				f()
			}()
		})
	}}
	a := three(t, c, &source{}, func(o *Options) {
		owner.Listener = o.Listener
		o.Listener = owner
	})
	id := pick(t, a, "node-1", "node-2", 5*mib)
	e, err := a.Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil || e.From() != "node-2" {
		t.Errorf("blocks came from %s, %v", e.From(), err)
	}
	if s := a.Status(); s.Members[1].Fetched.Errors != 1 || s.Members[1].State != StateAlive {
		t.Errorf("the owner that hangs: %+v", s.Members[1])
	}
}

// TestAnOwnerThatWaits asks an owner whose upstream is slow. The owner gives signs, each of which extends the deadline,
// and then the blocks.
func TestAnOwnerThatWaits(t *testing.T) {
	c := &clock{reset: make(chan struct{}, 1000), late: func(func()) {}}
	waits := &source{before: func(_ object.Identity, index int64) error {
		for range 3 {
			if index == 0 {
				<-c.reset
			}
		}
		return nil
	}}
	a := three(t, c, waits, func(o *Options) { o.Limits.FirstByte = 3 * time.Millisecond })
	id := pick(t, a, "node-1", "node-2", 5*mib)
	e, err := a.Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil || e.From() != "node-1" {
		t.Errorf("blocks came from %s, %v", e.From(), err)
	}
}
