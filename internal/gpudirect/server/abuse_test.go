// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/test/effort"
)

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// leakless notes what the process has now and returns a check that it has no more of it.
func leakless(t testing.TB) func() {
	t.Helper()
	fds, routines := descriptors(t), runtime.NumGoroutine()
	return func() {
		t.Helper()
		waitFor(t, func() bool { return descriptors(t) <= fds && runtime.NumGoroutine() <= routines })
	}
}

// chatter sends messages that make some sense, some that make none, and some that are none.
type chatter struct {
	r *mrand.Rand
}

func (c *chatter) text(all ...string) string { return all[c.r.IntN(len(all))] }

func (c *chatter) number() int64 {
	return []int64{0, 1, -1, 7, 100, 4096, 1 << 20, 3 << 20, 1 << 40, 1<<63 - 1, -1 << 63}[c.r.IntN(11)]
}

func (c *chatter) device() wire.Device {
	if c.r.IntN(3) > 0 {
		return host
	}
	return wire.Device{Index: int32(c.number()), UUID: c.text("", "GPU-1")}
}

func (c *chatter) sums() []uint64 { return make([]uint64, c.r.IntN(4)) }

func (c *chatter) reports() []wire.Report {
	var all []wire.Report
	for range c.r.IntN(3) {
		all = append(all, wire.Report{Device: c.text("host", "cuda:0", "x"), Route: c.text("direct", "y"),
			Stage: c.text("read", "z"), Bytes: c.number(), Time: time.Duration(c.number())})
	}
	return all
}

func (c *chatter) message() wire.Message {
	handle := uint64(c.r.IntN(12))
	switch c.r.IntN(14) {
	case 0, 1, 2, 3:
		m := &wire.Open{Want: uint8(c.r.IntN(40)), Device: c.device()}
		for range c.r.IntN(6) {
			m.Items = append(m.Items, wire.OpenItem{Bucket: c.text("b", "b", "b", "nope"),
				Key: c.text("big", "small", "missing", "secret/k", ""), Version: c.text("", "", "null", "v"), Off: c.number(),
				N: c.number()})
		}
		return m
	case 4:
		return &wire.Move{Handle: handle, Device: c.device(), Ranges: []wire.Range{{Off: c.number(), N: c.number()}}}
	case 5:
		return &wire.Sums{Handle: handle, First: c.number(), N: c.number()}
	case 6:
		return &wire.Close{Handles: []uint64{handle, handle + 1}, Reports: c.reports()}
	case 7, 8:
		return &wire.Create{Bucket: c.text("b", "nope"), Key: c.text("new", "readonly/x", "full"), Size: c.number(),
			Device: c.device(), Want: uint8(c.r.IntN(5)), IfNoneMatch: c.text("", "*"), Source: uint64(c.r.IntN(3)),
			Grows: c.r.IntN(2) == 0}
	case 9:
		return &wire.AddSums{Handle: handle, First: c.number(), Sums: c.sums()}
	case 10:
		return &wire.Commit{Handle: handle, Size: c.number(), First: c.number(), Sums: c.sums(), Reports: c.reports()}
	case 11:
		return &wire.Abort{Handle: handle}
	case 12:
		return &wire.List{Bucket: c.text("b", "nope"), Prefix: c.text("", "s"), Delimiter: c.text("", "/"),
			Limit: uint32(c.number())}
	}
	return &wire.Ping{}
}

// packet is a message as it is, changed in a few places, cut, or nothing but noise.
func (c *chatter) packet(request uint32) []byte {
	b, err := wire.Append(nil, wire.Header{Request: request}, c.message())
	if err != nil {
		panic(err)
	}
	switch c.r.IntN(100) {
	case 0: // any byte
		for range 1 + c.r.IntN(4) {
			b[c.r.IntN(len(b))] = byte(c.r.Uint32())
		}
	case 1:
		b = b[:c.r.IntN(len(b))+1]
	case 2:
		b = append(b, make([]byte, c.r.IntN(300))...)
	case 3:
		b = make([]byte, 1+c.r.IntN(2000))
		for i := range b {
			b[i] = byte(c.r.Uint32())
		}
	}
	return b
}

