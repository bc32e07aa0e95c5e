// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

const mib = 1 << 20

// TestThreeNodesShareExtents reads extents of three nodes from each other, with short last blocks.
func TestThreeNodesShareExtents(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{}, &source{})
	id := objectOf("model", 3*object.Extent+5*mib+17)
	owned := 0
	for extent := range id.Extents() {
		for _, n := range nodes {
			span := SpanOf(id, extent)
			span.First += span.Count - 4
			span.Count = 4
			owners := n.Owners(id, extent)
			e, err := n.Fetch(t.Context(), id, span)
			if owners[0].Name == n.o.Name {
				owned++
				if !errors.Is(err, ErrOwner) {
					t.Errorf("%s owns extent %d, and Fetch returned %v", n.o.Name, extent, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readAll(t, e, id, span); err != nil {
				t.Fatal(err)
			}
			if e.From() != owners[0].Name {
				t.Errorf("extent %d came from %s; expected %s", extent, e.From(), owners[0].Name)
			}
		}
	}
	if owned != int(id.Extents()) {
		t.Errorf("%d owners for %d extents", owned, id.Extents())
	}
	var fetched, served int64
	for _, n := range nodes {
		s := n.Status()
		fetched, served = fetched+s.Fetched.Bytes, served+s.Served.Bytes
		if s.Strangers != 0 || s.Fetched.Errors != 0 || s.Served.Errors != 0 || len(s.Members) != 3 {
			t.Errorf("status of %s: %+v", n.o.Name, s)
		}
	}
	// Two of three nodes fetch 4 MiB of each of three whole extents, and 3 MiB and 17 bytes of the last one.
	if expected := int64(2 * (3*4*mib + 3*mib + 17)); fetched != expected || served != expected {
		t.Errorf("fetched %d bytes, served %d; expected %d", fetched, served, expected)
	}
}

// TestOwnersAgree compares the owners on all nodes.
func TestOwnersAgree(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{}, &source{})
	for i := range 1000 {
		id := objectOf(fmt.Sprint(i), object.Extent)
		for _, n := range nodes[1:] {
			for j, m := range n.Owners(id, 0) {
				if expected := nodes[0].Owners(id, 0)[j].Name; m.Name != expected {
					t.Fatalf("%s says owner %d of %s is %s; node-0 says %s", n.o.Name, j, id.Key, m.Name, expected)
				}
			}
		}
	}
}

// TestOwnerKilledInTheMiddle ends the owner after some blocks. The rest comes from the second owner.
func TestOwnerKilledInTheMiddle(t *testing.T) {
	var nodes []*Node
	var once sync.Once
	id := object.Identity{}
	kill := &source{before: func(_ object.Identity, index int64) error {
		if index == 5 {
			once.Do(func() {
				n := byName(nodes, nodes[0].Owners(id, 0)[0].Name)
				_ = n.server.Close() // as a killed process: connections end without a last word
				_ = n.o.Listener.Close()
			})
		}
		return nil
	}}
	nodes = startNodes(t, nil, &source{}, kill, &source{})
	id = pick(t, nodes[0], "node-1", "node-2", 20*mib+1)
	span := SpanOf(id, 0)
	e, err := nodes[0].Fetch(t.Context(), id, span)
	if err != nil {
		t.Fatal(err)
	}
	if e.From() != "node-1" {
		t.Fatalf("the first block came from %s", e.From())
	}
	if _, err := readAll(t, e, id, span); err != nil {
		t.Fatal(err)
	}
	if e.From() != "node-2" {
		t.Errorf("the last block came from %s; expected node-2", e.From())
	}
	if s := nodes[0].Status(); s.Fetched.Errors != 1 || s.Fetched.Wrong != 0 {
		t.Errorf("%+v", s.Fetched)
	}
}

// TestBothOwnersFail reads the rest from upstream: Next says so after right blocks alone.
func TestBothOwnersFail(t *testing.T) {
	broken := func() *source {
		return &source{before: func(_ object.Identity, index int64) error {
			if index == 3 {
				return errs.New(errs.IO, "read", "disk", "failed")
			}
			return nil
		}}
	}
	nodes := startNodes(t, nil, &source{}, broken(), broken())
	id := pick(t, nodes[0], "node-1", "node-2", 20*mib)
	span := SpanOf(id, 0)
	e, err := nodes[0].Fetch(t.Context(), id, span)
	if err != nil {
		t.Fatal(err)
	}
	n, err := readAll(t, e, id, span)
	if n != 3 || !errors.Is(err, ErrUnreachable) {
		t.Errorf("%d blocks, then %v; expected 3 blocks, then ErrUnreachable", n, err)
	}
	if _, again := e.Next(); !errors.Is(again, ErrUnreachable) {
		t.Errorf("a second Next returned %v", again)
	}
}

// TestLyingPeers asks members that give wrong bytes, checksums and lengths. The second owner gives the right bytes, and
// the member is not asked again.
func TestLyingPeers(t *testing.T) {
	for name, lie := range map[string]*source{
		"wrong bytes": {change: func(b *Block) { b.Data[17] ^= 1 }},
		"wrong sum":   {change: func(b *Block) { b.Sum++ }},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := startNodes(t, nil, &source{}, lie, &source{})
			id := pick(t, nodes[0], "node-1", "node-2", 5*mib)
			span := SpanOf(id, 0)
			for range 3 {
				e, err := nodes[0].Fetch(t.Context(), id, span)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := readAll(t, e, id, span); err != nil {
					t.Fatal(err)
				}
				if e.From() != "node-2" {
					t.Errorf("blocks came from %s", e.From())
				}
			}
			s := nodes[0].Status()
			if s.Fetched.Wrong != 1 {
				t.Errorf("%d wrong replies were counted; expected 1, because a liar is asked once", s.Fetched.Wrong)
			}
			if s.Members[1].State != StateDistrusted || s.Members[1].Why == "" {
				t.Errorf("%+v", s.Members[1])
			}
		})
	}
}

