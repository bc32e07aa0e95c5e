// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/effort"
)

var host = wire.Device{Index: -1}

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestLogin: who does not prove that it knows the secret gets nothing, and cannot tell why.
func TestLogin(t *testing.T) {
	log := &lockedLog{}
	d := serve(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	wrong, unknown := d.dial().prove(testKey, "another secret"), d.dial().prove("nobody", testSecret)
	if wrong == nil || unknown == nil || *wrong != *unknown || wrong.Code != wire.CodeAccessDenied ||
		errs.Kind(wrong.Kind) != errs.Permission || wrong.Fix == "" {
		t.Errorf("wrong secret: %+v, unknown key: %+v", wrong, unknown)
	}
	c := d.dial()
	if e := c.prove(testKey, "another secret"); e == nil {
		t.Fatal("a wrong secret is taken")
	}
	if e := c.ended(); e != nil {
		t.Errorf("%+v", e)
	}
	for _, want := range []string{"access_key=nobody", fmt.Sprintf("pid=%d", os.Getpid()),
		fmt.Sprintf("uid=%d", os.Getuid()), "gid=", "agent=test"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}

	// A proof that was heard on another connection is worth nothing: each has a challenge of its own.
	a, b := d.dial(), d.dial()
	m, _ := a.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version})
	heard := proofOf(a.c, m.(*wire.Challenge), testKey, testSecret)
	if m, _ := b.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version}); m.Type() != wire.TypeChallenge {
		t.Fatalf("%+v", m)
	}
	if m, _ := b.ask(heard); !isError(m, wire.CodeAccessDenied) {
		t.Errorf("a proof of another connection: %+v", m)
	}
	if m, _ := a.ask(heard); m.Type() != wire.TypeGreeting {
		t.Errorf("%+v", m)
	}

	// Versions.
	for _, v := range [][2]uint16{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {5, 9}, {9, 4}} {
		if m, _ := d.dial().ask(&wire.Hello{Min: v[0], Max: v[1]}); !isError(m, wire.CodeVersion) ||
			!strings.Contains(m.(*wire.Error).Message, "4 to 4") {
			t.Errorf("versions %v: %+v", v, m)
		}
	}
	if m, _ := d.dial().ask(&wire.Hello{Min: 0, Max: 65535}); m.Type() != wire.TypeChallenge ||
		m.(*wire.Challenge).Version != wire.Version {
		t.Errorf("%+v", m)
	}

	// Requests before the login, and messages of it afterwards.
	for _, m := range []wire.Message{&wire.Ping{}, &wire.Open{}, &wire.Proof{}, &wire.Greeting{}} {
		c := d.dial()
		c.send(m)
		if e := c.ended(); e == nil || e.Code != wire.CodeBadMessage {
			t.Errorf("%v first: %+v", m.Type(), e)
		}
	}
	for _, m := range []wire.Message{&wire.Hello{}, &wire.Ack{}, &wire.Opened{}, &wire.Error{}} {
		c := d.login()
		c.send(m)
		if e := c.ended(); e == nil || e.Code != wire.CodeBadMessage {
			t.Errorf("%v afterwards: %+v", m.Type(), e)
		}
	}
	if st := d.s.Stats(); st.LoginsRefused < 6 || st.Logins != 5 {
		t.Errorf("%+v", st)
	}
}

// TestWhoIsSilentAtTheDoorIsSentAway, and does not keep others out for long.
func TestWhoIsSilentAtTheDoorIsSentAway(t *testing.T) {
	effort.Slow(t)
	// On a busy machine, the login at the end may take seconds.
	d := serve(t, func(o *Options) { o.Limits.Login = 4 * time.Second; o.Limits.Logins = 2 })
	a, b := d.dial(), d.dial()
	for _, c := range []*wireConn{a, b} {
		if e := c.ended(); e == nil || e.Code != wire.CodeIdle {
			t.Errorf("%+v", e)
		}
	}
	waitFor(t, func() bool { return d.s.Stats().Connections == 0 })
	c := d.login()
	if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
}

