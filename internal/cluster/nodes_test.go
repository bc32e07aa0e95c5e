// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// testOrigin is the upstream bucket of the tests.
const testOrigin = "https://upstream.example/bucket"

// contentOf returns the bytes of a block. Each block of each object has its own bytes.
func contentOf(id object.Identity, index int64) []byte {
	h := id.Hash()
	x := binary.LittleEndian.Uint64(h[:]) ^ uint64(index)*0x9e3779b97f4a7c15 | 1
	b := make([]byte, 0, lengthOf(id, index)+8)
	for int64(len(b)) < lengthOf(id, index) {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:lengthOf(id, index)]
}

// objectOf names an object of some size.
func objectOf(key string, size int64) object.Identity {
	return object.Identity{Origin: testOrigin, Key: key, ETag: "0123456789abcdef", Size: size}
}

// source is an Extents that makes the content of every object of testOrigin.
type source struct {
	reads  atomic.Int64 // blocks that were read
	before func(id object.Identity, index int64) error
	change func(b *Block) // makes a block wrong
	short  int64          // end with io.EOF after this number of blocks, if not 0
}

// Blocks implements Extents.
func (s *source) Blocks(ctx context.Context, id object.Identity, span Span) (Blocks, error) {
	if id.Origin != testOrigin {
		return nil, errs.New(errs.NotFound, "read", id.Origin, "is no upstream bucket of this node")
	}
	return &made{s: s, ctx: ctx, id: id, rest: span}, nil
}

type made struct {
	s    *source
	ctx  context.Context
	id   object.Identity
	rest Span
	done int64
}

func (m *made) Next() (Block, error) {
	if m.rest.Count == 0 || m.s.short > 0 && m.done == m.s.short {
		return Block{}, io.EOF
	}
	if m.s.before != nil {
		if err := m.s.before(m.id, m.rest.First); err != nil {
			return Block{}, err
		}
	}
	if err := m.ctx.Err(); err != nil {
		return Block{}, err
	}
	m.s.reads.Add(1)
	data := contentOf(m.id, m.rest.First)
	b := Block{Index: m.rest.First, Sum: checksum.Of(data), Data: data}
	if m.s.change != nil {
		m.s.change(&b)
	}
	m.rest.First++
	m.rest.Count--
	m.done++
	return b, nil
}

func (m *made) Close() error { return nil }

// network cuts connections between nodes by their gossip and HTTP addresses.
type network struct {
	mu   sync.Mutex
	side map[string]int // address to the part of the network; 0 means connected with everybody of part 0
}

func (w *network) move(part int, nodes ...*Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range nodes {
		w.side[n.list.LocalNode().Address()] = part
		w.side[n.o.Listener.Addr().String()] = part
	}
}

func (w *network) isCut(from *atomic.Pointer[Node], addr string) bool {
	n := from.Load()
	if n == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.side[n.list.LocalNode().Address()] != w.side[addr]
}

// testKey is a key for tests.
func testKey(t testing.TB) Key {
	t.Helper()
	k, err := ParseKey(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// startNode starts a node on loopback. change may change its options.
func startNode(t testing.TB, name string, k Key, x Extents, w *network, change func(*Options)) *Node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Name: name, Key: k, Listener: l, Gossip: "127.0.0.1:0", Weight: 100, Extents: x,
		// Without probes, a loaded machine loses no members. Tests that need probes set their interval.
		Limits: Limits{Rejoin: 100 * time.Millisecond, FirstByte: time.Minute, FirstBlock: time.Minute, probe: time.Hour}}
	var self atomic.Pointer[Node]
	if w != nil {
		o.cut = func(addr string) bool { return w.isCut(&self, addr) }
	}
	if change != nil {
		change(&o)
	}
	n, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	self.Store(n)
	t.Cleanup(func() {
		ctx, cancel := context.WithDeadline(context.Background(), time.Now()) // do not wait for others
		defer cancel()
		_ = n.Close(ctx)
	})
	return n
}

// startNodes starts nodes with the given sources, and waits until each knows all. With a network, gossip looks for dead
// members.
func startNodes(t testing.TB, w *network, sources ...Extents) []*Node {
	t.Helper()
	probe := time.Hour
	if w != nil {
		probe = 300 * time.Millisecond
	}
	k := testKey(t)
	var nodes []*Node
	var seeds []string
	for i, x := range sources {
		n := startNode(t, fmt.Sprintf("node-%d", i), k, x, w, func(o *Options) { o.Seeds, o.Limits.probe = seeds, probe })
		seeds = []string{nodes0(nodes, n).list.LocalNode().Address()}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		waitMembers(t, n, len(nodes))
	}
	return nodes
}

func nodes0(all []*Node, n *Node) *Node {
	if len(all) > 0 {
		return all[0]
	}
	return n
}

// waitMembers waits until a node knows exactly count live members.
func waitMembers(t testing.TB, n *Node, count int) {
	t.Helper()
	for {
		changed := n.Changed()
		if len(n.Members()) == count {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("%s knows %d members, expected %d", n.o.Name, len(n.Members()), count)
		case <-time.After(time.Minute):
			t.Fatalf("%s knows %d members after a minute, expected %d", n.o.Name, len(n.Members()), count)
		}
	}
}

// byName returns the node of a member.
func byName(nodes []*Node, name string) *Node {
	for _, n := range nodes {
		if n.o.Name == name {
			return n
		}
	}
	return nil
}

// pick returns an object whose first extent is owned by the nodes first and second, in that order.
func pick(t testing.TB, n *Node, first, second string, size int64) object.Identity {
	t.Helper()
	for i := range 10000 {
		id := objectOf(fmt.Sprintf("object-%d", i), size)
		owners := n.Owners(id, 0)
		if owners[0].Name == first && (second == "" || len(owners) > 1 && owners[1].Name == second) {
			return id
		}
	}
	t.Fatalf("no object is owned by %s, then %s", first, second)
	return object.Identity{}
}

// readAll reads all blocks and compares them with the content. It returns the number of right blocks.
func readAll(t testing.TB, b Blocks, id object.Identity, span Span) (int64, error) {
	t.Helper()
	defer b.Close()
	for n := int64(0); ; n++ {
		block, err := b.Next()
		if errors.Is(err, io.EOF) {
			if n != span.Count {
				t.Fatalf("%d blocks came; expected %d", n, span.Count)
			}
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if block.Index != span.First+n || string(block.Data) != string(contentOf(id, block.Index)) {
			t.Fatalf("block %d of %s is wrong", block.Index, id.Key)
		}
	}
}
