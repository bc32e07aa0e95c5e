// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/effort"
)

// randomMessage returns random bytes, or a message of a known protocol with random bytes in it.
func randomMessage(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(1500))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	starts := []string{"", "", "GET /v1/blocks?key=model HTTP/1.1\r\nHost: x\r\n\r\n", "NIOB\x00\x01\x00\x00",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // a TLS record with the start of a ClientHello
		"\x16\x03\x01\xff\xff", "\x17\x03\x03\x40\x00", "\x0a\xff\xff\xff\xff", "\xf4\x0fcluster", "\x00", "\x01", "\x06"}
	return append([]byte(starts[r.IntN(len(starts))]), b...)
}

// TestRandomMessages sends random bytes to the listener and to the gossip of a node. Nothing is served, nothing leaks,
// memory stays bounded, and the node still works.
func TestRandomMessages(t *testing.T) {
	var log lockedBuffer
	k := testKey(t)
	a := startNode(t, "node-0", k, &source{}, nil, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	b := startNode(t, "node-1", k, &source{}, nil, func(o *Options) {
		o.Seeds = []string{a.list.LocalNode().Address()}
	})
	waitMembers(t, a, 2)
	waitMembers(t, b, 2)
	gossip := a.list.LocalNode().Address()
	count := effort.Rounds{Test: 150, CI: 600}.Of(t) // messages of each kind of attack
	before := heap()
	var all sync.WaitGroup
	for i, address := range []string{a.o.Listener.Addr().String(), gossip} {
		all.Go(func() { randomStreams(t, address, count, uint64(i)) })
	}
	all.Go(func() {
		c, err := net.Dial("udp", gossip)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		r := rand.New(rand.NewPCG(7, 7))
		for range count {
			_, _ = c.Write(randomMessage(r)) // a full buffer of the receiver drops the packet
		}
	})
	all.Wait()
	if grown := heap() - before; grown > 64*mib {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	s := a.Status()
	if s.Served.Requests+s.Served.Errors+s.Served.Busy != 0 || len(s.Members) != 2 {
		t.Errorf("%+v", s)
	}
	if s.Strangers == 0 {
		t.Error("no connection was counted as refused")
	}
	text := log.String()
	for _, secret := range []string{string(k.secret[:]), base64.StdEncoding.EncodeToString(k.secret[:])} {
		if strings.Contains(text, secret) {
			t.Error("the log has the cluster key")
		}
	}
	if len(text) > mib {
		t.Errorf("the log has %d bytes", len(text))
	}
	id := pick(t, b, "node-0", "", 3*mib)
	e, err := b.Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil {
		t.Error(err)
	}
}

// randomStreams sends random messages over TCP and looks at the replies.
func randomStreams(t *testing.T, address string, count int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	for range count {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = c.Write(randomMessage(r))
		_ = c.(*net.TCPConn).CloseWrite()
		reply, _ := io.ReadAll(io.LimitReader(c, 4096))
		_ = c.Close()
		// A TLS alert has 7 bytes. A whole ClientHello, which gets more, never comes about at random.
		if len(reply) > 7 || bytes.Contains(reply, []byte("HTTP")) {
			t.Errorf("a stranger got the reply %q", reply)
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestStrangersWithTLS shakes hands without the key pair of the cluster. No request is answered.
func TestStrangersWithTLS(t *testing.T) {
	a := startNode(t, "node-0", testKey(t), &source{}, nil, nil)
	other, err := testKey(t).secure()
	if err != nil {
		t.Fatal(err)
	}
	id := objectOf("model", mib)
	ask := "GET " + blocksPath + "?" + encodeRequest(id, SpanOf(id, 0)) + " HTTP/1.1\r\nHost: x\r\n\r\n"
	lax := &tls.Config{InsecureSkipVerify: true}
	with := lax.Clone()
	with.Certificates = other.client.Certificates
	old := lax.Clone()
	old.MaxVersion = tls.VersionTLS12
	for name, conf := range map[string]*tls.Config{"no certificate": lax, "another certificate": with, "TLS 1.2": old} {
		for _, address := range []string{a.o.Listener.Addr().String(), a.list.LocalNode().Address()} {
			raw, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_ = raw.SetDeadline(time.Now().Add(time.Minute))
			c := tls.Client(raw, conf)
			_, _ = io.WriteString(c, ask)
			if reply, err := io.ReadAll(c); len(reply) > 0 || err == nil {
				t.Errorf("%s: %d bytes, %v; expected a refusal", name, len(reply), err)
			}
			_ = raw.Close()
		}
	}
	for a.Status().Strangers < 6 { // a stranger sees its refusal before it is counted
		runtime.Gosched()
	}
	if s := a.Status(); s.Strangers != 6 || s.Served.Requests+s.Served.Errors != 0 {
		t.Errorf("%+v", s)
	}
}

// tap is a proxy that records and changes the bytes between two members.
type tap struct {
	net.Listener
	to     string
	change func(b []byte, fromClient bool)
	mu     sync.Mutex
	sent   [][]byte // bytes of each client
}

func newTap(t *testing.T, to string, change func(b []byte, fromClient bool)) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Listener: l, to: to, change: change}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.pass(c)
		}
	}()
	return p
}

func (p *tap) pass(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer s.Close()
	p.mu.Lock()
	n := len(p.sent)
	p.sent = append(p.sent, nil)
	p.mu.Unlock()
	go p.copy(c, s, func(b []byte) { p.change(b, false) })
	p.copy(s, c, func(b []byte) {
		p.change(b, true)
		p.mu.Lock()
		p.sent[n] = append(p.sent[n], b...)
		p.mu.Unlock()
	})
}

func (p *tap) copy(to, from net.Conn, see func([]byte)) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		see(b[:n])
		if _, e := to.Write(b[:n]); err != nil || e != nil {
			return
		}
	}
}