// TestConnectionsAreBounded: those beyond the bound hear so.
func TestConnectionsAreBounded(t *testing.T) {
	d := serve(t, func(o *Options) { o.Limits.Connections, o.Limits.KeyConnections, o.Limits.UserConnections = 2, 2, 2 })
	a := d.login()
	d.login()
	if e := d.dial().ended(); e == nil || e.Code != wire.CodeTooManyConnections ||
		!strings.Contains(e.Fix, "gpudirect.max_connections") {
		t.Errorf("%+v", e)
	}
	_ = a.c.Close()
	waitFor(t, func() bool { return d.s.Stats().Connections == 1 })
	d.login()
}

// waitFor waits for what another goroutine is about to do.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("it did not come about within 30 s")
		}
		<-time.After(time.Millisecond)
	}
}

// TestASilentConnectionEnds, with the reason, unless Ping keeps it.
func TestASilentConnectionEnds(t *testing.T) {
	effort.Slow(t)
	const idle = 4 * time.Second // on a busy machine, seconds may pass before the request
	d := serve(t, func(o *Options) { o.Limits.Idle = idle })
	d.store.put("b", "big", random(20000))
	c := d.login()
	if c.g.Idle != idle {
		t.Errorf("the greeting says %v", c.g.Idle)
	}
	c.open(wire.WantBuffered, item("big"))
	if e := c.ended(); e == nil || e.Code != wire.CodeIdle || !strings.Contains(e.Fix, "Ping") {
		t.Errorf("%+v", e)
	}
	waitFor(t, func() bool { h, _ := d.store.held(); return h == 0 })
}

