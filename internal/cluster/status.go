// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync/atomic"
	"time"
)

// The states of a member in a Status.
const (
	StateSelf         = "self"          // this node
	StateAlive        = "alive"         // the member can be asked
	StateFailing      = "failing"       // the member is not asked for a while after failures
	StateDistrusted   = "distrusted"    // the member sent wrong bytes
	StateOtherVersion = "other version" // the member has another version of the protocol
	StateLost         = "lost"          // gossip does not reach the member
)

// States returns all states of a member.
func States() []string {
	return []string{StateSelf, StateAlive, StateFailing, StateDistrusted, StateOtherVersion, StateLost}
}

// Status describes the cluster as this node sees it.
type Status struct {
	Name    string         `json:"name"`
	Zone    string         `json:"zone"`
	Members []MemberStatus `json:"members"`
	Served  Served         `json:"served"`
	Fetched Fetched        `json:"fetched"`
	// Strangers is the number of connections that were closed because the other end did not prove the cluster key.
	Strangers int64 `json:"strangers"`
}

// MemberStatus describes one member.
type MemberStatus struct {
	Member
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // latest failure, if the member is not asked
	// Since is the time at which the member was lost.
	Since   *time.Time `json:"since,omitempty"`
	Fetched Counts     `json:"fetched"` // what this node has received from the member
}

// Served are numbers of what this node gave to other members.
type Served struct {
	Requests int64 `json:"requests"` // requests that were served whole
	Blocks   int64 `json:"blocks"`
	Bytes    int64 `json:"bytes"`
	Errors   int64 `json:"errors"` // requests that failed
	Busy     int64 `json:"busy"`   // requests that were refused because too many were in progress
}

// Fetched are numbers of what this node got from other members.
type Fetched struct {
	Counts
	Refused int64 `json:"refused"` // requests that an owner refused because it was busy or upstream failed
}

// tally counts one direction of the traffic between members.
type tally struct{ requests, blocks, bytes, errors, wrong, busy, refused atomic.Int64 }

// Status returns the state of the cluster as this node sees it.
func (n *Node) Status() Status {
	s := Status{Name: n.o.Name, Zone: n.o.Zone, Strangers: n.gate.refused.Load() + n.transport.gate.refused.Load(),
		Members: []MemberStatus{}}
	for _, m := range n.members.all() {
		ms := MemberStatus{Member: m, State: StateSelf}
		if !m.Self {
			ms.State, ms.Why, ms.Fetched = n.peers.of(m.Name).state()
			if m.Version != Version {
				ms.State = StateOtherVersion
			}
		}
		s.Members = append(s.Members, ms)
	}
	for _, l := range n.members.gone(time.Now()) {
		_, _, counts := n.peers.of(l.Name).state()
		s.Members = append(s.Members, MemberStatus{Member: l.Member, State: StateLost, Since: &l.since, Fetched: counts})
	}
	s.Served = Served{Requests: n.served.requests.Load(), Blocks: n.served.blocks.Load(), Bytes: n.served.bytes.Load(),
		Errors: n.served.errors.Load(), Busy: n.served.busy.Load()}
	f := &n.fetched
	s.Fetched = Fetched{Refused: f.refused.Load(), Counts: Counts{Requests: f.requests.Load(), Blocks: f.blocks.Load(),
		Bytes: f.bytes.Load(), Errors: f.errors.Load(), Wrong: f.wrong.Load()}}
	return s
}
