// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// changing are rules that can turn against everybody, and tell the last thing that they were asked.
type changing struct {
	rules
	deny atomic.Bool
	last atomic.Pointer[object.Access]
}

func (c *changing) Authorize(ctx context.Context, a object.Access) error {
	c.last.Store(&a)
	if c.deny.Load() {
		return errs.New(errs.Permission, string(a.Action), a.Bucket+"/"+a.Key, "is allowed no more")
	}
	return c.rules.Authorize(ctx, a)
}

// TestACommitIsJudgedAnew: a draft lives for as long as its client wants, and rules change meanwhile.
func TestACommitIsJudgedAnew(t *testing.T) {
	judge := &changing{}
	d := serve(t, func(o *Options) { o.Authorizer = judge })
	c := d.login()
	r, files := c.ask(&wire.Create{Bucket: "b", Key: "new", Size: 0, Device: host, Want: wire.WantBuffered})
	created, ok := r.(*wire.Created)
	if !ok {
		t.Fatalf("%+v", r)
	}
	_ = files[0].Close()
	judge.deny.Store(true)
	if r, _ := c.ask(&wire.Commit{Handle: created.Handle}); !isError(r, wire.CodeAccessDenied) {
		t.Fatalf("what is not allowed any more was committed: %+v", r)
	}
	judge.deny.Store(false)
	if items, _ := c.open(wire.WantStat, item("new")); items[0].Err == nil {
		t.Error("the object is visible")
	}
	if r, _ := c.ask(&wire.Commit{Handle: created.Handle}); !isError(r, wire.CodeNoSuchHandle) {
		t.Errorf("the draft is left: %+v", r)
	}
	if st := d.s.Stats(); st.Drafts != 0 || st.DraftBytes != 0 || st.Aborted != 1 {
		t.Errorf("%+v", st)
	}
	if _, drafts := d.store.held(); drafts != 0 {
		t.Errorf("%d drafts are left", drafts)
	}
}

// TestAnEmptyETagIsNoLackOfACondition: nothing matches it, so nothing is overwritten.
func TestAnEmptyETagIsNoLackOfACondition(t *testing.T) {
	d := serve(t, nil)
	d.store.put("b", "there", random(10))
	c := d.login()
	r, _ := c.ask(&wire.Create{Bucket: "b", Key: "there", Size: 1, Device: host, Want: wire.WantBuffered, IfMatch: `""`})
	if !isError(r, wire.CodePreconditionFailed) {
		t.Errorf("%+v", r)
	}
}

// TestReportsOfACommitCountOnce, however often it has to be tried.
func TestReportsOfACommitCountOnce(t *testing.T) {
	d := serve(t, nil)
	c := d.login()
	r, files := c.ask(&wire.Create{Bucket: "b", Key: "new", Size: 5, Device: host, Want: wire.WantBuffered})
	data := []byte("bytes")
	if _, err := files[0].Write(data); err != nil {
		t.Fatal(err)
	}
	commit := &wire.Commit{Handle: r.(*wire.Created).Handle, Size: 5, CRC64: sumOf(data), Sums: []uint64{sumOf(data)},
		Reports: []wire.Report{{Write: true, Device: "host", Route: "buffered", Stage: "write", Bytes: 5, Time: time.Second}}}
	for range 3 {
		if r, _ := c.ask(commit); !isError(r, wire.CodeWriterLeft) {
			t.Fatalf("%+v", r)
		}
	}
	_ = files[0].Close()
	if r, _ := c.ask(commit); r.Type() != wire.TypeCommitted {
		t.Fatalf("%+v", r)
	}
	if m := d.s.Stats().Moved; len(m) != 1 || m[0].Bytes != 5 || m[0].Seconds != 1 {
		t.Errorf("5 bytes were written in 1 s, counted are %+v", m)
	}
}

// TestAListingIsJudgedAsAWhole: policies may speak of its delimiter and of its length.
func TestAListingIsJudgedAsAWhole(t *testing.T) {
	judge := &changing{}
	d := serve(t, func(o *Options) { o.Authorizer = judge })
	c := d.login()
	if r, _ := c.ask(&wire.List{Bucket: "b", Prefix: "dir/", Delimiter: "/", Limit: 7}); r.Type() != wire.TypeListed {
		t.Fatalf("%+v", r)
	}
	want := object.Access{Account: testKey, Action: object.ActionList, Bucket: "b", Key: "dir/", Delimiter: "/", Limit: 7}
	if got := *judge.last.Load(); got != want {
		t.Errorf("asked for %+v, expected %+v", got, want)
	}
}