// TestEveryRefusalSaysWhatToDo goes through the errors of every request.
func TestEveryRefusalSaysWhatToDo(t *testing.T) {
	var gpus atomic.Int64
	d := serve(t, func(o *Options) {
		o.Settings.Devices = []int{1, 3}
		o.Devices = func(uuid string) (int, bool) { gpus.Add(1); return 3, uuid == "GPU-third" }
		o.Limits.Handles, o.Limits.DraftBytes = 3, 100
	})
	d.store.put("b", "k", random(3<<20))
	d.store.put("b", "secret/k", random(10))
	d.store.put("b", "bad", random(20000))
	d.store.damage("bad")
	c := d.login()
	one := func(i wire.OpenItem) *wire.Error {
		items, _ := c.open(wire.WantBuffered, i)
		if e := items[0].Err; e != nil {
			return e
		}
		if m, _ := c.ask(&wire.Close{Handles: []uint64{items[0].Handle}}); m.Type() != wire.TypeAck {
			t.Errorf("%+v", m)
		}
		return nil
	}
	for _, x := range []struct {
		i    wire.OpenItem
		code string
	}{
		{wire.OpenItem{Bucket: "other", Key: "k", N: -1}, wire.CodeNoSuchBucket},
		{item("missing"), wire.CodeNoSuchKey},
		{item("secret/k"), wire.CodeAccessDenied},
		{item("bad"), wire.CodeDamaged},
		{wire.OpenItem{Bucket: "b", Key: "k", Version: "v7", N: -1}, wire.CodeNoSuchVersion},
		{wire.OpenItem{Bucket: "b", Key: "k", Off: -1, N: -1}, wire.CodeInvalidRange},
		{wire.OpenItem{Bucket: "b", Key: "k", Off: 3<<20 + 1, N: -1}, wire.CodeInvalidRange},
		{wire.OpenItem{Bucket: "b", Key: "k", Off: 1, N: 3 << 20}, wire.CodeInvalidRange},
		{wire.OpenItem{Bucket: "b", Key: "k", Off: 1 << 62, N: 1 << 62}, wire.CodeInvalidRange},
		{wire.OpenItem{Bucket: "b", Key: "k", Off: 0, N: -2}, wire.CodeInvalidRange},
	} {
		if e := one(x.i); e == nil || e.Code != x.code || e.Message == "" || e.Fix == "" || e.Kind == 0 {
			t.Errorf("%+v: %+v, expected %s", x.i, e, x.code)
		}
	}
	for _, ok := range []wire.OpenItem{{Bucket: "b", Key: "k", Off: 3 << 20, N: -1},
		{Bucket: "b", Key: "k", Off: 3 << 20, N: 0}, {Bucket: "b", Key: "k", Off: 5, N: 7}} {
		if e := one(ok); e != nil {
			t.Errorf("%+v: %+v", ok, e)
		}
	}

	// Devices.
	ask := func(m wire.Message) wire.Message { r, _ := c.ask(m); return r }
	open := func(dev wire.Device) wire.Message {
		return ask(&wire.Open{Want: wire.WantStat, Device: dev, Items: []wire.OpenItem{item("k")}})
	}
	for _, dev := range []wire.Device{{Index: 0}, {Index: 0, UUID: "GPU-unknown"}, {Index: -2},
		{Index: -1, UUID: "GPU-unknown"}} {
		if m := open(dev); !isError(m, wire.CodeDeviceNotAllowed) ||
			!strings.Contains(m.(*wire.Error).Fix, "gpudirect.device_ids") {
			t.Errorf("%+v: %+v", dev, m)
		}
	}
	for _, dev := range []wire.Device{host, {Index: 1}, {Index: 0, UUID: "GPU-third"}} {
		if m := open(dev); m.Type() != wire.TypeOpened {
			t.Errorf("%+v: %+v", dev, m)
		}
	}
	if gpus.Load() == 0 {
		t.Error("nobody asked for the GPU's index")
	}

	// Requests about handles.
	items, _ := c.open(wire.WantBuffered, item("k"))
	h := items[0].Handle
	for _, x := range []struct {
		m    wire.Message
		code string
	}{
		{&wire.Move{Handle: 99, Device: host}, wire.CodeNoSuchHandle},
		{&wire.Move{Handle: h, Device: wire.Device{Index: 7}}, wire.CodeDeviceNotAllowed},
		{&wire.Move{Handle: h, Device: host, Ranges: []wire.Range{{Off: 0, N: 1}, {Off: 3 << 20, N: 1}}},
			wire.CodeInvalidRange},
		{&wire.Move{Handle: h, Device: host, Ranges: []wire.Range{{Off: -1, N: 1}}}, wire.CodeInvalidRange},
		{&wire.Sums{Handle: 99}, wire.CodeNoSuchHandle},
		{&wire.Sums{Handle: h, First: 4}, wire.CodeInvalidRange},
		{&wire.Sums{Handle: h, First: -1, N: 3}, wire.CodeInvalidRange},
		{&wire.Sums{Handle: h, N: -1}, wire.CodeInvalidRange},
		{&wire.Close{Handles: []uint64{99}}, wire.CodeNoSuchHandle},
		{&wire.Close{Reports: []wire.Report{{Bytes: -1}}}, wire.CodeInvalidArgument},
		{&wire.AddSums{Handle: h}, wire.CodeNoSuchHandle},
		{&wire.Commit{Handle: h}, wire.CodeNoSuchHandle},
		{&wire.Abort{Handle: h}, wire.CodeNoSuchHandle},
		{&wire.List{Bucket: "other"}, wire.CodeNoSuchBucket},
		{&wire.List{Bucket: "b", Prefix: "secret/"}, wire.CodeAccessDenied},
		{&wire.Create{Bucket: "b", Key: "secret/x", Size: 1, Device: host, Want: 1}, wire.CodeAccessDenied},
		{&wire.Create{Bucket: "b", Key: "readonly/x", Size: 1, Device: host, Want: 1}, wire.CodeAccessDenied},
		{&wire.Create{Bucket: "other", Key: "x", Size: 1, Device: host, Want: 1}, wire.CodeNoSuchBucket},
		{&wire.Create{Bucket: "b", Key: "full", Size: 1, Device: host, Want: 1}, wire.CodeNoSpace},
		{&wire.Create{Bucket: "b", Key: "x", Size: 101, Device: host, Want: 1}, wire.CodeTooLarge},
		{&wire.Create{Bucket: "b", Key: "x", Size: 1, Device: wire.Device{Index: 0}, Want: 1}, wire.CodeDeviceNotAllowed},
		{&wire.Create{Bucket: "b", Key: "x", Size: 1, Device: host, Want: 1, ContentType: "a\nb"}, wire.CodeInvalidArgument},
		{&wire.Create{Bucket: "b", Key: "x", Size: 1, Device: host, Want: 1, Metadata: []wire.Pair{{Name: "a"}, {Name: "a"}}},
			wire.CodeInvalidArgument},
		{&wire.Create{Bucket: "b", Key: "x", Size: -1, Device: host, Want: 1}, wire.CodeBadMessage},
		{&wire.Create{Bucket: "b", Key: "x", Size: 1, Device: host, Want: 0}, wire.CodeBadMessage},
		{&wire.Open{Want: 0x80, Device: host, Items: []wire.OpenItem{item("k")}}, wire.CodeBadMessage},
		{&wire.Open{Want: 1, Device: host}, wire.CodeBadMessage},
	} {
		if m := ask(x.m); !isError(m, x.code) {
			t.Errorf("%+v: %+v, expected %s", x.m, m, x.code)
		}
	}
	if m := ask(&wire.Close{Handles: []uint64{h, 99}}); !isError(m, wire.CodeNoSuchHandle) {
		t.Errorf("%+v", m)
	}
	if n, _ := d.store.held(); n != 0 {
		t.Errorf("a Close with one wrong handle left %d", n)
	}
	blind := d.dial()
	if e := blind.prove("blind", testSecret); e != nil {
		t.Fatal(e)
	}
	if m, _ := blind.ask(&wire.List{Bucket: "b"}); !isError(m, wire.CodeAccessDenied) {
		t.Errorf("%+v", m)
	}
	st := d.s.Stats()
	if st.Refused[wire.CodeNoSuchKey] != 1 || st.Refused[wire.CodeDeviceNotAllowed] != 6 ||
		st.Refused[wire.CodeAccessDenied] != 5 {
		t.Errorf("%v", st.Refused)
	}
}

