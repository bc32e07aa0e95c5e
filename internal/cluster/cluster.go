// SPDX-License-Identifier: Apache-2.0

// Package cluster lets the nodes in front of one upstream S3 server share their cached extents.
//
// The members find each other by gossip. Each extent of an object has an owner among the members, which every member
// computes in the same way from the list of members. A node that lacks an extent asks the owner for its blocks, then
// the second owner; if both fail, the node reads from upstream. The owner alone reads an absent extent from upstream.
//
// A wrong list of members makes reads slower, and never wrong. An Identity names one content, and every block is
// compared with its checksum. The secret key of the cluster makes a node a member. Without the key, a program can
// neither read nor change what members send, and members close its connections.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nebulaio/nebulaio/internal/errs"
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

	cut func(addr string) bool // nil, or reports whether the network to and from addr is cut; tests set cut
	// after calls a function after some time; nil means time.AfterFunc. Tests set after.
	after func(time.Duration, func()) timer
}

// timer is a *time.Timer of time.AfterFunc.
type timer interface {
	Stop() bool
	Reset(time.Duration) bool
}

// Limits are the deadlines and bounds of a Node. A field that is 0 has the default of its comment.
type Limits struct {
	// FirstByte is the largest time without any sign of a member that is asked, 3 s. A member that waits for its own
	// upstream gives a sign three times in this time.
	FirstByte  time.Duration
	FirstBlock time.Duration // largest time from the request to the first block, 15 s
	NextBlock  time.Duration // largest time between two blocks, 20 s
	Distrust   time.Duration // time in which a member that sent wrong bytes is not asked, 10 min
	Failures   int           // number of failures in a row after which a member is not asked for a while, 3
	Backoff    time.Duration // first pause after Failures failures, 2 s; each further failure doubles it, up to 1 min
	Requests   int           // largest number of requests of other members in progress, 256
	Rejoin     time.Duration // interval between two looks at the seeds, 15 s; 1 s while this node is alone

	probe time.Duration // if not 0, gossip is fast and looks for dead members in this interval; tests set probe
}

// withDefaults returns l with a value in each field.
func (l Limits) withDefaults() Limits {
	def := func(d *time.Duration, v time.Duration) { *d = cmp.Or(*d, v) }
	def(&l.FirstByte, 3*time.Second)
	def(&l.FirstBlock, 15*time.Second)
	def(&l.NextBlock, 20*time.Second)
	def(&l.Distrust, 10*time.Minute)
	def(&l.Backoff, 2*time.Second)
	def(&l.Rejoin, 15*time.Second)
	l.Failures = cmp.Or(l.Failures, 3)
	l.Requests = cmp.Or(l.Requests, 256)
	return l
}

// check returns what is wrong with the options.
func (o *Options) check() error {
	bad := func(name, msg string) error { return errs.New(errs.Invalid, "join the cluster", name, msg) }
	switch {
	case o.Name == "" || len(o.Name) > MaxName:
		return bad("name "+strconv.Quote(o.Name), fmt.Sprintf("has %d bytes; expected 1 to %d", len(o.Name), MaxName))
	case o.Key == Key{}:
		return bad("key", "is not set; expected a cluster key")
	case len(o.Zone) > MaxZone:
		return bad("zone "+strconv.Quote(o.Zone), fmt.Sprintf("has %d bytes; expected at most %d", len(o.Zone), MaxZone))
	case o.Weight < 0 || o.Weight > MaxWeight:
		return bad("weight "+strconv.Itoa(o.Weight), fmt.Sprintf("expected a number from 0 to %d", MaxWeight))
	case o.Listener == nil || o.Extents == nil:
		return bad("options", "Listener or Extents is not set")
	}
	for _, seed := range o.Seeds {
		if _, _, err := ParseSeed(seed); err != nil {
			return err
		}
	}
	return nil
}

