// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// attempts are what a hostile client tries. Each gets a connection that has not logged in and one that has, and may end
// both.
var attempts = map[string]func(t *testing.T, d *door, raw, in *wireConn){
	"an empty packet first": func(t *testing.T, d *door, raw, in *wireConn) { _, _ = raw.c.Write(nil); raw.ended() },
	"an empty packet later": func(t *testing.T, d *door, raw, in *wireConn) { _, _ = in.c.Write(nil); in.ended() },
	"half a header":         func(t *testing.T, d *door, raw, in *wireConn) { write(in, []byte{5, 0, 0}); mustEnd(t, in) },
	"half a message": func(t *testing.T, d *door, raw, in *wireConn) {
		b, _ := wire.Append(nil, wire.Header{Request: 9},
			&wire.Open{Want: 1, Device: host, Items: []wire.OpenItem{item("big")}})
		write(in, b[:len(b)/2])
		mustEnd(t, in)
	},
	"a long packet at login": func(t *testing.T, d *door, raw,
		in *wireConn) {
		write(raw, make([]byte, 100<<10))
		mustEnd(t, raw)
	},
	"a long packet": func(t *testing.T, d *door, raw, in *wireConn) {
		write(in, make([]byte, wire.MaxMessage+1))
		mustEnd(t, in)
	},
	"descriptors with Hello": func(t *testing.T, d *door, raw, in *wireConn) {
		pass(t, raw, &wire.Hello{Min: wire.MinVersion, Max: wire.Version})
		mustEnd(t, raw)
	},
	"descriptors with Ping": func(t *testing.T, d *door, raw, in *wireConn) { pass(t, in, &wire.Ping{}); mustEnd(t, in) },
	"Proof twice": func(t *testing.T, d *door, raw, in *wireConn) {
		m, _ := raw.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version})
		p := proofOf(raw.c, m.(*wire.Challenge), testKey, testSecret)
		raw.ask(p)
		raw.send(p)
		mustEnd(t, raw)
	},
	"another key's proof": func(t *testing.T, d *door, raw, in *wireConn) {
		m, _ := raw.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version})
		p := proofOf(raw.c, m.(*wire.Challenge), "blind", testSecret)
		p.AccessKey = testKey
		if m, _ := raw.ask(p); !isError(m, wire.CodeAccessDenied) {
			t.Errorf("%+v", m)
		}
	},
	"handles of another connection": func(t *testing.T, d *door, raw, in *wireConn) {
		other := d.login()
		items, _ := other.open(wire.WantBuffered, item("big"))
		made, _ := other.create("theirs", 10)
		for _, m := range []wire.Message{&wire.Close{Handles: []uint64{items[0].Handle}},
			&wire.Sums{Handle: items[0].Handle, N: 1}, &wire.Commit{Handle: made.Handle}, &wire.Abort{Handle: made.Handle},
			&wire.AddSums{Handle: made.Handle}} {
			if r, _ := in.ask(m); !isError(r, wire.CodeNoSuchHandle) {
				t.Errorf("%v: %+v", m.Type(), r)
			}
		}
		_ = other.c.Close()
	},
	"one draft committed many times at once": func(t *testing.T, d *door, raw, in *wireConn) {
		made, file := in.create("many", 4)
		_, _ = file.Write([]byte("abcd"))
		_ = file.Close()
		sum := sumOf([]byte("abcd"))
		for range 5 {
			in.send(&wire.Commit{Handle: made.Handle, Size: 4, CRC64: sum, Sums: []uint64{sum}})
		}
		in.send(&wire.Abort{Handle: made.Handle})
		won := 0
		for range 6 {
			if _, m, _, err := in.receive(); err == nil && m.Type() == wire.TypeCommitted {
				won++
			}
		}
		if won != 1 {
			t.Errorf("%d commits", won)
		}
	},
	"sizes at the limits": func(t *testing.T, d *door, raw, in *wireConn) {
		items, _ := in.open(wire.WantBuffered, item("big"))
		made, file := in.create("limits", 100)
		_ = file.Close()
		far := []int64{math.MinInt64, -1, math.MaxInt64, math.MaxInt64 - 1, 1 << 62}
		for _, a := range far {
			for _, b := range far {
				if got, _ := in.open(wire.WantBuffered|wire.WantSums,
					wire.OpenItem{Bucket: "b", Key: "big", Off: a, N: b}); got[0].Err == nil {
					t.Errorf("open %d %d: %+v", a, b, got[0])
				}
				for _, m := range []wire.Message{&wire.Move{Handle: items[0].Handle, Device: host,
					Ranges: []wire.Range{{Off: a, N: b}}}, &wire.Sums{Handle: items[0].Handle, First: a, N: b},
					&wire.AddSums{Handle: made.Handle, First: a, Sums: []uint64{1}}} {
					if r, _ := in.ask(m); r.Type() != wire.TypeError {
						t.Errorf("%v %d %d: %+v", m.Type(), a, b, r)
					}
				}
			}
			if r, _ := in.ask(&wire.Create{Bucket: "b", Key: "x", Size: a, Device: host, Want: 1}); r.Type() != wire.TypeError {
				t.Errorf("create %d: %+v", a, r)
			}
		}
		if r, _ := in.ask(&wire.Commit{Handle: made.Handle, Size: math.MaxInt64}); r.Type() != wire.TypeError {
			t.Errorf("%+v", r)
		}
	},
	"sums that lie": func(t *testing.T, d *door, raw, in *wireConn) {
		made, file := in.create("lies", 4)
		_, _ = file.Write([]byte("abcd"))
		_ = file.Close()
		for _, m := range []*wire.Commit{{Size: 4, CRC64: 1, Sums: []uint64{2}}, {Size: 4, CRC64: 0},
			{Size: 4, CRC64: 7, Sums: []uint64{7, 7}}, {Size: 4, First: 1, CRC64: 7, Sums: []uint64{7}}} {
			m.Handle = made.Handle
			if r, _ := in.ask(m); !isError(r, wire.CodeBadSums) {
				t.Errorf("%+v: %+v", m, r)
			}
		}
	},
	"names that are no text": func(t *testing.T, d *door, raw, in *wireConn) {
		for _, name := range []string{"\x00", "a\nlevel=ERROR msg=forged", "\xff\xfe", "../../etc/passwd",
			strings.Repeat("x", wire.MaxName-1)} {
			in.open(wire.WantBuffered, wire.OpenItem{Bucket: name, Key: name, Version: name, N: -1})
			in.ask(&wire.Create{Bucket: "b", Key: name + "\x00", Size: 1, Device: wire.Device{Index: -1, UUID: name}, Want: 1,
				ContentType: name})
			in.ask(&wire.List{Bucket: name, Prefix: name, Delimiter: name, After: name})
		}
	},
	"a key that forges the log": func(t *testing.T, d *door, raw, in *wireConn) {
		m, _ := raw.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version, Agent: "x\nmsg=forged"})
		raw.ask(proofOf(raw.c, m.(*wire.Challenge), "k\nmsg=forged", testSecret))
	},
	"gone with requests under way": func(t *testing.T, d *door, raw, in *wireConn) {
		for range 50 {
			in.send(&wire.Open{Want: 3, Device: host, Items: []wire.OpenItem{item("big"), item("big")}})
		}
		_ = in.c.Close()
	},
	"gone with drafts and their descriptors": func(t *testing.T, d *door, raw, in *wireConn) {
		for range 10 {
			in.send(&wire.Create{Bucket: "b", Key: "g", Size: 1 << 20, Device: host, Want: 3})
		}
		_ = in.c.CloseRead()
		_ = in.c.Close()
	},
	"no room for descriptors": func(t *testing.T, d *door, raw, in *wireConn) {
		in.send(&wire.Open{Want: 1, Device: host, Items: []wire.OpenItem{item("big")}})
		if n, err := in.c.Read(in.buf); err != nil || n == 0 { // the kernel drops the descriptors
			t.Errorf("%d, %v", n, err)
		}
		if m, _ := in.ask(&wire.Ping{}); m.Type() != wire.TypeAck {
			t.Errorf("%+v", m)
		}
	},
	"a draft that is mapped": func(t *testing.T, d *door, raw, in *wireConn) {
		made, file := in.create("mapped", 4096)
		both, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
		if err != nil {
			t.Skip(err)
		}
		p, err := unix.Mmap(int(both.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = both.Close(), file.Close()
		zero := sumOf(make([]byte, 4096))
		commit := &wire.Commit{Handle: made.Handle, Size: 4096, CRC64: zero, Sums: []uint64{zero}}
		if r, _ := in.ask(commit); !isError(r, wire.CodeWriterLeft) {
			t.Errorf("%+v", r)
		}
		_ = unix.Munmap(p)
		if r, _ := in.ask(commit); r.Type() != wire.TypeCommitted {
			t.Errorf("%+v", r)
		}
	},
	"room behind the end of a draft": func(t *testing.T, d *door, raw, in *wireConn) {
		_, file := in.create("behind", 10)
		if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 64<<20); err != nil {
			t.Skip(err)
		}
		d.s.lookAtDrafts()
		mustEnd(t, in)
	},
	"a draft that is sparse and huge": func(t *testing.T, d *door, raw, in *wireConn) {
		made, file := in.create("sparse", 10)
		if err := file.Truncate(1 << 40); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		d.s.lookAtDrafts()
		zero := sumOf(make([]byte, 10))
		if r, _ := in.ask(&wire.Commit{Handle: made.Handle, Size: 10, CRC64: zero,
			Sums: []uint64{zero}}); r.Type() != wire.TypeCommitted {
			t.Errorf("%+v", r)
		}
	},
	"a descriptor in its own socket": func(t *testing.T, d *door, raw, in *wireConn) {
		f, err := in.c.File()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := wire.Append(nil, wire.Header{Request: 7}, &wire.Ping{})
		if _, _, err := in.c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil); errors.Is(err, unix.EPERM) {
			write(in, b[:1])
		}
		_ = f.Close()
		mustEnd(t, in)
	},
	"replies that are only looked at": func(t *testing.T, d *door, raw, in *wireConn) {
		in.send(&wire.Open{Want: 1, Device: host, Items: []wire.OpenItem{item("big")}})
		rc, err := in.c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = rc.Read(func(fd uintptr) bool {
			_, _, _, _, err := unix.Recvmsg(int(fd), in.buf, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return err != unix.EAGAIN
		})
	},
}

