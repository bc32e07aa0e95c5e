// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// onDisk serves a store on disk, whose drafts are looked at when tick is called.
func onDisk(t *testing.T, change func(*Options)) (d *door, st *disk.Store, tick func()) {
	t.Helper()
	st, err := disk.Open(t.Context(), disk.Options{Dir: t.TempDir(), Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := st.CanDraft(t.Context()); err != nil {
		t.Skipf("the store has no drafts here: %v", err)
	}
	ticks := make(chan time.Time)
	d = serve(t, func(o *Options) {
		o.Store, o.Watch = st, ticks
		if change != nil {
			change(o)
		}
	})
	return d, st, func() {
		for range 2 { // the second is taken when the first was acted on
			ticks <- time.Time{}
		}
	}
}

func (c *wireConn) create(key string, size int64) (*wire.Created, *os.File) {
	c.t.Helper()
	r, files := c.ask(&wire.Create{Bucket: "b", Key: key, Size: size, Device: host, Want: wire.WantBuffered})
	made, ok := r.(*wire.Created)
	if !ok {
		c.t.Fatalf("create: %+v", r)
	}
	return made, files[0]
}

func (d *door) accountOf(key string) (handles, drafts int64) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if c := d.s.crowd.clients[key]; c != nil {
		handles, drafts = c.handles.Load(), c.drafts.Load()
	}
	return handles, drafts
}

// TestADraftThatOutgrowsItsAnnouncement is ended with its connection, takes nothing of the disk afterwards however long
// somebody writes, and stays on the books of its access key until nobody can.
func TestADraftThatOutgrowsItsAnnouncement(t *testing.T) {
	log := &lockedLog{}
	d, st, tick := onDisk(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	other := d.login()
	fair, fairFile := other.create("fair", 1<<20)
	c := d.login()
	_, file := c.create("grows", 1<<20)
	grow := func(n int64) {
		t.Helper()
		if _, err := file.WriteAt(make([]byte, n), 0); err != nil {
			t.Fatal(err)
		}
	}
	takes := func() int64 {
		t.Helper()
		s, err := st.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.DraftBytes
	}
	grow(1 << 20)
	tick()
	if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
		t.Fatalf("a draft of its size: %+v", m)
	}
	grow(32 << 20)
	tick()
	if e := c.ended(); e == nil || e.Code != wire.CodeTooLarge || e.Fix == "" {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(log.String(), "grew beyond") || !strings.Contains(log.String(), "key=grows") {
		t.Errorf("the log does not tell:\n%s", log)
	}
	waitFor(t, func() bool { return d.s.Stats().Drafts == 1 })
	if n := takes(); n > 4<<20 {
		t.Errorf("drafts take %d bytes after it was ended", n)
	}
	// Its descriptor is still there, and what it writes is taken away again.
	for range 3 {
		grow(16 << 20)
		tick()
		if n := takes(); n > 4<<20 {
			t.Errorf("drafts take %d bytes", n)
		}
	}
	if h, b := d.accountOf(testKey); h != 2 || b != 2<<20 {
		t.Errorf("%d drafts of %d bytes are on the books, expected both", h, b)
	}
	_ = file.Close()
	tick()
	if h, b := d.accountOf(testKey); h != 1 || b != 1<<20 {
		t.Errorf("%d drafts of %d bytes are on the books, expected one", h, b)
	}
	// The other one is as it was.
	data := random(1 << 20)
	if _, err := fairFile.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	_ = fairFile.Close()
	if m, _ := other.ask(&wire.Commit{Handle: fair.Handle, Size: 1 << 20, CRC64: sumOf(data),
		Sums: []uint64{sumOf(data)}}); m.Type() != wire.TypeCommitted {
		t.Errorf("%+v", m)
	}
	if _, err := st.Stat(t.Context(), object.Ref{Bucket: "b", Key: "grows"}); err == nil {
		t.Error("the draft that outgrew itself was published")
	}
}

// TestDescriptorsOfAbortedDraftsCount: who aborts drafts and keeps their descriptors has them on its books, also when
// it comes back.
func TestDescriptorsOfAbortedDraftsCount(t *testing.T) {
	d, st, tick := onDisk(t, func(o *Options) { o.Limits.Handles = 3 })
	c := d.login()
	var kept []*os.File
	for range 3 {
		made, file := c.create("k", 1<<20)
		if m, _ := c.ask(&wire.Abort{Handle: made.Handle}); m.Type() != wire.TypeAck {
			t.Fatalf("%+v", m)
		}
		kept = append(kept, file)
	}
	for range 2 {
		if m, _ := c.ask(&wire.Create{Bucket: "b", Key: "k", Size: 1, Device: host, Want: wire.WantBuffered}); !isError(m,
			wire.CodeTooManyHandles) {
			t.Errorf("%+v", m)
		}
		_ = c.c.Close()
		waitFor(t, func() bool { return d.s.Stats().Connections == 0 })
		c = d.login()
	}
	for _, f := range kept {
		if _, err := f.WriteAt(make([]byte, 1<<20), 0); err != nil {
			t.Fatal(err)
		}
	}
	tick()
	if s, err := st.Stats(); err != nil || s.DraftBytes != 0 || s.DraftFiles != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, f := range kept {
		_ = f.Close()
	}
	tick()
	if h, b := d.accountOf(testKey); h != 0 || b != 0 {
		t.Errorf("%d, %d", h, b)
	}
	_, file := c.create("k", 1)
	_ = file.Close()
	_ = c.c.Close()
	d.s.nobodyLeft(t)
}

// TestWhoCanReopenIsTold: root and the server's own user hear of a protection that is missing, and the log does.
func TestWhoCanReopenIsTold(t *testing.T) {
	log := &lockedLog{}
	d := serve(t, func(o *Options) {
		o.Log, o.Reopenable = slog.New(slog.NewTextHandler(log, nil)), "no CAP_SYS_ADMIN"
	})
	if c := d.login(); len(c.g.Notes) != 1 || !strings.Contains(c.g.Notes[0], "no CAP_SYS_ADMIN") {
		t.Errorf("%q", c.g.Notes)
	}
	if !strings.Contains(log.String(), "CAP_SYS_ADMIN") {
		t.Errorf("the log does not tell:\n%s", log)
	}
	if c := serve(t, nil).login(); len(c.g.Notes) != 0 {
		t.Errorf("%q", c.g.Notes)
	}
}
