// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestPartitionAndRejoin cuts the network between one node and two others. Both parts go on, and find each other when
// the network is back.
func TestPartitionAndRejoin(t *testing.T) {
	w := &network{side: map[string]int{}}
	nodes := startNodes(t, w, &source{}, &source{}, &source{})
	id := pick(t, nodes[0], "node-2", "node-1", 3*mib)
	w.move(1, nodes[2])
	// A loaded machine may lose a live member for a moment: the wait is for the member that is cut off.
	for _, n := range nodes[:2] {
		for isLost := false; !isLost; {
			changed := n.Changed()
			all := n.Status().Members
			isLost = slices.ContainsFunc(all, func(m MemberStatus) bool {
				return m.State == StateLost && m.Name == "node-2" && m.Since != nil
			})
			if isLost {
				break
			}
			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatalf("%+v", all)
			}
		}
	}
	waitMembers(t, nodes[2], 1)
	if _, err := nodes[2].Fetch(t.Context(), id, SpanOf(id, 0)); !errors.Is(err, ErrOwner) {
		t.Errorf("a node alone owns all extents, but Fetch returned %v", err)
	}
	// A loaded machine may lose a live member for a moment: the wait is for the member that has to give the blocks.
	waitFrom := func(name string) {
		t.Helper()
		for from := ""; from != name; {
			changed := nodes[0].Changed()
			e, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0))
			if err == nil {
				if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil {
					t.Fatal(err)
				}
				if from = e.From(); from == name {
					return
				}
			}
			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatalf("blocks came from %q, %v; expected %s", from, err, name)
			}
		}
	}
	waitFrom("node-1")
	w.move(0, nodes[2])
	for _, n := range nodes {
		waitMembers(t, n, 3)
	}
	waitFrom("node-2")
}

// TestOwnerInAPartition asks an owner that gossip still believes to be alive. The second owner gives the blocks.
func TestOwnerInAPartition(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{}, &source{})
	id := pick(t, nodes[0], "node-2", "node-1", 3*mib)
	dead := nodes[0].peers.of("node-2")
	dead.mu.Lock()
	dead.limits.Backoff = time.Hour // longer than this test takes on a loaded machine
	dead.mu.Unlock()
	_ = nodes[2].o.Listener.Close()
	_ = nodes[2].server.Close()
	for range 5 {
		e, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil || e.From() != "node-1" {
			t.Errorf("from %s: %v", e.From(), err)
		}
	}
	s := nodes[0].Status()
	if s.Fetched.Errors != 3 || s.Members[2].State != StateFailing || s.Members[2].Why == "" {
		t.Errorf("a member that failed three times is not asked at once again: %+v", s)
	}
}

// TestLeave ends a node in order. Others notice at once, and keep it as lost, in case it comes back.
func TestLeave(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{})
	if err := nodes[1].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	waitMembers(t, nodes[0], 1)
}