func write(c *wireConn, b []byte) { _, _ = c.c.Write(b) }

// mustEnd ends the test unless the server says why it ends the connection.
func mustEnd(t *testing.T, c *wireConn) {
	t.Helper()
	if e := c.ended(); e == nil || e.Code != wire.CodeBadMessage && e.Code != wire.CodeTooLarge || e.Fix == "" {
		t.Errorf("%+v", e)
	}
}

// pass sends a message with descriptors of every kind.
func pass(t *testing.T, c *wireConn, m wire.Message) {
	t.Helper()
	b, err := wire.Append(nil, wire.Header{Request: 1}, m)
	if err != nil {
		t.Fatal(err)
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	all := fds[:]
	for _, name := range []string{"/dev/null", "/", "/proc/self/mem", "/dev/zero"} {
		if fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			all = append(all, fd)
		}
	}
	if fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC); err == nil {
		all = append(all, fd)
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err == nil {
		all = append(all, fd)
	}
	_, _, err = c.c.WriteMsgUnix(b, unix.UnixRights(all...), nil)
	for _, fd := range all {
		_ = unix.Close(fd)
	}
	if errors.Is(err, unix.EPERM) { // the kernel refuses them from Linux 6.16 on
		write(c, b[:1])
	} else if err != nil {
		t.Fatal(err)
	}
}