// TestTheSocketOfAnotherServiceStays, also where that speaks another kind of socket.
func TestTheSocketOfAnotherServiceStays(t *testing.T) {
	dir, err := os.MkdirTemp("", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(path); !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" {
		if l != nil {
			_ = l.Close()
		}
		t.Errorf("the socket of a running service was replaced: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the service cannot be reached any more: %v", err)
	} else {
		_ = c.Close()
	}
	other.SetUnlinkOnClose(false)
	_ = other.Close()
	l, err := Listen(path)
	if err != nil {
		t.Fatalf("over a stream socket that nobody listens on: %v", err)
	}
	_ = l.Close()
}

// TestTheLogIsNotTheClients: what they can bring about over and over fills no log.
func TestTheLogIsNotTheClients(t *testing.T) {
	var lines counter
	d := serve(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&lines, nil)) })
	d.store.put("b", "bad", random(10))
	d.store.damage("bad")
	c := d.login()
	items := make([]wire.OpenItem, 1000)
	for i := range items {
		items[i] = item("bad")
	}
	began := time.Now()
	for range 3 {
		if got, _ := c.open(wire.WantBuffered, items...); got[999].Err == nil || got[999].Err.Code != wire.CodeDamaged {
			t.Fatalf("%+v", got[999])
		}
	}
	if n, most := lines.Load(), (2+int64(time.Since(began)/time.Second))*linesPerSecond+1; n > most || n < 2 {
		t.Errorf("3000 failures made %d lines, expected up to %d", n, most)
	}
}

// counter counts writes.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) { c.Add(1); return len(p), nil }

// TestManyComeAtOnce: all of them log in, as long as there is room for them.
func TestManyComeAtOnce(t *testing.T) {
	d := serve(t, nil)
	var all []*wireConn
	for range 100 {
		c := d.dial()
		c.send(&wire.Hello{Min: wire.MinVersion, Max: wire.Version, Agent: "one of many"})
		all = append(all, c)
	}
	for i, c := range all {
		_, m, _, err := c.receive()
		ch, ok := m.(*wire.Challenge)
		if err != nil || !ok {
			t.Fatalf("client %d: %+v, %v", i, m, err)
		}
		if m, _ := c.ask(proofOf(c.c, ch, testKey, testSecret)); m.Type() != wire.TypeGreeting {
			t.Fatalf("client %d: %+v", i, m)
		}
	}
	for _, c := range all {
		_ = c.c.Close()
	}
	waitFor(t, func() bool { return d.s.Stats().Connections == 0 })
	d.s.nobodyLeft(t)
}

// TestTheLastWordIsHeard, whatever the client had sent before: the kernel tells who is hung up on with something unread
// of a reset.
func TestTheLastWordIsHeard(t *testing.T) {
	d := serve(t, func(o *Options) { o.Limits.Connections = 1 })
	c := d.login()
	for range 50 {
		x := d.dial()
		// Without Fatal: it may be too late for it.
		b, _ := wire.Append(nil, wire.Header{Request: 1}, &wire.Hello{Min: wire.MinVersion, Max: wire.Version})
		_, _ = x.c.Write(b)
		if _, m, _, err := x.receive(); err != nil || !isError(m, wire.CodeTooManyConnections) {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	// A message that makes no sense, and others behind it.
	for range 20 {
		_, _ = c.c.Write([]byte{255, 0, 0, 0, 1, 0, 0, 0})
	}
	if _, m, _, err := c.receive(); err != nil || !isError(m, wire.CodeBadMessage) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestACommitThatMakesNoSenseEndsTheDraft, as every refusal does but those that say that it stays: its client has
// forgotten it.
func TestACommitThatMakesNoSenseEndsTheDraft(t *testing.T) {
	d := serve(t, nil)
	c := d.login()
	for _, commit := range []wire.Commit{{Size: 11}, {Size: -1}, {Reports: []wire.Report{{Bytes: -1}}}} {
		r, files := c.ask(&wire.Create{Bucket: "b", Key: "new", Size: 10, Device: host, Want: wire.WantBuffered})
		_ = files[0].Close()
		commit.Handle = r.(*wire.Created).Handle
		if r, _ := c.ask(&commit); r.Type() != wire.TypeError {
			t.Fatalf("%+v", r)
		}
		if _, drafts := d.store.held(); drafts != 0 || d.s.Stats().Drafts != 0 {
			t.Errorf("%+v: the draft is left", commit)
		}
	}
}