// TestReplay records the request of a member and sends the same bytes again. The node does not answer the replay.
func TestReplay(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{})
	p := newTap(t, nodes[1].o.Listener.Addr().String(), func([]byte, bool) {})
	id := objectOf("model", mib)
	m := Member{Name: "node-1", Address: p.Addr().String(), Version: Version}
	s, _, err := nodes[0].openStream(t.Context(), m, nodes[0].peers.of("node-1"), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	p.mu.Lock()
	record := bytes.Clone(p.sent[0])
	p.mu.Unlock()
	before := nodes[1].Status()
	for range 20 {
		c, err := net.Dial("tcp", p.to)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = c.Write(record)
		reply, _ := io.ReadAll(c)
		_ = c.Close()
		if len(reply) > 4096 {
			t.Errorf("the replay got %d bytes", len(reply))
		}
	}
	for nodes[1].Status().Strangers < before.Strangers+20 { // a stranger sees its refusal before it is counted
		runtime.Gosched()
	}
	after := nodes[1].Status()
	if after.Served.Blocks > 1 || after.Strangers != before.Strangers+20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestChangedBytesOnTheWire flips one bit on the way at different places. The caller never gets a wrong block.
func TestChangedBytesOnTheWire(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{})
	id := objectOf("model", 2*mib)
	for _, at := range []int64{10, 500, 1500, 3000, 5000, 100000, mib + 5000} {
		for _, client := range []bool{true, false} {
			if client && at > 1500 {
				continue // the client sends less
			}
			var mu sync.Mutex
			seen := int64(0)
			p := newTap(t, nodes[1].o.Listener.Addr().String(), func(b []byte, fromClient bool) {
				mu.Lock()
				defer mu.Unlock()
				if fromClient == client {
					if i := at - seen; i >= 0 && i < int64(len(b)) {
						b[i] ^= 4
					}
					seen += int64(len(b))
				}
			})
			peer := &peer{limits: nodes[0].o.Limits, now: time.Now}
			m := Member{Name: "node-1", Address: p.Addr().String(), Version: Version}
			s, b, err := nodes[0].openStream(t.Context(), m, peer, id, SpanOf(id, 0))
			for i := int64(0); err == nil; i++ {
				if !bytes.Equal(b.Data, contentOf(id, i)) {
					t.Fatalf("a wrong block was accepted (byte %d)", at)
				}
				b, err = s.block()
			}
			if s != nil {
				s.close()
			}
			mu.Lock()
			if reached := seen > at; reached && errors.Is(err, io.EOF) {
				t.Errorf("the change of byte %d was not noticed", at)
			}
			mu.Unlock()
		}
	}
}

// TestStalledStrangers opens more connections than there are handshakes, and sends nothing. Members at other addresses
// still get their blocks.
func TestStalledStrangers(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{})
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 2 * handshakesAtOnce {
		c, err := d.DialContext(t.Context(), "tcp", nodes[1].o.Listener.Addr().String())
		if err != nil {
			t.Skip("this machine has no second loopback address: ", err)
		}
		defer c.Close()
	}
	id := pick(t, nodes[0], "node-1", "", 2*mib)
	e, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil {
		t.Error(err)
	}
}

