// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/test/effort"
)

// between stands between clients and the door and passes every packet on, with
// its descriptors, unless see says that the connection ends there. It knows the secret and logs in anew: without that
// it would be a relay, which the door refuses.
func (r *rig) between(see func(fromClient bool, h wire.Type) (end bool)) string {
	return r.middle(true, see)
}

// middle listens between clients and the door. Without the secret it passes logins on as they are.
func (r *rig) middle(knows bool, see func(fromClient bool, h wire.Type) (end bool)) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "between.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = l.Close() })
	pass := func(from, to *net.UnixConn, fromClient bool, login *relogin) {
		defer from.Close()
		defer to.Close()
		b, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))
		for {
			n, k, _, _, err := from.ReadMsgUnix(b, oob)
			if err != nil || n == 0 {
				return
			}
			end := see(fromClient, wire.Type(b[0]))
			if !end {
				packet := b[:n]
				if knows {
					packet = login.renew(packet, to)
				}
				_, _, err = to.WriteMsgUnix(packet, oob[:k], nil)
			}
			if k > 0 {
				fds, _ := descriptorsOf(oob[:k])
				closeAll(fds)
			}
			if end || err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			up, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.socket, Net: "unixpacket"})
			if err != nil {
				_ = c.Close()
				continue
			}
			login := &relogin{}
			go pass(c, up, true, login)
			go pass(up, c, false, login)
		}
	}()
	return path
}

// relogin makes the packets of a login anew for the other side.
type relogin struct {
	mu    sync.Mutex
	ch    *wire.Challenge
	proof *wire.Proof // the client's own
}

func (l *relogin) renew(b []byte, to *net.UnixConn) []byte {
	h, m, err := wire.Decode(b)
	if err != nil {
		return b
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m := m.(type) {
	case *wire.Challenge:
		l.ch = m
		return b
	case *wire.Proof:
		own := *m
		l.proof = &own
		if raw, err := to.SyscallConn(); err == nil {
			// without it the login fails, and the test
			_ = raw.Control(func(fd uintptr) { m.Binding, _ = channel.Peer(int(fd)) })
		}
		m.MAC = wire.ClientMAC(testSecret, l.ch, m)
	case *wire.Greeting:
		m.MAC = wire.ServerMAC(testSecret, l.ch, l.proof)
	default:
		return b
	}
	if b, err = wire.Append(nil, h, m); err != nil {
		return nil
	}
	return b
}

func TestConnectionLostInMidCommit(t *testing.T) {
	r := newRig(t, false)
	for name, x := range map[string]struct {
		cut  func(fromClient bool, h wire.Type) bool
		may  bool // the error must say that the object may be there
		done bool // it is
	}{
		"before the commit": {func(c bool, h wire.Type) bool { return c && h == wire.TypeMove }, false, false},
		"at the commit":     {func(c bool, h wire.Type) bool { return c && h == wire.TypeCommit }, true, false},
		"before its answer": {func(c bool, h wire.Type) bool { return !c && h == wire.TypeCommitted }, true, true},
	} {
		c := r.client(func(o *Options) { o.Door = r.between(x.cut) })
		key := strings.ReplaceAll(name, " ", "-")
		data := content(4, 100000)
		_, err := r.write(c, Write{Key: key}, data)
		if !errs.Is(err, errs.IO) || strings.Contains(err.Error(), "may have been written") != x.may ||
			errs.FixOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		got, _, err := r.get(key)
		if x.done && (err != nil || !bytes.Equal(got, data)) || !x.done && !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: the object: %v", name, err)
		}
	}
	r.trace()
}

func TestConnectionLostWhileReading(t *testing.T) {
	r := newRig(t, false)
	data := content(4, 5<<20)
	r.put("k", data)
	for _, at := range []wire.Type{wire.TypeChallenge, wire.TypeGreeting, wire.TypeOpened, wire.TypeSumsReply,
		wire.TypeAck} {
		var cut atomic.Bool
		cut.Store(true)
		c := r.client(func(o *Options) {
			o.Door = r.between(func(fromClient bool, h wire.Type) bool { return cut.Load() && !fromClient && h == at })
		})
		_, _, err := r.read(c, Read{Key: "k", Size: -1}, len(data))
		if at == wire.TypeSumsReply {
			continue // all sums came with the first answer
		}
		if err == nil || errs.FixOf(err) == "" && at != wire.TypeChallenge && at != wire.TypeGreeting {
			t.Errorf("cut at %s: %v", at, err)
		}
		cut.Store(false)
		if got, _, err := r.read(c, Read{Key: "k", Size: -1}, len(data)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("after a cut at %s: %v", at, err)
		}
	}
	r.trace()
}