// TestHostileAttempts: whatever a client tries, another one is served, nothing of it stays, and the log has no line of
// its making.
func TestHostileAttempts(t *testing.T) {
	log := &lockedLog{}
	d, st, _ := onDisk(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	data := random(20000)
	if _, err := st.Put(t.Context(), object.Put{Bucket: "b", Key: "big", Size: int64(len(data)),
		Body: bytes.NewReader(data)}); err != nil {
		t.Fatal(err)
	}
	good := d.login()
	for name, try := range attempts {
		t.Run(name, func(t *testing.T) {
			inner := *d
			inner.t = t
			raw, in := inner.dial(), inner.login()
			try(t, &inner, raw, in)
			if items, files := good.open(wire.WantBuffered|wire.WantSums, item("big")); items[0].Err != nil || len(files) != 1 {
				t.Fatalf("another client: %+v", items[0].Err)
			} else {
				_ = files[0].Close()
				good.ask(&wire.Close{Handles: []uint64{items[0].Handle}})
			}
			_, _ = raw.c.Close(), in.c.Close()
			waitFor(t, func() bool {
				st := d.s.Stats()
				return st.Connections == 1 && st.Handles == 0 && st.Drafts == 0
			})
		})
	}
	_ = good.c.Close()
	waitFor(t, func() bool { d.s.lookAtDrafts(); return d.s.Stats().Connections == 0 })
	waitFor(t, func() bool { d.s.lookAtDrafts(); h, b := d.accountOf(testKey); return h == 0 && b == 0 })
	d.s.nobodyLeft(t)
	for _, line := range strings.Split(log.String(), "\n") {
		if strings.HasPrefix(line, "msg=forged") || strings.HasPrefix(line, "level=ERROR") {
			t.Errorf("a line of a client's making: %q", line)
		}
	}
}

// TestHoldsOfAKeyThatIsRemoved: what a removed key has is let go at its next request, and its draft is not published.
func TestHoldsOfAKeyThatIsRemoved(t *testing.T) {
	var mu sync.Mutex
	known := true
	d, st, _ := onDisk(t, func(o *Options) {
		o.Secret = func(string) (string, bool) { mu.Lock(); defer mu.Unlock(); return testSecret, known }
	})
	c := d.login()
	made, file := c.create("k", 4)
	_, _ = file.Write([]byte("abcd"))
	_ = file.Close()
	mu.Lock()
	known = false
	mu.Unlock()
	sum := sumOf([]byte("abcd"))
	if m, _ := c.ask(&wire.Commit{Handle: made.Handle, Size: 4, CRC64: sum, Sums: []uint64{sum}}); !isError(m,
		wire.CodeAccessDenied) {
		t.Errorf("%+v", m)
	}
	c.ended()
	if _, err := st.Stat(t.Context(), object.Ref{Bucket: "b", Key: "k"}); err == nil {
		t.Error("it was published")
	}
	d.s.nobodyLeft(t)
}

// TestASymlinkInTheSocketsPlace is not followed, and stays.
func TestASymlinkInTheSocketsPlace(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "s"), filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(path); err == nil {
		_ = l.Close()
		t.Error("a symlink was replaced")
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("%q, %v", got, err)
	}
	if to, err := os.Readlink(path); err != nil || to != target {
		t.Errorf("%q, %v", to, err)
	}
	// A server whose socket is replaced by somebody else's leaves that one alone when it ends.
	mine := filepath.Join(dir, "mine")
	l, err := Listen(mine)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	theirs, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: mine, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	_ = l.Close()
	if _, err := os.Lstat(mine); err != nil {
		t.Errorf("another's socket was removed: %v", err)
	}
}

// TestRacingCommits: of many that write one key only where there is none, one wins, and what is there is whole.
func TestRacingCommits(t *testing.T) {
	d, st, _ := onDisk(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		c := d.login()
		data := bytes.Repeat([]byte{byte(i)}, 50000)
		r, files := c.ask(&wire.Create{Bucket: "b", Key: "race", Size: 50000, Device: host, Want: wire.WantBuffered,
			IfNoneMatch: "*"})
		made, ok := r.(*wire.Created)
		if !ok {
			t.Fatalf("%+v", r)
		}
		_, _ = files[0].Write(data)
		_ = files[0].Close()
		wg.Go(func() {
			r, _ := c.ask(&wire.Commit{Handle: made.Handle, Size: 50000, CRC64: sumOf(data), Sums: []uint64{sumOf(data)}})
			mu.Lock()
			defer mu.Unlock()
			if r.Type() == wire.TypeCommitted {
				won++
			} else if !isError(r, wire.CodePreconditionFailed) {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if _, err := st.Stat(t.Context(), object.Ref{Bucket: "b", Key: "race"}); err != nil || won != 1 {
		t.Errorf("%d have won, %v", won, err)
	}
}
