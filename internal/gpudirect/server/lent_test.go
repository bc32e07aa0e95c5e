// SPDX-License-Identifier: Apache-2.0

package server

import (
	"math/bits"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/test/effort"
)

// TestDescriptorsThatWaitAreBounded: many clients that do not take their replies cannot use up the descriptors of the
// process.
func TestDescriptorsThatWaitAreBounded(t *testing.T) {
	effort.Slow(t)
	open := func(send time.Duration) (*door, func()) {
		d := serve(t, func(o *Options) {
			o.Limits.Descriptors, o.Limits.KeyDescriptors, o.Limits.Handles = 20, 20, 1<<20
			o.Limits.Send = send
		})
		d.store.put("b", "big", random(20000))
		_ = d.login().c.Close() // it serves now
		waitFor(t, func() bool { return d.s.Stats().Connections == 0 })
		return d, leakless(t)
	}
	batch := &wire.Open{Want: wire.WantBuffered | wire.WantDirect, Device: host}
	for range 1000 {
		batch.Items = append(batch.Items, item("big"))
	}
	// On a busy machine, seconds may pass until this test reads a reply. The server must not end the connection before.
	d, clean := open(4 * time.Second)
	// A batch comes whole, in more packets than usual.
	c := d.login()
	items, files := c.open(batch.Want, batch.Items[:300]...)
	n := 0
	for _, i := range items {
		if i.Err != nil {
			t.Fatalf("%+v", i.Err)
		}
		n += bits.OnesCount8(i.Has)
	}
	if len(items) != 300 || len(files) != n {
		t.Errorf("%d objects and %d descriptors, expected 300 and %d", len(items), len(files), n)
	}
	for _, f := range files {
		_ = f.Close()
	}
	_ = c.c.Close()
	// Where none is to be had, it is said, once for the whole batch, and the connection stays.
	for range cap(d.s.lent) {
		d.s.lent <- struct{}{}
	}
	c = d.login()
	items, _ = c.open(batch.Want, batch.Items...)
	if len(items) != len(batch.Items) || items[0].Err == nil || items[0].Err.Code != wire.CodeTooManyFiles ||
		items[0].Err.Fix == "" {
		t.Errorf("%d items, %+v", len(items), items[0].Err)
	}
	for range cap(d.s.lent) {
		<-d.s.lent
	}
	items, files = c.open(wire.WantBuffered, item("big"))
	if items[0].Err != nil || len(files) != 1 {
		t.Fatalf("%+v", items[0].Err)
	}
	_ = files[0].Close()
	_ = c.c.Close()
	waitFor(t, func() bool { return d.s.Stats().Connections == 0 })
	clean()
	d, clean = open(time.Second)
	var lazy []*wireConn
	for range 8 {
		c := d.login()
		lazy = append(lazy, c)
		b, _ := wire.Append(nil, wire.Header{Request: 1}, batch)
		for range 30 {
			_ = c.c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := c.c.Write(b); err != nil {
				break
			}
		}
	}
	waitFor(t, func() bool { return d.s.Stats().Connections == 0 }) // they were ended
	for _, c := range lazy {
		_ = c.c.Close()
	}
	if n := len(d.s.lent); n != 0 {
		t.Errorf("%d entries are taken by nobody", n)
	}
	clean()
}

// TestDescriptorsOnTheirWay: those that one client does not take are counted against all of a user's, and cost another
// one its request, not its connection and what it holds. Root is not counted.
func TestDescriptorsOnTheirWay(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may have any number on their way")
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	d := serve(t, func(o *Options) {
		o.Limits.Descriptors, o.Limits.KeyDescriptors = 64, 1<<20
		o.Limits.Send = 5 * time.Second
	})
	d.store.put("b", "big", random(20000))
	lazy, busy := d.login(), d.login()
	r, files := busy.ask(&wire.Create{Bucket: "b", Key: "new", Size: 0, Device: host, Want: wire.WantBuffered})
	draft, ok := r.(*wire.Created)
	if !ok {
		t.Fatalf("%+v", r)
	}
	_ = files[0].Close()
	low := old
	low.Cur = 128
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	var items []wire.OpenItem
	for range 20 {
		items = append(items, item("big"))
	}
	for range 10 { // of which not all come on their way
		lazy.send(&wire.Open{Want: wire.WantBuffered, Device: host, Items: items})
	}
	waitFor(t, func() bool { return d.s.Stats().Refused[wire.CodeTooManyFiles] > 0 })
	if items, _ := busy.open(wire.WantBuffered, item("big")); items[0].Err == nil ||
		items[0].Err.Code != wire.CodeTooManyFiles || items[0].Err.Fix == "" {
		t.Errorf("%+v", items[0])
	}
	if r, _ := busy.ask(&wire.Create{Bucket: "b", Key: "other", Size: 0, Device: host,
		Want: wire.WantBuffered}); !isError(r, wire.CodeTooManyFiles) {
		t.Errorf("%+v", r)
	}
	if r, _ := busy.ask(&wire.Commit{Handle: draft.Handle}); r.Type() != wire.TypeCommitted {
		t.Errorf("%+v", r)
	}
	_ = lazy.c.Close()
	waitFor(t, func() bool { return d.s.Stats().Connections == 1 })
	if items, files := busy.open(wire.WantBuffered, item("big")); items[0].Err != nil || len(files) != 1 {
		t.Errorf("%+v", items[0].Err)
	}
}