func TestDamageIsFoundAndNamed(t *testing.T) {
	r := newRig(t, true)
	data := content(8, 3<<20+100)
	r.put("k", data)
	var found string
	err := filepath.WalkDir(filepath.Dir(r.socket)+"/data", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if i, err := e.Info(); err == nil && i.Size() >= int64(len(data)) && i.Size() < int64(len(data))+8192 {
			found = path
		}
		return nil
	})
	if err != nil || found == "" {
		t.Fatalf("the object's file was not found: %v", err)
	}
	f, err := os.OpenFile(found, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{data[2<<20] ^ 1}, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c := r.client()
	for _, id := range []string{"host", "cuda:0"} {
		_, rep, err := r.read(c, Read{Key: "k", Size: -1, Device: id}, len(data))
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "s3://b/k") ||
			!strings.Contains(err.Error(), "bytes 2097152 to 3145728") || strings.Contains(err.Error(), "crc64nvme") ||
			rep.Error == "" {
			t.Errorf("%s: %v", id, err)
		}
		// The blocks before it are as they should be.
		if got, _, err := r.read(c, Read{Key: "k", Size: 2 << 20, Device: id}, 2<<20); err != nil ||
			!bytes.Equal(got, data[:2<<20]) {
			t.Errorf("%s: %v", id, err)
		}
		if _, _, err := r.read(c, Read{Key: "k", Size: -1, Device: id, NoVerify: true}, len(data)); err != nil {
			t.Errorf("%s, not verified: %v", id, err)
		}
	}
	r.trace()
}

func TestDeviceThatIsNotAllowed(t *testing.T) {
	r := newRig(t, true, func(r *rig) { r.settings.Devices = []int{1} })
	data := content(8, 100000)
	r.put("k", data)
	c := r.client()
	if got, _, err := r.read(c, Read{Key: "k", Size: -1, Device: "cuda:1"}, len(data)); err != nil ||
		!bytes.Equal(got, data) {
		t.Errorf("cuda:1: %v", err)
	}
	if _, _, err := r.read(c, Read{Key: "k", Size: -1, Device: "cuda:0"}, len(data)); err == nil ||
		codeOf(err) != wire.CodeDeviceNotAllowed || !strings.Contains(err.Error(), "s3://b/k") {
		t.Errorf("cuda:0: %v", err)
	}
	if _, err := r.write(c, Write{Key: "w", Device: "cuda:0"}, data); codeOf(err) != wire.CodeDeviceNotAllowed {
		t.Errorf("write from cuda:0: %v", err)
	}
	if _, _, err := r.read(c, Read{Key: "k", Size: -1, Device: "host"}, len(data)); err != nil {
		t.Errorf("host: %v", err)
	}
}

func TestHandlesAreKeptAlive(t *testing.T) {
	effort.Slow(t)
	// A quarter of this time lies between two pings: the rest is for a busy machine that does not run them.
	r := newRig(t, false, func(r *rig) { r.limits.Idle = 3 * time.Second })
	data := content(8, 100000)
	r.put("k", data)
	c := r.client()
	f, err := c.Tree("b", "host").Open(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	held := func() *conn {
		d := c.way.Load().door
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, x := range d.conns {
			if x.held.Load() > 0 {
				return x
			}
		}
		t.Fatal("no connection holds the object any more")
		return nil
	}()
	for range 6 { // more than the time after which the server would have ended it
		before := held.used.Load()
		eventually(t, "a ping", func() bool { return held.used.Load() > before })
	}
	if s := r.door.Stats(); s.Handles != 1 || held.dead.Load() {
		t.Errorf("%d handles, dead %v", s.Handles, held.dead.Load())
	}
	got := make([]byte, len(data))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	r.trace()
	eventually(t, "the silent connection is ended", func() bool { return r.door.Stats().Connections == 0 })
	if got, _, err := r.read(c, Read{Key: "k", Size: -1}, len(data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after that: %v", err)
	}
}

// TestDiscoveryIsSigned: the request for the door is signed with the client's keys, by the server's clock, and a
// refusal says what is wrong.
func TestDiscoveryIsSigned(t *testing.T) {
	r := newRig(t, false)
	ahead := time.Now().Add(5 * time.Hour)
	var asked atomic.Int64
	var refusal atomic.Pointer[string]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		refuse := func(code string) {
			w.Header().Set("Date", ahead.UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		}
		at, _ := time.Parse("20060102T150405Z", q.Header.Get("X-Amz-Date"))
		switch {
		case q.URL.Path != discoveryPath:
			http.NotFound(w, q)
		case refusal.Load() != nil:
			refuse(*refusal.Load())
		case !strings.Contains(q.Header.Get("Authorization"), "/us-east-1/s3/aws4_request"):
			refuse("AccessDenied")
		case ahead.Sub(at).Abs() > time.Hour:
			asked.Add(1)
			refuse("RequestTimeTooSkewed")
		default:
			asked.Add(1)
			fmt.Fprintf(w, `{"version":1,"enabled":true,"socket":%q,"store":%q}`, r.socket, testStore)
		}
	}))
	defer s.Close()
	c := r.client(func(o *Options) { o.Endpoint, o.Door, o.Region = s.URL, "auto", "eu-west-1" })
	if st := c.Status(t.Context()); st.Door != r.socket || asked.Load() != 2 {
		t.Errorf("%+v after %d requests", st, asked.Load())
	}
	for code, fix := range map[string]string{"SignatureDoesNotMatch": "secret key", "InvalidAccessKeyId": "access key",
		"RequestTimeTooSkewed": "clock"} {
		refusal.Store(&code)
		c := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "auto" })
		if st := c.Status(t.Context()); st.Refusal == nil || !strings.Contains(st.Refusal.Reason, code) ||
			!strings.Contains(st.Refusal.Fix, fix) {
			t.Errorf("%s: %+v", code, st.Refusal)
		}
	}
}