// TestSourceThatEndsEarly gives a short reply, which is an error and never a short object.
func TestSourceThatEndsEarly(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{short: 2}, &source{})
	id := pick(t, nodes[0], "node-1", "node-2", 5*mib)
	e, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := readAll(t, e, id, SpanOf(id, 0)); err != nil || n != 5 || e.From() != "node-2" {
		t.Errorf("%d blocks from %s, %v", n, e.From(), err)
	}
}

// TestSlowOwner gives no block before the deadline. The second owner gives it.
func TestSlowOwner(t *testing.T) {
	release := make(chan struct{})
	slow := &source{before: func(object.Identity, int64) error { <-release; return nil }}
	t.Cleanup(func() { close(release) })
	k := testKey(t)
	a := startNode(t, "node-0", k, &source{}, nil, func(o *Options) { o.Limits.FirstBlock = 200 * time.Millisecond })
	seeds := func(o *Options) { o.Seeds = []string{a.list.LocalNode().Address()} }
	b := startNode(t, "node-1", k, slow, nil, seeds)
	c := startNode(t, "node-2", k, &source{}, nil, seeds)
	for _, n := range []*Node{a, b, c} {
		waitMembers(t, n, 3)
	}
	// The deadline is short and the machine may be loaded: node-2 is asked until it answers in time.
	id := pick(t, a, "node-1", "node-2", 5*mib)
	for {
		e, err := a.Fetch(t.Context(), id, SpanOf(id, 0))
		if errors.Is(err, ErrUnreachable) {
			a.peers.of("node-2").refresh() // as if it had never failed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t, e, id, SpanOf(id, 0)); err != nil {
			t.Fatal(err)
		}
		if e.From() != "node-2" {
			t.Errorf("blocks came from %s", e.From())
		}
		break
	}
	if s := a.Status(); s.Members[1].Fetched.Errors == 0 {
		t.Errorf("the slow member has no error: %+v", s.Members[1])
	}
}

// TestRefusals asks for an object of an unknown upstream, and for one whose upstream fails.
func TestRefusals(t *testing.T) {
	failing := &source{before: func(object.Identity, int64) error {
		return errs.New(errs.IO, "read", "upstream", "connection reset")
	}}
	nodes := startNodes(t, nil, &source{}, failing, &source{})
	id := pick(t, nodes[0], "node-1", "node-2", 5*mib)
	if _, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0)); !errors.Is(err, ErrUnreachable) {
		t.Errorf("upstream of the owner fails: %v", err)
	}
	strange := id
	strange.Origin = "https://elsewhere.example/private"
	for i := 0; ; i++ {
		strange.Key = fmt.Sprint(i)
		if !nodes[0].Owners(strange, 0)[0].Self {
			break
		}
	}
	if _, err := nodes[0].Fetch(t.Context(), strange, SpanOf(strange, 0)); !errors.Is(err, ErrUnreachable) &&
		!errors.Is(err, ErrOwner) {
		t.Errorf("an origin that no node has: %v", err)
	}
	if s := nodes[0].Status(); s.Fetched.Refused < 2 || s.Fetched.Errors != 0 {
		t.Errorf("refusals are no failures of a member: %+v", s.Fetched)
	}
	if _, err := nodes[0].Fetch(t.Context(), id, Span{Extent: 1, Count: 1}); !errs.Is(err, errs.Invalid) {
		t.Errorf("an extent that does not exist: %v", err)
	}
}

