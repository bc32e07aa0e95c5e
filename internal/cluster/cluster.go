// SPDX-License-Identifier: Apache-2.0

// Package cluster lets the nodes in front of one upstream S3 server share their cached extents.
//
// The members find each other by gossip. Each extent of an object has an owner among the members, which every member
// computes in the same way from the list of members. A node that lacks an extent asks the owner for its blocks, then
// the second owner; if both fail, the node reads from upstream. The owner alone reads an absent extent from upstream.
//
// A wrong list of members costs speed, never truth: an Identity names one content, and every block is compared with
// its checksum. One secret key makes a node a member. Without the key, a program can neither read nor change what
// members send, and members close its connections.
package cluster

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Options configure a Node. Name, Key, Listener, Gossip and Extents are required.
type Options struct {
	Name string // unique name of this node in the cluster, at most MaxName bytes
	Key  Key
	// Listener accepts the connections of other members. The Node closes Listener.
	Listener net.Listener
	// Gossip is the HOST:PORT on which this node gossips over UDP and TCP. If the port is 0, Start chooses a free one.
	Gossip string
	// Advertise is the IP address or name under which other members reach this node. If Advertise is empty, the host
	// of Gossip is used, or a private address of this machine if Gossip has no host.
	Advertise string
	// Seeds are the HOST[:PORT] of members to contact. A name may stand for several addresses. The Node resolves the
	// names again and again, and ignores its own address.
	Seeds  []string
	Zone   string // members of one zone share extents among themselves, at most MaxZone bytes
	Weight int    // share of the extents that this node owns, relative to the other weights; 0 means none
	// Extents gives the blocks that this node serves to other members.
	Extents Extents
	Log     *slog.Logger // nil means no log
	Limits  Limits
}

// Limits are the deadlines and bounds of a Node. A field that is 0 has the default of its comment.
type Limits struct {
	FirstBlock time.Duration // largest time from the request to the first block, 3 s
	NextBlock  time.Duration // largest time between two blocks, 10 s
	Distrust   time.Duration // time in which a member that sent wrong bytes is not asked, 10 min
	Failures   int           // number of failures in a row after which a member is not asked for a while, 3
	Backoff    time.Duration // first pause after Failures failures, 2 s; each further failure doubles it, up to 1 min
	Requests   int           // largest number of requests of other members in progress, 256
	Rejoin     time.Duration // interval between two looks at the seeds, 15 s; 1 s while this node is alone

	fast bool // whether gossip notices failures in milliseconds; tests set fast
}

// Start joins the cluster and returns the Node. Start does not wait for other members, because a node alone is able to
// serve. The Node runs until Close is called; the end of ctx stops only the start.
//
// Start fails with kind Invalid if an option is wrong, and with kind IO if the gossip address is in use.
func Start(ctx context.Context, o Options) (*Node, error) { return nil, nil }

// Node is this node as a member of the cluster. All methods are safe for concurrent use.
type Node struct {
	o       Options
	members *directory
}

// Fetch asks the owners of the span's extent for its blocks, best first. Fetch returns after the first block has
// arrived, or fails. The caller closes the Extent.
//
// Fetch returns ErrOwner if this node is the best owner that can be asked, and ErrUnreachable if the owners gave
// nothing. In both cases the caller reads from upstream. Fetch does not check what a user may read; the caller does.
func (n *Node) Fetch(ctx context.Context, id object.Identity, span Span) (*Extent, error) {
	return nil, ErrOwner
}

// Extent is a Blocks that comes from another member. Every block is compared with its checksum before Next returns
// the block. If the member fails in the middle, the Extent goes on with the second owner. If no owner is left, Next
// returns ErrUnreachable, and the caller reads the rest from upstream.
type Extent struct{}

// From returns the name of the member that gave the latest block.
func (e *Extent) From() string { return "" }

// Next implements Blocks.
func (e *Extent) Next() (Block, error) { return Block{}, nil }

// Close implements Blocks. Close ends the request to the other member.
func (e *Extent) Close() error { return nil }

// Members returns all live members in the order of their names, with this node among them.
func (n *Node) Members() []Member { return n.members.all() }

// Close leaves the cluster, so that other members stop asking this node. Requests in progress may finish until ctx
// ends.
func (n *Node) Close(ctx context.Context) error { return nil }

type directory struct{}

func (d *directory) all() []Member { return nil }