// Node is this node as a member of the cluster. All methods are safe for concurrent use.
type Node struct {
	o         Options
	about     []byte // what this node says about itself
	members   *directory
	peers     *peers
	list      *memberlist.Memberlist
	transport *transport
	gate      *gate
	http      *http.Client
	server    *http.Server
	slots     chan struct{} // requests of other members in progress

	served, fetched tally

	stop    context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
}

// Start joins the cluster and returns the Node. Start does not wait for other members, because a node alone is able to
// serve. The Node runs until Close is called; the end of ctx stops only the start.
//
// Start fails with kind Invalid if an option is wrong, and with kind IO if the gossip address is in use. If Start
// fails, it closes the Listener.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	defer func() {
		if err != nil && o.Listener != nil {
			_ = o.Listener.Close()
		}
	}()
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Limits = o.Limits.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.after == nil {
		o.after = func(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }
	}
	n := &Node{o: o, slots: make(chan struct{}, o.Limits.Requests)}
	n.peers = &peers{limits: o.Limits, now: time.Now, all: map[string]*peer{}}
	n.members = newDirectory(o.Name, o.Log, func(m Member) { n.peers.of(m.Name).refresh() })
	s, err := o.Key.secure()
	if err != nil {
		return nil, err
	}
	_, portText, _ := net.SplitHostPort(o.Listener.Addr().String())
	port, _ := strconv.Atoi(portText)
	if n.about, err = (about{Version: Version, Port: port, Zone: o.Zone, Weight: o.Weight}).encode(); err != nil {
		return nil, err
	}
	if err := n.startGossip(ctx, s); err != nil {
		return nil, err
	}
	n.gate = newGate(s.server)
	n.http, n.server = n.newClient(s), n.newServer()
	listener := n.gate.listen(o.Listener)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	n.running.Go(func() {
		if err := n.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("the listener for other members failed", "address", o.Listener.Addr().String(), "error", err)
		}
	})
	n.running.Go(func() { n.rejoin(running) })
	return n, nil
}

// startGossip begins to gossip. The other members are found later.
func (n *Node) startGossip(ctx context.Context, s secure) error {
	conf, t, err := n.gossip(ctx, s)
	if err != nil {
		return err
	}
	if n.o.Advertise != "" {
		ips, err := lookup(ctx, n.o.Advertise)
		if err != nil {
			_ = t.Shutdown()
			return &errs.Error{Kind: errs.Invalid, Op: "advertise", Name: n.o.Advertise, Err: err,
				Fix: "set cluster.advertise to an IP address of this machine"}
		}
		conf.AdvertiseAddr = ips[0].String()
	}
	n.transport = t
	if n.list, err = memberlist.Create(conf); err != nil {
		_ = t.Shutdown()
		return &errs.Error{Kind: errs.Invalid, Op: "gossip on", Name: n.o.Gossip, Err: err,
			Fix: "set cluster.advertise to an IP address of this machine"}
	}
	return nil
}

// Members returns all live members in the order of their names, with this node among them.
func (n *Node) Members() []Member { return slices.Clone(n.members.all()) }

// Changed returns a channel that is closed when the list of members changes the next time.
func (n *Node) Changed() <-chan struct{} { return n.members.watch() }

// Close leaves the cluster, so that other members stop asking this node. Requests in progress may finish until ctx
// ends. Close returns nil if it was called before.
func (n *Node) Close(ctx context.Context) error {
	var err error
	n.closing.Do(func() {
		n.stop()
		leave := time.Second
		if end, ok := ctx.Deadline(); ok {
			leave = max(time.Millisecond, min(leave, time.Until(end)))
		}
		if e := n.list.Leave(leave); e != nil { // other members notice the end by themselves
			n.o.Log.Debug("other members were not told of the end of this node", "error", e)
		}
		if e := n.server.Shutdown(ctx); e != nil {
			_ = n.server.Close()
		}
		err = errs.Wrap("leave", "the cluster", n.list.Shutdown())
		n.http.CloseIdleConnections()
		n.running.Wait()
	})
	return err
}
