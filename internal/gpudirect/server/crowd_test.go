// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/test/effort"
)

// nobodyLeft checks that no connection is on the books.
func (s *Server) nobodyLeft(t testing.TB) {
	t.Helper()
	waitFor(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 0 && s.crowd.logins.Len() == 0 && len(s.crowd.users) == 0 && len(s.crowd.clients) == 0
	})
}

// twoKeys lets a second access key in.
func twoKeys(o *Options) {
	o.Secret = func(key string) (string, bool) { return testSecret, key == testKey || key == "other" }
}

func (d *door) loginAs(key string) *wireConn {
	d.t.Helper()
	c := d.dial()
	if e := c.prove(key, testSecret); e != nil {
		d.t.Fatalf("login as %s: %+v", key, e)
	}
	return c
}

// TestSilentConnectionsKeepNobodyOut: as many as fit, of the same user, and those who speak log in meanwhile.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	d := serve(t, func(o *Options) {
		o.Limits.Connections, o.Limits.Logins, o.Limits.Login = 64, 8, time.Hour
	})
	var silent []*wireConn
	for i := range 200 {
		c := d.dial()
		if i%2 == 0 {
			c.send(&wire.Hello{Min: wire.MinVersion, Max: wire.Version}) // and no more
		}
		silent = append(silent, c)
		if i%20 == 19 {
			c := d.login()
			if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
				t.Fatalf("after %d silent ones: %+v", i, m)
			}
			_ = c.c.Close()
		}
	}
	if e := silent[0].ended(); e == nil || e.Code != wire.CodeTooManyConnections || e.Fix == "" {
		t.Errorf("who gave way: %+v", e)
	}
	waitFor(t, func() bool { return d.s.Stats().Connections <= 8 })
	for _, c := range silent {
		_ = c.c.Close()
	}
	d.s.nobodyLeft(t)
}

// TestOneUserLeavesRoom: no user of this host takes all connections. Silent ones give way; those that are in stay.
func TestOneUserLeavesRoom(t *testing.T) {
	d := serve(t, func(o *Options) {
		twoKeys(o)
		o.Limits.Connections, o.Limits.UserConnections, o.Limits.KeyConnections, o.Limits.Login = 8, 4, 8, time.Hour
	})
	all := []*wireConn{d.login(), d.login(), d.login()}
	d.dial() // silent: it gives way
	all = append(all, d.login())
	if e := d.dial().ended(); e == nil || e.Code != wire.CodeTooManyConnections || !strings.Contains(e.Message, "user") {
		t.Errorf("%+v", e)
	}
	for i, c := range all {
		if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
			t.Errorf("connection %d: %+v", i, m)
		}
	}
}

// TestOneKeyLeavesRoom: an access key that takes all it may have does not keep another one out.
func TestOneKeyLeavesRoom(t *testing.T) {
	d := serve(t, func(o *Options) { twoKeys(o); o.Limits.Connections = 32 })
	d.store.put("b", "big", random(20000))
	other := d.loginAs("other")
	var in []*wireConn
	refused := 0
	for range 40 {
		c := d.dial()
		if e := c.prove(testKey, testSecret); e != nil {
			if e.Code != wire.CodeTooManyConnections || e.Fix == "" {
				t.Fatalf("%+v", e)
			}
			refused++
			_ = c.c.Close()
			continue
		}
		in = append(in, c)
		if items, _ := other.open(wire.WantBuffered, item("big")); items[0].Err != nil {
			t.Fatalf("%+v", items[0].Err)
		}
	}
	if len(in) != 16 || refused != 24 {
		t.Errorf("%d are in and %d refused, expected 16 and 24", len(in), refused)
	}
	d.loginAs("other")
	_ = in[0].c.Close()
	waitFor(t, func() bool { return d.s.Stats().Connections == 17 })
	d.login()
}

// TestReadersThatReadNothing: connections of one key that take no reply cannot keep the descriptors of another, neither
// those that wait to be sent nor those on their way; also after they were ended, and also where they come back.
func TestReadersThatReadNothing(t *testing.T) {
	effort.Slow(t)
	d := serve(t, func(o *Options) {
		twoKeys(o)
		o.Limits.Descriptors, o.Limits.Handles, o.Limits.Send = 64, 1<<20, time.Second
	})
	d.store.put("b", "big", random(20000))
	other := d.loginAs("other")
	batch := &wire.Open{Want: wire.WantBuffered, Device: host}
	for range 500 {
		batch.Items = append(batch.Items, item("big"))
	}
	packet, err := wire.Append(nil, wire.Header{Request: 1}, batch)
	if err != nil {
		t.Fatal(err)
	}
	var lazy []*wireConn
	for range 40 {
		c := d.login()
		lazy = append(lazy, c)
		_ = c.c.SetWriteDeadline(time.Now().Add(time.Second))
		for range 3 {
			if _, err := c.c.Write(packet); err != nil {
				break
			}
		}
		if items, files := other.open(wire.WantBuffered, item("big")); items[0].Err != nil || len(files) != 1 {
			t.Fatalf("beside %d: %+v", len(lazy), items[0].Err)
		}
	}
	waitFor(t, func() bool { return d.s.Stats().Connections < 41 }) // who has some on their way and takes none is ended
	on := func() (n int64) {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		if c := d.s.crowd.clients[testKey]; c != nil {
			n = c.untaken.Load()
		}
		return n
	}
	if n := on(); n == 0 || n > 16 {
		t.Errorf("%d descriptors are on their way, expected 1 to 16", n)
	}
	// Ended, but not gone: what is on its way is still counted, and whoever comes back hears of it.
	again := d.login()
	if items, _ := again.open(wire.WantBuffered, item("big")); items[0].Err == nil ||
		items[0].Err.Code != wire.CodeTooManyFiles || items[0].Err.Fix == "" {
		t.Errorf("%+v", items[0])
	}
	if r, _ := again.ask(&wire.Create{Bucket: "b", Key: "n", Device: host, Want: wire.WantBuffered}); !isError(r,
		wire.CodeTooManyFiles) {
		t.Errorf("%+v", r)
	}
	for _, c := range lazy {
		_ = c.c.Close()
	}
	waitFor(t, func() bool { return on() == 0 })
	if items, files := again.open(wire.WantBuffered, batch.Items...); items[499].Err != nil || len(files) != 500 {
		t.Errorf("%+v, %d files", items[499].Err, len(files))
	}
	_ = again.c.Close()
	_ = other.c.Close()
	d.s.nobodyLeft(t)
	if n := len(d.s.lent); n != 0 {
		t.Errorf("%d entries are taken by nobody", n)
	}
}

// TestRefusedDescriptorsAreNeverCounted lets several connections of one access key ask for descriptors when none is
// left. The count stays at the limit.
func TestRefusedDescriptorsAreNeverCounted(t *testing.T) {
	const most = 4
	var cl client
	cl.untaken.Store(most)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200_000 {
				if ok, n := cl.reserve(1, most), cl.untaken.Load(); ok || n != most {
					t.Errorf("reserved: %v; %d descriptors are counted, expected %d", ok, n, most)
					return
				}
			}
		})
	}
	all.Wait()
}