// TestBoundsOfAnAccessKey hold for all its connections together, and what is let go can be had again.
func TestBoundsOfAnAccessKey(t *testing.T) {
	d := serve(t, func(o *Options) { o.Limits.Handles, o.Limits.DraftBytes = 3, 100 })
	d.store.put("b", "k", random(20000))
	a, b := d.login(), d.login()
	items, _ := a.open(wire.WantBuffered, item("k"), item("k"), item("k"), item("k"))
	if items[2].Err != nil || items[3].Err == nil || items[3].Err.Code != wire.CodeTooManyHandles ||
		!strings.Contains(items[3].Err.Fix, "gpudirect.max_handles") {
		t.Fatalf("%+v", items)
	}
	if items, _ := b.open(wire.WantBuffered, item("k")); items[0].Err == nil {
		t.Error("another connection has a bound of its own")
	}
	if items, _ := b.open(wire.WantStat, item("k")); items[0].Err != nil {
		t.Errorf("what holds nothing is refused: %+v", items[0].Err)
	}
	if m, _ := a.ask(&wire.Close{Handles: []uint64{items[0].Handle, items[1].Handle}}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
	create := func(c *wireConn, size int64) wire.Message {
		m, _ := c.ask(&wire.Create{Bucket: "b", Key: "x", Size: size, Device: host, Want: 1})
		return m
	}
	first := create(b, 60)
	if first.Type() != wire.TypeCreated {
		t.Fatalf("%+v", first)
	}
	if m := create(a, 41); !isError(m, wire.CodeTooLarge) {
		t.Errorf("%+v", m)
	}
	if m, _ := b.ask(&wire.Move{Handle: first.(*wire.Created).Handle, Device: host,
		Ranges: []wire.Range{{Off: 0, N: 61}}}); !isError(m, wire.CodeInvalidRange) {
		t.Errorf("a range beyond the draft: %+v", m)
	}
	if m, _ := b.ask(&wire.Close{Handles: []uint64{first.(*wire.Created).Handle}}); !isError(m, wire.CodeNoSuchHandle) {
		t.Errorf("a draft is closed as an object: %+v", m)
	}
	for _, m := range []wire.Message{
		&wire.AddSums{Handle: first.(*wire.Created).Handle, First: 1, Sums: []uint64{1}},
		&wire.AddSums{Handle: first.(*wire.Created).Handle, Sums: []uint64{1, 2}},
		&wire.Commit{Handle: first.(*wire.Created).Handle, First: 1, Size: 10},
		&wire.Commit{Handle: first.(*wire.Created).Handle, Size: 10, Sums: []uint64{1, 2}},
	} {
		if r, _ := b.ask(m); !isError(r, wire.CodeBadSums) {
			t.Errorf("%+v: %+v", m, r)
		}
	}
	if m, _ := b.ask(&wire.Commit{Handle: first.(*wire.Created).Handle, Size: 61}); !isError(m, wire.CodeInvalidRange) {
		t.Errorf("more is committed than was asked for: %+v", m)
	}
	_ = b.c.Close()
	waitFor(t, func() bool { _, n := d.store.held(); return n == 0 && d.s.Stats().DraftBytes == 0 })
	if m := create(a, 100); m.Type() != wire.TypeCreated {
		t.Errorf("what a connection that ended had reserved is not free: %+v", m)
	}
}

// TestRangesBeyondATransfer: the first is granted as far as allowed, others are asked for, each within the bound.
func TestRangesBeyondATransfer(t *testing.T) {
	d := serve(t, nil) // 4 MiB
	d.store.put("b", "k", random(9<<20+3))
	c := d.login()
	items, _ := c.open(wire.WantBuffered|wire.WantSums, item("k"))
	o := items[0]
	if o.N != 4<<20 || len(o.Sums) != 10 {
		t.Errorf("%d bytes are granted with %d sums", o.N, len(o.Sums))
	}
	ranges := []wire.Range{{Off: 4 << 20, N: 4 << 20}, {Off: 8 << 20, N: 1<<20 + 3}}
	if m, _ := c.ask(&wire.Move{Handle: o.Handle, Device: host, Ranges: ranges}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
	ranges[0].N++
	if m, _ := c.ask(&wire.Move{Handle: o.Handle, Device: host, Ranges: ranges}); !isError(m, wire.CodeTooLarge) ||
		!strings.Contains(m.(*wire.Error).Fix, "max_transfer_size") {
		t.Errorf("%+v", m)
	}
	if items, _ := c.open(wire.WantBuffered, wire.OpenItem{Bucket: "b", Key: "k", N: 5 << 20}); items[0].Err == nil ||
		items[0].Err.Code != wire.CodeTooLarge {
		t.Errorf("%+v", items[0])
	}
	items, _ = c.open(wire.WantBuffered|wire.WantSums, wire.OpenItem{Bucket: "b", Key: "k", Off: 2<<20 + 5, N: 1 << 20})
	if o := items[0]; o.SumsFirst != 2 || len(o.Sums) != 2 || o.Off != 2<<20+5 || o.N != 1<<20 {
		t.Errorf("%+v", o)
	}
}

// TestNoWayPastThePageCache is told, and no failure; other failures are.
func TestNoWayPastThePageCache(t *testing.T) {
	d := serve(t, nil)
	d.store.put("b", "k", random(20000))
	d.store.refuseDirect(errs.New(errs.Unsupported, "open", "k", "tmpfs has no O_DIRECT"))
	c := d.login()
	items, files := c.open(wire.WantBuffered|wire.WantDirect, item("k"))
	if o := items[0]; o.Has != wire.WantBuffered || len(files) != 1 || !strings.Contains(o.Refused, "tmpfs") {
		t.Errorf("%+v", o)
	}
	d.store.refuseDirect(&errs.Error{Op: "open", Err: unix.EMFILE})
	if items, _ := c.open(wire.WantBuffered|wire.WantDirect, item("k")); items[0].Err == nil ||
		items[0].Err.Code != wire.CodeTooManyFiles {
		t.Errorf("%+v", items[0])
	}
	if h, _ := d.store.held(); h != 1 {
		t.Errorf("%d handles are held", h)
	}
}

// TestWritesCanBeRefusedAsAWhole: the greeting says so, and so does Create.
func TestWritesCanBeRefusedAsAWhole(t *testing.T) {
	d := serve(t, func(o *Options) { o.Settings.NoWrites = "overlayfs cannot tell" })
	c := d.login()
	if c.g.Writes || !strings.Contains(c.g.WritesWhy, "overlayfs") {
		t.Errorf("%+v", c.g)
	}
	if m, _ := c.ask(&wire.Create{Bucket: "b", Key: "x", Size: 1, Device: host, Want: 1}); !isError(m,
		wire.CodeUnsupported) || !strings.Contains(m.(*wire.Error).Message, "overlayfs") {
		t.Errorf("%+v", m)
	}
}

// TestAnAccountThatChangesLosesItsConnections at their next request.
func TestAnAccountThatChangesLosesItsConnections(t *testing.T) {
	var secret atomic.Pointer[string]
	first := testSecret
	secret.Store(&first)
	d := serve(t, func(o *Options) { o.Secret = func(string) (string, bool) { return *secret.Load(), true } })
	c := d.login()
	if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
		t.Fatalf("%+v", m)
	}
	second := "changed"
	secret.Store(&second)
	if m, _ := c.ask(&wire.Ping{}); !isError(m, wire.CodeAccessDenied) {
		t.Errorf("%+v", m)
	}
	if e := c.ended(); e != nil {
		t.Errorf("%+v", e)
	}
}

// TestListing: pages, common prefixes, and pages that do not fit into a message.
func TestListing(t *testing.T) {
	d := serve(t, nil)
	want := map[string]bool{}
	for i := range 600 {
		key := fmt.Sprintf("%s-%03d", strings.Repeat("k", 900), i)
		if i%3 == 0 {
			key = fmt.Sprintf("%s-%03d/x", strings.Repeat("k", 900), i)
			want[strings.TrimSuffix(key, "x")] = true
		} else {
			want[key] = true
		}
		d.store.put("b", key, nil)
	}
	c := d.login()
	after, pages := "", 0
	for {
		m, _ := c.ask(&wire.List{Bucket: "b", Delimiter: "/", After: after})
		l, ok := m.(*wire.Listed)
		if !ok {
			t.Fatalf("%+v", m)
		}
		pages++
		for _, o := range l.Items {
			if !want[o.Key] {
				t.Fatalf("%s is listed twice or does not exist", o.Key[895:])
			}
			delete(want, o.Key)
		}
		for _, p := range l.Prefixes {
			if !want[p] {
				t.Fatalf("prefix %s is listed twice or does not exist", p[895:])
			}
			delete(want, p)
		}
		if !l.Truncated {
			break
		}
		after = l.Next
	}
	if len(want) > 0 || pages < 4 {
		t.Errorf("%d are missing after %d pages", len(want), pages)
	}
	if m, _ := c.ask(&wire.List{Bucket: "b", Limit: 7}); len(m.(*wire.Listed).Items) != 7 || !m.(*wire.Listed).Truncated {
		t.Errorf("%+v", m)
	}
}

// TestReportsCannotMakeLabels: names that are not on the list are counted together.
func TestReportsCannotMakeLabels(t *testing.T) {
	d := serve(t, nil)
	c := d.login()
	var reports []wire.Report
	for i := range 200 {
		reports = append(reports, wire.Report{Write: true, Device: fmt.Sprintf("cuda:%d", 64+i), Route: fmt.Sprint("r", i),
			Stage: fmt.Sprint("s", i), Bytes: 1 << 50, Time: time.Hour})
	}
	for range 100 {
		if m, _ := c.ask(&wire.Close{Reports: reports}); m.Type() != wire.TypeAck {
			t.Fatalf("%+v", m)
		}
	}
	st := d.s.Stats()
	if len(st.Moved) != 1 || st.Moved[0].Device != Other || st.Moved[0].Route != Other || st.Moved[0].Stage != Other ||
		st.Moved[0].Direction != "write" || st.Moved[0].Bytes < 0 {
		t.Errorf("%+v", st.Moved)
	}
	for _, dev := range []string{"cuda:0", "cuda:63", "host"} {
		if deviceLabel(dev) != dev {
			t.Errorf("%s has no label", dev)
		}
	}
	for _, dev := range []string{"cuda:", "cuda:00", "cuda:-1", "cuda:64", "cuda:+1", "gpu", ""} {
		if deviceLabel(dev) != Other {
			t.Errorf("%s has a label", dev)
		}
	}
}

// TestTheSocket: it replaces what a process that is gone left, and nothing else.
func TestTheSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "gpudirect.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o666 || st.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := Listen(path); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a second server: %v", err)
	}
	// Gone without cleaning up.
	_ = l.sock.Close()
	again, err := Listen(path)
	if err != nil {
		t.Fatalf("over a socket that is left: %v", err)
	}
	if c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	_ = l.Close() // of the first one: the name is the second one's
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first took the second one's name along: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("over a file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "mine" {
		t.Error("a file was replaced")
	}
	for _, bad := range []string{"relative.sock", filepath.Join(dir, "no", "such", "dir", "s"),
		filepath.Join(dir, strings.Repeat("x", 108-len(dir)))} {
		if _, err := Listen(bad); err == nil || !strings.Contains(err.Error(), "gpudirect.socket") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	exact := filepath.Join(dir, strings.Repeat("x", MaxPath-len(dir)-1))
	if l, err := Listen(exact); err != nil || len(exact) != MaxPath {
		t.Errorf("%d bytes: %v", len(exact), err)
	} else {
		_ = l.Close()
	}
}

