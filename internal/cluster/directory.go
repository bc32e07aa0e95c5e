// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// directory is the list of live members that gossip keeps. memberlist calls its Notify methods, which must not block.
type directory struct {
	self string
	log  *slog.Logger
	came func(Member) // called without locks when a member has come

	mu      sync.Mutex
	live    map[string]Member
	lost    map[string]lostMember
	sorted  []Member
	changed chan struct{} // closed and replaced with each change
}

// lostMember is a member that gossip does not reach any more.
type lostMember struct {
	Member
	since time.Time
}

// keepLost is the time in which this node tries to reach a lost member again.
const keepLost = 24 * time.Hour

// mostLost bounds the list of lost members.
const mostLost = 1024

func newDirectory(self string, log *slog.Logger, came func(Member)) *directory {
	return &directory{self: self, log: log, came: came, live: map[string]Member{}, lost: map[string]lostMember{},
		changed: make(chan struct{})}
}

// all returns the live members in the order of their names. The caller must not change the slice.
func (d *directory) all() []Member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sorted
}

// get returns a live member by its name.
func (d *directory) get(name string) (Member, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.live[name]
	return m, ok
}

// knows reports whether a name is that of a live or lost member.
func (d *directory) knows(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, live := d.live[name]
	_, lost := d.lost[name]
	return live || lost
}

// gone returns the lost members in the order of their names.
func (d *directory) gone(now time.Time) []lostMember {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.lost, func(_ string, l lostMember) bool { return now.Sub(l.since) > keepLost })
	return slices.SortedFunc(maps.Values(d.lost), func(a, b lostMember) int { return strings.Compare(a.Name, b.Name) })
}

// watch returns a channel that is closed at the next change.
func (d *directory) watch() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// put changes the list. The caller holds no lock.
func (d *directory) put(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.sorted = slices.SortedFunc(maps.Values(d.live), func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	close(d.changed)
	d.changed = make(chan struct{})
}

// read returns the Member that a gossip node describes.
func (d *directory) read(node *memberlist.Node) (Member, error) {
	a, err := decodeAbout(node.Meta)
	if err != nil {
		return Member{}, err
	}
	return Member{Name: node.Name, Address: net.JoinHostPort(node.Addr.String(), strconv.Itoa(a.Port)),
		Gossip: node.Address(), Zone: a.Zone, Weight: a.Weight, Version: a.Version, Self: node.Name == d.self}, nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (d *directory) NotifyJoin(node *memberlist.Node) {
	m, err := d.read(node)
	if err != nil {
		d.log.Warn("a member's description is not understood", "member", node.Name, "error", err)
		return
	}
	d.put(func() {
		d.live[m.Name] = m
		delete(d.lost, m.Name)
	})
	if m.Self {
		return
	}
	d.came(m)
	if m.Version != Version {
		d.log.Warn("a member has another version of the protocol, and is not asked", "member", m.Name, "version", m.Version,
			"expected", Version)
	}
	d.log.Info("member joined", "member", m.Name, "address", m.Address, "zone", m.Zone, "weight", m.Weight)
}

// NotifyLeave implements memberlist.EventDelegate.
func (d *directory) NotifyLeave(node *memberlist.Node) {
	m, known := d.get(node.Name)
	if !known || m.Self {
		return
	}
	d.put(func() {
		delete(d.live, m.Name)
		if len(d.lost) < mostLost {
			d.lost[m.Name] = lostMember{m, time.Now()}
		}
	})
	d.log.Info("member left", "member", m.Name, "address", m.Address)
}

// NotifyUpdate implements memberlist.EventDelegate.
func (d *directory) NotifyUpdate(node *memberlist.Node) {
	m, err := d.read(node)
	if err != nil {
		d.log.Warn("a member's description is not understood", "member", node.Name, "error", err)
		d.put(func() { delete(d.live, node.Name) })
		return
	}
	d.put(func() { d.live[m.Name] = m })
}

// NotifyConflict implements memberlist.ConflictDelegate.
func (d *directory) NotifyConflict(existing, other *memberlist.Node) {
	d.log.Error("two nodes of the cluster have the same name", "name", existing.Name, "first", existing.Address(),
		"second", other.Address(), "fix", "set cluster.name to a name of its own on each node")
}