// TestMembersThatLie has the key and gives replies that no honest member gives. Each ends in bounded time and memory
// with an error.
func TestMembersThatLie(t *testing.T) {
	n := startNode(t, "node-0", testKey(t), &source{}, nil, func(o *Options) {
		o.Limits.FirstBlock, o.Limits.NextBlock = 10*time.Second, 10*time.Second
	})
	id := objectOf("model", 3*mib+5)
	span := SpanOf(id, 0)
	whole := replyOf(id, span)
	length := strconv.Itoa(len(whole))
	for name, lie := range map[string]struct {
		answer  http.HandlerFunc
		isWrong bool
	}{
		"longer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(whole)+1))
			_, _ = w.Write(append(bytes.Clone(whole), 0))
		}, true},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(whole); err != nil {
					return
				}
			}
		}, true},
		"short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(whole[:len(whole)-1])
		}, false},
		"empty": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") }, true},
		"another object": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(replyOf(objectOf("other", id.Size), span))
		}, true},
		"another block": {func(w http.ResponseWriter, _ *http.Request) {
			bad := bytes.Clone(whole)
			bad[headerBytes+7] = 1
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(bad)
		}, true},
		"huge length": {func(w http.ResponseWriter, _ *http.Request) {
			bad := bytes.Clone(whole)
			bad[headerBytes+16] = 0x7f
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(bad)
		}, true},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}, false},
		"many headers": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range 2000 {
				w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("y", 1000))
			}
		}, false},
		"long refusal": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			for {
				if _, err := w.Write(whole); err != nil {
					return
				}
			}
		}, false},
		"another name": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(memberHeader, "somebody")
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(whole)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveLies(t, n.o.Key, lie.answer)
			p := &peer{limits: n.o.Limits, now: time.Now}
			wrong := n.Status().Fetched.Wrong
			s, b, err := n.openStream(t.Context(), Member{Name: "liar", Address: address, Version: Version}, p, id, span)
			for i := int64(0); err == nil; i++ {
				if !bytes.Equal(b.Data, contentOf(id, i)) {
					t.Fatal("a wrong block was accepted")
				}
				b, err = s.block()
			}
			if s != nil {
				s.close()
			}
			if errors.Is(err, io.EOF) {
				t.Error("the reply was accepted")
			}
			if got := n.Status().Fetched.Wrong > wrong; got != lie.isWrong {
				t.Errorf("the reply was counted as wrong: %v; expected %v (%v)", got, lie.isWrong, err)
			}
			if errs.Is(err, errs.Corrupt) != lie.isWrong {
				t.Errorf("%v", err)
			}
		})
	}
}

// serveLies serves replies of a member with the key.
func serveLies(t *testing.T, k Key, answer http.HandlerFunc) (address string) {
	t.Helper()
	s, err := k.secure()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", s.server)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(memberHeader, "liar")
			answer(w, r)
		})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

// TestStrangeRequestsOfMembers sends requests with the key that no honest member sends.
func TestStrangeRequestsOfMembers(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{})
	base := "https://" + nodes[1].o.Listener.Addr().String()
	id := objectOf("a", 5)
	for request, status := range map[string]int{
		"GET /": 404, "GET /v1/blocks/": 404, "POST " + blocksPath: 405, "GET " + blocksPath: 400,
		"GET " + blocksPath + "?" + encodeRequest(id, Span{Extent: 7, First: 1, Count: 1}): 400,
		"GET " + blocksPath + "?" + strings.Repeat("a=b&", 500):                            400,
		"GET " + blocksPath + "?key=" + strings.Repeat("a", maxHeader+8192):                431,
	} {
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(context.Background(), method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := nodes[0].http.Do(req)
		if err != nil {
			t.Errorf("%.60s: %v", request, err)
			continue
		}
		_ = reply.Body.Close()
		if reply.StatusCode != status {
			t.Errorf("%.60s: status %d; expected %d", request, reply.StatusCode, status)
		}
	}
	strange := object.Identity{Origin: "file:///etc/passwd", Key: "../../x", Size: 5}
	m := Member{Name: "node-1", Address: nodes[1].o.Listener.Addr().String()}
	if _, _, err := nodes[0].openStream(t.Context(), m, nodes[0].peers.of("node-1"), strange, Span{Count: 1}); err == nil {
		t.Error("an origin that is no upstream bucket was served")
	}
}