// TestCloseLetsRequestsFinish ends a node while another one reads from it.
func TestCloseLetsRequestsFinish(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := &source{before: func(_ object.Identity, i int64) error {
		if i == 2 {
			once.Do(func() { close(reached) })
			<-release
		}
		return nil
	}}
	nodes := startNodes(t, nil, &source{}, slow)
	id := pick(t, nodes[0], "node-1", "", 5*mib)
	e, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	closed := make(chan error, 1)
	go func() { closed <- nodes[1].Close(context.Background()) }()
	waitMembers(t, nodes[0], 1)
	close(release)
	if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil || e.From() != "node-1" {
		t.Errorf("from %s: %v", e.From(), err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestZones puts nodes into two zones. All are members, and each zone has its own owners.
func TestZones(t *testing.T) {
	k := testKey(t)
	var nodes []*Node
	for i, zone := range []string{"a", "a", "b"} {
		nodes = append(nodes, startNode(t, fmt.Sprint("node-", i), k, &source{}, nil, func(o *Options) {
			o.Zone = zone
			if i > 0 {
				o.Seeds = []string{nodes[0].list.LocalNode().Address()}
			}
		}))
	}
	for _, n := range nodes {
		waitMembers(t, n, 3)
	}
	for i := range 50 {
		id := objectOf(fmt.Sprint(i), mib)
		if _, err := nodes[2].Fetch(t.Context(), id, SpanOf(id, 0)); !errors.Is(err, ErrOwner) {
			t.Errorf("the only node of zone b is no owner: %v", err)
		}
		for _, m := range nodes[0].Owners(id, 0) {
			if m.Zone != "a" {
				t.Errorf("an owner of zone a is in zone %q", m.Zone)
			}
		}
	}
}

// TestWrongKey starts a node with another key and a seed of the cluster. Neither learns of the other.
func TestWrongKey(t *testing.T) {
	var log lockedBuffer
	k := testKey(t)
	a := startNode(t, "a", k, &source{}, nil, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	b := startNode(t, "b", testKey(t), &source{}, nil, func(o *Options) {
		o.Seeds = []string{a.list.LocalNode().Address()}
	})
	for a.Status().Strangers == 0 { // until b has tried
		runtime.Gosched()
	}
	// b knows the address of a, and asks it for blocks.
	id := objectOf("secret", mib)
	m := Member{Name: "a", Address: a.o.Listener.Addr().String(), Version: Version}
	before := a.Status().Strangers
	if _, _, err := b.openStream(t.Context(), m, b.peers.of("a"), id, SpanOf(id, 0)); err == nil {
		t.Fatal("a node with another key got a block")
	}
	for a.Status().Strangers == before {
		runtime.Gosched()
	}
	if s := a.Status(); len(s.Members) != 1 || s.Served.Requests+s.Served.Errors != 0 || len(b.Members()) != 1 {
		t.Errorf("%+v", s)
	}
	if text := log.String(); strings.Contains(text, string(k.secret[:])) || strings.Contains(text, "secret") {
		t.Errorf("the log has a secret: %s", text)
	}
}

// lockedBuffer is a buffer for logs of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestWrongOptions fails to start, and leaves nothing behind.
func TestWrongOptions(t *testing.T) {
	k := testKey(t)
	for name, change := range map[string]func(*Options){
		"name":      func(o *Options) { o.Name = "" },
		"long name": func(o *Options) { o.Name = strings.Repeat("n", MaxName+1) },
		"key":       func(o *Options) { o.Key = Key{} },
		"zone":      func(o *Options) { o.Zone = strings.Repeat("z", MaxZone+1) },
		"weight":    func(o *Options) { o.Weight = -1 },
		"extents":   func(o *Options) { o.Extents = nil },
		"seed":      func(o *Options) { o.Seeds = []string{"http://a"} },
		"gossip":    func(o *Options) { o.Gossip = "nowhere" },
		"port":      func(o *Options) { o.Gossip = "127.0.0.1:http" },
		"advertise": func(o *Options) { o.Advertise = "nowhere.invalid" },
		"host":      func(o *Options) { o.Gossip = "nowhere.invalid:0" },
		"all IPv6":  func(o *Options) { o.Gossip = "[::]:0" },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Name: "a", Key: k, Listener: l, Gossip: "127.0.0.1:0", Extents: &source{}}
		change(&o)
		if n, err := Start(t.Context(), o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v; expected an error of kind Invalid", name, err)
			if n != nil {
				_ = n.Close(t.Context())
			}
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener is open", name)
		}
	}
	a := startNode(t, "a", k, &source{}, nil, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Name: "b", Key: k, Listener: l, Gossip: a.list.LocalNode().Address(),
		Extents: &source{}}); !errs.Is(err, errs.IO) || errs.FixOf(err) == "" {
		t.Errorf("a gossip address in use: %v", err)
	}
}

// TestKeys reads keys, and never shows them.
func TestKeys(t *testing.T) {
	text := NewKey()
	k, err := ParseKey(text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseKey(text); err != nil || again != k || NewKey() == text {
		t.Errorf("%v", err)
	}
	if a, b := k.derive("gossip"), k.derive("TLS"); a == b || bytes.Equal(a[:], k.secret[:]) {
		t.Error("keys for two purposes are equal")
	}
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, &k)} {
		if strings.Contains(shown, fmt.Sprint(k.secret[0])) && strings.Contains(shown, "[") {
			t.Errorf("the key is shown: %s", shown)
		}
	}
	for _, bad := range []string{"", "short", text[:40], text + "AAAA", strings.Repeat("A", 43) + "=", "ü" + text} {
		if _, err := ParseKey(bad); !errs.Is(err, errs.Invalid) || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if got, err := ReadKey(write("good", text, 0o640)); err != nil || got != k {
		t.Error(err)
	}
	if _, err := ReadKey(write("open", text, 0o644)); !errs.Is(err, errs.Permission) {
		t.Errorf("a file that everybody reads: %v", err)
	}
	if _, err := ReadKey(write("bad", "x"+text, 0o600)); !errs.Is(err, errs.Invalid) ||
		strings.Contains(err.Error(), text) {
		t.Errorf("a bad file: %v", err)
	}
	if _, err := ReadKey(filepath.Join(dir, "none")); !errs.Is(err, errs.NotFound) || errs.FixOf(err) == "" {
		t.Errorf("no file: %v", err)
	}
}

// TestSeeds parses seeds and resolves a name.
func TestSeeds(t *testing.T) {
	for seed, expected := range map[string]string{"a": "a 7946", "a:1": "a 1", "::1": "::1 7946", "[::1]:2": "::1 2",
		"10.0.0.1": "10.0.0.1 7946", "nebulaio.default.svc.cluster.local": "nebulaio.default.svc.cluster.local 7946"} {
		if host, port, err := ParseSeed(seed); err != nil || host+" "+port != expected {
			t.Errorf("%s: %s %s, %v", seed, host, port, err)
		}
	}
	for _, bad := range []string{"", ":1", "a:0", "a:b", "a b", "http://a", "a:1:2", "[::1]"} {
		if _, _, err := ParseSeed(bad); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	k := testKey(t)
	a := startNode(t, "a", k, &source{}, nil, nil)
	_, port, _ := net.SplitHostPort(a.list.LocalNode().Address())
	b := startNode(t, "b", k, &source{}, nil, func(o *Options) {
		o.Seeds = []string{"localhost:" + port, "nowhere.invalid"}
	})
	waitMembers(t, a, 2)
	waitMembers(t, b, 2)
}

// TestLogLines turns lines of memberlist into records, and bounds their number.
func TestLogLines(t *testing.T) {
	var out lockedBuffer
	now := time.Unix(1000, 0)
	l := &logLines{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	for i := range 1000 {
		_, _ = fmt.Fprintf(l, "[ERR] memberlist: bad packet %d %s", i, strings.Repeat("x", 2000))
	}
	if n := strings.Count(out.String(), "\n"); n != linesPerPeriod || len(out.String()) > linesPerPeriod*(maxLine+200) {
		t.Errorf("%d lines of %d bytes", n, len(out.String()))
	}
	now = now.Add(logPeriod)
	_, _ = io.WriteString(l, "[WARN] memberlist: more")
	_, _ = io.WriteString(l, "[DEBUG] memberlist: nothing")
	if s := out.String(); !strings.Contains(s, "lines=980") || !strings.Contains(s, "text=more") ||
		strings.Contains(s, "nothing") {
		t.Error(s[len(s)-200:])
	}
}

// TestBreaker opens after failures, lets one request try, and closes after an answer.
func TestBreaker(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &peer{limits: Limits{}.withDefaults(), now: func() time.Time { return now }}
	fail := func() {
		t.Helper()
		if !p.allow() {
			t.Fatal("the member is not asked")
		}
		p.bad("down", false)
	}
	for range 3 {
		fail()
	}
	for pause := 2 * time.Second; pause <= 2*time.Minute; pause *= 2 {
		pause = min(pause, maxBackoff)
		now = now.Add(pause - time.Nanosecond)
		if p.allow() {
			t.Fatalf("the member is asked within %s", pause)
		}
		now = now.Add(time.Nanosecond)
		if !p.allow() || p.allow() {
			t.Fatal("expected that one request tries the member")
		}
		p.bad("still down", false)
		if pause == maxBackoff {
			break
		}
	}
	now = now.Add(maxBackoff)
	if state, why, _ := p.state(); state != StateFailing || why != "still down" || !p.allow() {
		t.Errorf("state %s: %s", state, why)
	}
	p.idle() // the request was cancelled: another one may try
	if !p.allow() {
		t.Error("a cancelled try blocks the next")
	}
	p.answered()
	if state, _, _ := p.state(); state != StateAlive || !p.allow() || !p.allow() {
		t.Error("an answer does not close the breaker")
	}
	p.bad("lied", true)
	p.refresh()
	if p.allow() {
		t.Error("a liar is asked after its restart")
	}
	now = now.Add(p.limits.Distrust)
	if !p.allow() {
		t.Error("a liar is never asked again")
	}
}

// TestGossipOnAName listens on the address of the name alone, and not on all addresses.
func TestGossipOnAName(t *testing.T) {
	n := startNode(t, "a", testKey(t), &source{}, nil, func(o *Options) { o.Gossip = "localhost:0" })
	if ip := n.list.LocalNode().Addr; !ip.IsLoopback() {
		t.Errorf("gossip on localhost listens on %s", ip)
	}
	b := startNode(t, "b", testKey(t), &source{}, nil, func(o *Options) {
		o.Gossip, o.Advertise = ":0", "127.0.0.1"
	})
	if ip := b.list.LocalNode().Addr; !ip.IsLoopback() || b.Members()[0].Address[:10] != "127.0.0.1:" {
		t.Errorf("the advertised address is %s, %s", ip, b.Members()[0].Address)
	}
	if err := b.transport.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := b.transport.Shutdown(); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
}

// TestTwoNodesOfOneName starts two nodes with the same name. The first keeps its place, and the log says what to do.
func TestTwoNodesOfOneName(t *testing.T) {
	var log lockedBuffer
	k := testKey(t)
	a := startNode(t, "twin", k, &source{}, nil, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	b := startNode(t, "twin", k, &source{}, nil, func(o *Options) { o.Seeds = []string{a.list.LocalNode().Address()} })
	for !strings.Contains(log.String(), "two nodes of the cluster have the same name") {
		runtime.Gosched()
	}
	if text := log.String(); !strings.Contains(text, "set cluster.name") ||
		!strings.Contains(text, b.list.LocalNode().Address()) {
		t.Error(text)
	}
	if m := a.Members(); len(m) != 1 || m[0].Gossip != a.list.LocalNode().Address() {
		t.Errorf("%+v", m)
	}
}