// TestOptionsAreNeeded: a door without a judge does not open.
func TestOptionsAreNeeded(t *testing.T) {
	if _, err := New(Options{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}

// TestErrorsOfStoresHaveCodes: each sentinel of object, however it is wrapped, and what no sentinel is.
func TestErrorsOfStoresHaveCodes(t *testing.T) {
	for _, x := range []struct {
		err  error
		code string
	}{
		{object.Fail("x", "y", object.ErrNoSpace, ""), wire.CodeNoSpace},
		{fmt.Errorf("x: %w", object.ErrTooLarge), wire.CodeTooLarge}, {object.ErrInvalidName, wire.CodeInvalidName},
		{object.ErrIsMarker, wire.CodeDeleteMarker}, {object.ErrReadOnly, wire.CodeReadOnly},
		{object.ErrClosed, wire.CodeDraining}, {object.ErrPrecondition, wire.CodePreconditionFailed},
		{errs.New(errs.Unsupported, "a", "b", "c"), wire.CodeUnsupported},
		{errs.New(errs.Permission, "a", "b", "c"), wire.CodeInternal},
		{errs.New(errs.Corrupt, "a", "b", "c"), wire.CodeDamaged},
		{errs.New(errs.Invalid, "a", "b", "c"), wire.CodeInvalidArgument},
		{errs.New(errs.Cancelled, "a", "b", "c"), wire.CodeDraining},
		{errs.New(errs.NotFound, "a", "b", "c"), wire.CodeNoSuchKey},
		{errors.New("odd"), wire.CodeInternal}, {unix.EIO, wire.CodeInternal}, {unix.ENFILE, wire.CodeTooManyFiles},
	} {
		if e := failure(x.err); e.Code != x.code || e.Kind != uint8(errs.KindOf(x.err)) {
			t.Errorf("%v: %+v, expected %s", x.err, e, x.code)
		}
	}
	if e := denied(errs.New(errs.Permission, "a", "b", "c")); e.Code != wire.CodeAccessDenied || e.Fix == "" {
		t.Errorf("%+v", e)
	}
	e := failure(errs.New(errs.IO, "read", "x", strings.Repeat("é", 4000)).WithFix("buy a disk"))
	if len(e.Message) > wire.MaxText || strings.Contains(e.Message, "buy") || e.Fix != "buy a disk" ||
		strings.HasSuffix(e.Message, "\xc3") {
		t.Errorf("%d bytes, fix %q", len(e.Message), e.Fix)
	}
}