func TestDoorThatIsNotThere(t *testing.T) {
	r := newRig(t, false)
	var said atomic.Pointer[string]
	say := func(s string) { said.Store(&s) }
	say("")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		answer := *said.Load()
		if q.URL.Path != discoveryPath || answer == "" {
			http.Error(w, "<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	for name, x := range map[string]struct{ answer, reason, fix string }{
		"another server": {"", "404", "none needed"},
		"off": {`{"version":1,"enabled":false,"reason":"gpudirect.enabled is false","fix":"set it"}`,
			"gpudirect.enabled is false", "set it"},
		"another host": {`{"version":1,"enabled":true,"socket":"/no/such/door.sock","store":"x"}`, "no such file",
			"server's host"},
		"another store": {fmt.Sprintf(`{"version":1,"enabled":true,"socket":%q,"store":"another"}`, r.socket),
			`behind the socket is the store "store-under-test"`, "gpudirect.socket of its own"},
		"a relative path":  {`{"version":1,"enabled":true,"socket":"door.sock","store":"x"}`, "absolute path", ""},
		"not our language": {"<html>", "not what a NebulaIO server says", "none needed"},
	} {
		say(x.answer)
		c := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "auto" })
		st := c.Status(t.Context())
		if st.Door != "" || st.Refusal == nil || !strings.Contains(st.Refusal.Reason, x.reason) ||
			!strings.Contains(st.Refusal.Fix, x.fix) || strings.Contains(st.Refusal.Reason, "(fix:") {
			t.Errorf("%s: %+v", name, st.Refusal)
		}
		_, rep, err := r.read(c, Read{Key: "k", Size: -1}, 10)
		if !errs.Is(err, errs.NotFound) || rep.Via != ViaHTTP || len(rep.Refusals) != 1 || rep.Refusals[0].What != "door" {
			t.Errorf("%s: read: %v, %+v", name, err, rep)
		}
		must := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "require" })
		if _, _, err := r.read(must, Read{Key: "k", Size: -1}, 10); err == nil || !strings.Contains(err.Error(), x.reason) {
			t.Errorf("%s: required: %v", name, err)
		}
	}
	say(fmt.Sprintf(`{"version":1,"enabled":true,"socket":%q,"store":%q}`, r.socket, testStore))
	data := content(1, 10)
	r.put("k", data)
	c := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "auto" })
	if got, rep, err := r.read(c, Read{Key: "k", Size: -1}, 10); err != nil || !bytes.Equal(got, data) ||
		rep.Via != ViaDoor {
		t.Errorf("where it is: %v", err)
	}
	for name, change := range map[string]func(*Options){
		"a wrong secret": func(o *Options) { o.SecretKey = "another-secret-entirely" },
		"a wrong key":    func(o *Options) { o.AccessKey = "nobody" },
	} {
		c := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "auto"; change(o) })
		if _, _, err := r.read(c, Read{Key: "k", Size: -1}, 10); !errs.Is(err, errs.Permission) ||
			codeOf(err) != wire.CodeAccessDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	anybody := r.client(func(o *Options) { o.Endpoint, o.Door, o.AccessKey, o.SecretKey = s.URL, "auto", "", "" })
	if st := anybody.Status(t.Context()); st.Refusal == nil || !strings.Contains(st.Refusal.Reason, "anonymous") {
		t.Errorf("%+v", st)
	}
}

func TestCancelledContextAsksNothing(t *testing.T) {
	r := newRig(t, false)
	r.put("k", content(1, 10))
	c := r.client()
	if _, _, err := r.read(c, Read{Key: "k", Size: -1}, 10); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mem := r.alloc("host", 10)
	m, err := c.StartRead(ctx, Read{Bucket: "b", Key: "k", Size: -1, Dst: mem.ptr(), DstSize: 10})
	if err == nil {
		err = m.Wait()
	}
	if !errs.Is(err, errs.Cancelled) {
		t.Error(err)
	}
}