// TestFetchEndsWithItsContext cancels a request in the middle. The member is not to blame.
func TestFetchEndsWithItsContext(t *testing.T) {
	nodes := startNodes(t, nil, &source{}, &source{})
	id := pick(t, nodes[0], "node-1", "", 60*mib)
	ctx, cancel := context.WithCancel(t.Context())
	e, err := nodes[0].Fetch(ctx, id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	cancel()
	for err == nil {
		_, err = e.Next()
	}
	if errors.Is(err, io.EOF) || !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v; expected an error of kind Cancelled", err)
	}
	if s := nodes[0].Status(); s.Fetched.Errors != 0 || s.Members[1].State != StateAlive {
		t.Errorf("%+v", s)
	}
}

// TestCloseEndsAWaitingNext closes an Extent while Next waits for a block.
func TestCloseEndsAWaitingNext(t *testing.T) {
	release, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := &source{before: func(_ object.Identity, i int64) error {
		if i == 2 {
			once.Do(func() { close(reached) })
			<-release
		}
		return nil
	}}
	t.Cleanup(func() { close(release) })
	nodes := startNodes(t, nil, &source{}, slow)
	id := pick(t, nodes[0], "node-1", "", 5*mib)
	e, err := nodes[0].Fetch(t.Context(), id, SpanOf(id, 0))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-reached
		_ = e.Close()
	}()
	if n, err := readAll(t, e, id, SpanOf(id, 0)); n > 2 || !errs.Is(err, errs.Closed) {
		t.Errorf("%d blocks, then %v", n, err)
	}
	if s := nodes[0].Status(); s.Fetched.Errors != 0 {
		t.Errorf("%+v", s.Fetched)
	}
}

// TestTooManyRequests refuses requests beyond the limit without an error of the member.
func TestTooManyRequests(t *testing.T) {
	release, reached := make(chan struct{}), make(chan struct{}, 8)
	slow := &source{before: func(object.Identity, int64) error {
		reached <- struct{}{}
		<-release
		return nil
	}}
	k := testKey(t)
	a := startNode(t, "node-0", k, &source{}, nil, nil)
	b := startNode(t, "node-1", k, slow, nil, func(o *Options) {
		o.Seeds, o.Limits.Requests = []string{a.list.LocalNode().Address()}, 1
	})
	waitMembers(t, a, 2)
	waitMembers(t, b, 2)
	id := pick(t, a, "node-1", "", mib)
	first := make(chan error, 1)
	go func() {
		e, err := a.Fetch(t.Context(), id, SpanOf(id, 0))
		if err == nil {
			_ = e.Close()
		}
		first <- err
	}()
	<-reached
	if _, err := a.Fetch(t.Context(), id, SpanOf(id, 0)); !errors.Is(err, ErrOwner) {
		t.Errorf("%v; expected that this node, the second owner, reads itself", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if s := b.Status(); s.Served.Busy != 1 {
		t.Errorf("%+v", s.Served)
	}
}

// same is an Extents whose blocks all have the same bytes, so that a benchmark measures the way and not the source.
type same struct{ block Block }

func (s same) Blocks(_ context.Context, _ object.Identity, span Span) (Blocks, error) {
	return &sameBlocks{s.block, span}, nil
}

type sameBlocks struct {
	Block
	rest Span
}

func (s *sameBlocks) Next() (Block, error) {
	if s.rest.Count == 0 {
		return Block{}, io.EOF
	}
	b := s.Block
	b.Index = s.rest.First
	s.rest.First++
	s.rest.Count--
	return b, nil
}

func (s *sameBlocks) Close() error { return nil }

// BenchmarkFetch fetches whole extents of another node in the same process, and reports the CPU time of both nodes.
func BenchmarkFetch(b *testing.B) {
	data := make([]byte, BlockSize)
	x := same{Block{Sum: checksum.Of(data), Data: data}}
	nodes := startNodes(b, nil, x, x)
	id := pick(b, nodes[0], "node-1", "", object.Extent)
	b.SetBytes(object.Extent)
	b.ReportAllocs()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		e, err := nodes[0].Fetch(b.Context(), id, SpanOf(id, 0))
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = e.Next()
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		_ = e.Close()
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N)/(object.Extent/float64(1<<30))/1e6, "cpu-ms/GiB")
}

// BenchmarkPlain sends the same blocks and checksums over plain TCP, without HTTP and TLS, for comparison.
func BenchmarkPlain(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	data := make([]byte, BlockSize)
	sum := checksum.Of(data)
	go func() {
		c, err := l.Accept()
		for err == nil {
			_, err = c.Write(data)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, BlockSize)
	b.SetBytes(object.Extent)
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		for range object.Extent / BlockSize {
			if _, err := io.ReadFull(c, got); err != nil || checksum.Of(got) != sum {
				b.Fatal(err)
			}
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N)/(object.Extent/float64(1<<30))/1e6, "cpu-ms/GiB")
}