// takeAll reads replies until the connection ends, and closes the descriptors that come.
func takeAll(c *net.UnixConn) {
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))
	for {
		_, n, _, _, err := c.ReadMsgUnix(buf, oob)
		if n > 0 {
			if cms, err := unix.ParseSocketControlMessage(oob[:n]); err == nil {
				for _, cm := range cms {
					fds, _ := unix.ParseUnixRights(&cm)
					for _, fd := range fds {
						_ = unix.Close(fd)
					}
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// logIn does so without a test's helpers, for many goroutines.
func logIn(c *net.UnixConn) error {
	buf := make([]byte, 4096)
	exchange := func(m wire.Message) (wire.Message, error) {
		b, err := wire.Append(nil, wire.Header{Request: 1}, m)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write(b); err != nil {
			return nil, err
		}
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		_, r, err := wire.Decode(buf[:n])
		return r, err
	}
	m, err := exchange(&wire.Hello{Min: wire.MinVersion, Max: wire.Version})
	if err != nil {
		return err
	}
	ch, ok := m.(*wire.Challenge)
	if !ok {
		return errors.New("no challenge")
	}
	if m, err = exchange(proofOf(c, ch, testKey, testSecret)); err == nil && m.Type() != wire.TypeGreeting {
		err = errors.New("not greeted")
	}
	return err
}

// TestSenselessMessages sends random messages, changed ones and noise from several clients at once. The server
// answers on, holds nothing of those that are gone, and has every descriptor and goroutine back.
func TestSenselessMessages(t *testing.T) {
	const clients, perConnection = 4, 100
	total := int64(effort.Rounds{Test: 25_000, CI: 100_000}.Of(t))
	d := serve(t, nil)
	d.store.put("b", "big", random(3<<20))
	d.store.put("b", "small", []byte("small"))
	c := d.login() // before the count: what a first connection leaves in the runtime is no leak
	clean := leakless(t)
	var connections atomic.Int64
	var all sync.WaitGroup
	for w := range clients {
		all.Go(func() {
			ch := &chatter{mrand.New(mrand.NewPCG(uint64(w), 99))}
			for d.s.Stats().Messages < total {
				conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: d.path, Net: "unixpacket"})
				if err != nil {
					t.Error(err)
					return
				}
				connections.Add(1)
				if ch.r.IntN(20) > 0 { // else without a login
					if err := logIn(conn); err != nil {
						t.Errorf("login: %v", err)
						_ = conn.Close()
						return
					}
				}
				done := make(chan struct{})
				go func() { defer close(done); takeAll(conn) }()
				for i := range uint32(perConnection) {
					if _, err := conn.Write(ch.packet(i + 1)); err != nil {
						break // the server has ended it
					}
				}
				_ = conn.CloseWrite() // what was sent is answered; closed at once, the rest of it would be lost
				<-done
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	t.Logf("%d messages over %d connections", d.s.Stats().Messages, connections.Load())
	if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
	waitFor(t, func() bool { h, n := d.store.held(); return h == 0 && n == 0 && d.s.Stats().Connections == 1 })
	clean()
	st := d.s.Stats()
	if st.Handles != 0 || st.HeldBytes != 0 || st.Drafts != 0 || st.DraftBytes != 0 || st.Opened == 0 || st.Created == 0 ||
		st.Refused[wire.CodeBadMessage] == 0 || st.Refused[wire.CodeInternal] != 0 {
		t.Errorf("%+v", st)
	}
	_, files := c.open(wire.WantBuffered, item("big"))
	if b, err := io.ReadAll(files[0]); err != nil || !bytes.Equal(b, random(3<<20)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestNoiseOverAStoreOnDisk: the same, shorter, over the store that is served, which stays sound.
func TestNoiseOverAStoreOnDisk(t *testing.T) {
	dir := t.TempDir()
	st, err := disk.Open(t.Context(), disk.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: "b", ETag: object.ETagMD5}); err != nil {
		t.Fatal(err)
	}
	for key, n := range map[string]int{"big": 3 << 20, "small": 100} {
		if _, err := st.Put(t.Context(), object.Put{Bucket: "b", Key: key, Size: int64(n),
			Body: bytes.NewReader(random(n))}); err != nil {
			t.Fatal(err)
		}
	}
	d := serve(t, func(o *Options) { o.Store = st; o.Limits.DraftBytes = 16 << 20 })
	c := d.login()
	var all sync.WaitGroup
	for w := range 3 {
		all.Go(func() {
			ch := &chatter{mrand.New(mrand.NewPCG(uint64(w), 7))}
			for d.s.Stats().Messages < 5000 {
				conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: d.path, Net: "unixpacket"})
				if err != nil {
					t.Error(err)
					return
				}
				if err := logIn(conn); err != nil {
					t.Errorf("login: %v", err)
				}
				done := make(chan struct{})
				go func() { defer close(done); takeAll(conn) }()
				for i := range uint32(100) {
					if _, err := conn.Write(ch.packet(i + 1)); err != nil {
						break
					}
				}
				_ = conn.CloseWrite()
				<-done
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	items, files := c.open(wire.WantBuffered|wire.WantSums, item("big"))
	if items[0].Err != nil {
		t.Fatalf("%+v", items[0].Err)
	}
	if b, err := io.ReadAll(files[0]); err != nil || !bytes.Equal(b, random(3<<20)) || len(items[0].Sums) != 3 ||
		items[0].Sums[2] != sumOf(b[2<<20:]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	_ = c.c.Close()
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	if n := d.s.Stats().Refused[wire.CodeInternal]; n != 0 {
		t.Errorf("%d requests failed for a reason of the server", n)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	r, err := disk.Check(context.Background(), disk.Options{Dir: dir}, check.Options{})
	if err != nil || r.Found != 0 || r.Unfinished != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAClientThatVanishes leaves nothing, whatever it was about to do.
func TestAClientThatVanishes(t *testing.T) {
	d := serve(t, nil)
	d.store.put("b", "big", random(2<<20))
	c := d.login()
	clean := leakless(t)
	for name, until := range map[string]func(c *wireConn){
		"after connecting": func(*wireConn) {},
		"after Hello":      func(c *wireConn) { c.send(&wire.Hello{Min: wire.MinVersion, Max: wire.Version}) },
		"after Challenge":  func(c *wireConn) { c.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version}) },
		"after the login":  func(c *wireConn) { c.prove(testKey, testSecret) },
		"with replies left": func(c *wireConn) {
			c.prove(testKey, testSecret)
			for range 50 {
				c.send(&wire.Open{Want: 3, Device: host, Items: []wire.OpenItem{item("big"), item("big")}})
			}
		},
		"with objects open": func(c *wireConn) {
			c.prove(testKey, testSecret)
			c.send(&wire.Open{Want: 3, Device: host, Items: []wire.OpenItem{item("big")}})
		},
		"with a draft": func(c *wireConn) {
			c.prove(testKey, testSecret)
			c.send(&wire.Create{Bucket: "b", Key: "new", Size: 100, Device: host, Want: 3})
		},
		"in mid-commit": func(c *wireConn) {
			c.prove(testKey, testSecret)
			c.send(&wire.Create{Bucket: "b", Key: "new", Size: 100, Device: host, Want: 1})
			c.send(&wire.Commit{Handle: 1, Size: 1, Sums: []uint64{1}})
		},
	} {
		for range 5 {
			v := d.dial()
			until(v)
			_ = v.c.Close()
		}
		waitFor(t, func() bool { h, n := d.store.held(); return h == 0 && n == 0 && d.s.Stats().Connections == 1 })
		if m, _ := c.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
			t.Fatalf("%s: %+v", name, m)
		}
	}
	clean()
	if items, _ := c.open(wire.WantStat, item("new")); items[0].Err == nil {
		t.Error("an object that nobody committed is visible")
	}
}

// TestWhoSendsDescriptors is refused, and they are not kept.
func TestWhoSendsDescriptors(t *testing.T) {
	d := serveOn(t, takesDescriptors, nil)
	before := d.login()
	clean := leakless(t)
	for range 20 {
		c := d.login()
		f, err := os.Open(d.path[:len(d.path)-2])
		if err != nil {
			t.Fatal(err)
		}
		b, _ := wire.Append(nil, wire.Header{Request: 9}, &wire.Ping{})
		if _, _, err := c.c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd()), int(f.Fd()), int(f.Fd())), nil); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if e := c.ended(); e == nil || e.Code != wire.CodeBadMessage {
			t.Errorf("%+v", e)
		}
		_ = c.c.Close()
	}
	clean()
	if m, _ := before.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
}

// TestWhoDoesNotTakeItsReplies is ended, and others are served meanwhile.
func TestWhoDoesNotTakeItsReplies(t *testing.T) {
	d := serve(t, func(o *Options) { o.Limits.Send = 2 * time.Second; o.Limits.Handles = 1 << 20 })
	d.store.put("b", "big", random(20000))
	d.store.put("b", "small", random(16000))
	other := d.login()
	clean := leakless(t)
	c := d.login()
	for range 4000 { // far more replies than a socket holds
		b, _ := wire.Append(nil, wire.Header{Request: 1},
			&wire.Open{Want: wire.WantInline | wire.WantBuffered, Device: host,
				Items: []wire.OpenItem{item("small"), item("big")}})
		if _, err := c.c.Write(b); err != nil {
			break
		}
	}
	waitFor(t, func() bool { h, _ := d.store.held(); return h == 0 && d.s.Stats().Connections == 1 })
	if m, _ := other.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
	_ = c.c.Close()
	clean()
}

// TestDrain: who holds nothing is sent away at once, who holds something may finish it and begins nothing new.
func TestDrain(t *testing.T) {
	d := serve(t, nil)
	d.store.put("b", "big", random(20000))
	idle, busy, writer := d.login(), d.login(), d.login()
	items, _ := busy.open(wire.WantBuffered, item("big"))
	m, files := writer.ask(&wire.Create{Bucket: "b", Key: "new", Size: 10, Device: host, Want: 1})
	made := m.(*wire.Created)
	ended := make(chan error, 1)
	go func() { ended <- d.stop() }()
	if e := idle.ended(); e == nil || e.Code != wire.CodeDraining {
		t.Errorf("%+v", e)
	}
	if items, _ := busy.open(wire.WantBuffered, item("big")); items[0].Err == nil ||
		items[0].Err.Code != wire.CodeDraining {
		t.Errorf("%+v", items[0])
	}
	if m, _ := busy.ask(&wire.Create{Bucket: "b", Key: "x", Size: 10, Device: host, Want: 1}); !isError(m,
		wire.CodeDraining) {
		t.Errorf("%+v", m)
	}
	if m, _ := busy.ask(&wire.Close{Handles: []uint64{items[0].Handle}}); m.Type() != wire.TypeAck {
		t.Errorf("%+v", m)
	}
	if e := busy.ended(); e == nil || e.Code != wire.CodeDraining {
		t.Errorf("%+v", e)
	}
	if _, err := files[0].WriteAt([]byte("0123456789"), 0); err != nil {
		t.Fatal(err)
	}
	_ = files[0].Close()
	sum := sumOf([]byte("0123456789"))
	if m, _ := writer.ask(&wire.Commit{Handle: made.Handle, Size: 10, CRC64: sum,
		Sums: []uint64{sum}}); m.Type() != wire.TypeCommitted {
		t.Errorf("%+v", m)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unixpacket", d.path); err == nil {
		t.Error("the door is still open")
	}
}

// TestTheEndOfTheDrain cuts off who does not let go.
func TestTheEndOfTheDrain(t *testing.T) {
	clean := leakless(t)
	d := serve(t, func(o *Options) { o.Drain = 200 * time.Millisecond })
	d.store.put("b", "big", random(20000))
	c := d.login()
	_, files := c.open(wire.WantBuffered, item("big"))
	if m, fs := c.ask(&wire.Create{Bucket: "b", Key: "new", Size: 10, Device: host,
		Want: 1}); m.Type() != wire.TypeCreated || fs[0].Close() != nil {
		t.Fatalf("%+v", m)
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	if h, n := d.store.held(); h != 0 || n != 0 {
		t.Errorf("%d handles and %d drafts are held", h, n)
	}
	if b, err := io.ReadAll(files[0]); err != nil || !bytes.Equal(b, random(20000)) {
		t.Errorf("the client's own descriptor: %d bytes, %v", len(b), err)
	}
	_ = files[0].Close()
	_ = c.c.Close()
	clean()
}

// BenchmarkOpen4KiB is one round trip for a small object, from a client in the same process.
func BenchmarkOpen4KiB(b *testing.B) {
	d := serve(b, nil)
	d.store.put("b", "small", random(4096))
	c := d.login()
	req, _ := wire.Append(nil, wire.Header{Request: 1},
		&wire.Open{Want: wire.WantInline | wire.WantBuffered | wire.WantSums, Device: host,
			Items: []wire.OpenItem{item("small")}})
	buf := make([]byte, wire.MaxMessage)
	_ = c.c.SetDeadline(time.Time{})
	for b.Loop() {
		if _, err := c.c.Write(req); err != nil {
			b.Fatal(err)
		}
		if _, err := c.c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
