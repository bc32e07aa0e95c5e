// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"log"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// transport is memberlist's network with two additions: every stream passes the gate, and tests can cut the network.
type transport struct {
	*memberlist.NetTransport
	secure  secure
	gate    *gate
	packets chan *memberlist.Packet
	cut     func(addr string) bool // nil, or reports whether packets and streams to and from addr are lost
	stop    chan struct{}
	done    sync.WaitGroup
	ending  sync.Once
}

func newTransport(inner *memberlist.NetTransport, s secure, cut func(string) bool) *transport {
	t := &transport{NetTransport: inner, secure: s, gate: newGate(s.server), cut: cut, stop: make(chan struct{}),
		packets: make(chan *memberlist.Packet)}
	t.done.Go(t.passStreams)
	t.done.Go(t.passPackets)
	return t
}

func (t *transport) isCut(addr string) bool { return t.cut != nil && t.cut(addr) }

func (t *transport) passStreams() {
	for {
		select {
		case c := <-t.NetTransport.StreamCh():
			t.gate.admit(c)
		case <-t.stop:
			return
		}
	}
}

func (t *transport) passPackets() {
	for {
		select {
		case p := <-t.NetTransport.PacketCh():
			if t.isCut(p.From.String()) {
				continue
			}
			select {
			case t.packets <- p:
			case <-t.stop:
				return
			}
		case <-t.stop:
			return
		}
	}
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.gate.out }

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.isCut(a.Addr) {
		return time.Now(), nil
	}
	return t.NetTransport.WriteToAddress(b, a)
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. The stream has proven the cluster key on both ends.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.isCut(a.Addr) {
		return nil, errs.New(errs.IO, "connect to", a.Addr, "the network is cut")
	}
	raw, err := t.NetTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.secure.dial(ctx, raw)
}

// Shutdown implements memberlist.Transport. A second call does nothing.
func (t *transport) Shutdown() error {
	var err error
	t.ending.Do(func() {
		err = t.NetTransport.Shutdown() // waits until its streams and packets are taken
		close(t.stop)
		t.gate.close()
		t.done.Wait()
	})
	return err
}

// bindAddress returns the IP address of the host of a gossip address. memberlist would listen on all addresses of the
// machine if it got a name.
func bindAddress(ctx context.Context, host string, advertised bool) (string, error) {
	if host == "" {
		return "0.0.0.0", nil
	}
	ips, err := lookup(ctx, host)
	if err != nil {
		return "", &errs.Error{Kind: errs.Invalid, Op: "gossip on", Name: host, Err: err,
			Fix: "set cluster.gossip_address to an IP address of this machine"}
	}
	if ips[0].Is6() && ips[0].IsUnspecified() && !advertised {
		return "", errs.New(errs.Invalid, "gossip on", host, "the address for other nodes is not known").
			WithFix("set cluster.advertise to an IP address of this machine")
	}
	return ips[0].String(), nil
}

// lookup returns the addresses of a host, at least one.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(ips) == 0 {
		err = errs.New(errs.NotFound, "look up", host, "the name has no address")
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips, err
}

// gossip returns memberlist's configuration, with a transport that listens.
func (n *Node) gossip(ctx context.Context, s secure) (*memberlist.Config, *transport, error) {
	o := n.o
	host, portText, err := net.SplitHostPort(o.Gossip)
	if err != nil {
		return nil, nil, errs.New(errs.Invalid, "gossip on", o.Gossip, "is no address; expected HOST:PORT")
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, nil, errs.New(errs.Invalid, "gossip on", o.Gossip, "has no port number; expected HOST:PORT")
	}
	c := memberlist.DefaultLANConfig()
	c.Name = o.Name
	c.BindPort = port
	if c.BindAddr, err = bindAddress(ctx, host, o.Advertise != ""); err != nil {
		return nil, nil, err
	}
	c.DeadNodeReclaimTime = 10 * time.Second // a restarted member may come back with another address
	c.TCPTimeout = 3 * time.Second
	c.Logger = log.New(newLogLines(o.Log), "", 0)
	if d := o.Limits.probe; d != 0 {
		c.ProbeInterval, c.ProbeTimeout = d, d
		c.GossipInterval, c.PushPullInterval = 10*time.Millisecond, 500*time.Millisecond
		c.SuspicionMult, c.SuspicionMaxTimeoutMult, c.AwarenessMaxMultiplier = 1, 1, 1
	}
	secret := n.o.Key.derive("gossip")
	c.SecretKey = secret[:]
	c.Events, c.Delegate, c.Conflict = n.members, n, n.members
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{c.BindAddr},
		BindPort: port, Logger: c.Logger})
	if err != nil {
		return nil, nil, &errs.Error{Kind: errs.IO, Op: "gossip on", Name: o.Gossip, Err: err,
			Fix: "end what uses it, or set cluster.gossip_address"}
	}
	t := newTransport(inner, s, o.cut)
	c.Transport = t
	c.BindPort = inner.GetAutoBindPort()
	c.AdvertisePort = c.BindPort
	return c, t, nil
}

// NodeMeta implements memberlist.Delegate.
func (n *Node) NodeMeta(limit int) []byte {
	if len(n.about) > limit {
		return nil // cannot be: Start has checked the lengths
	}
	return n.about
}

// NotifyMsg implements memberlist.Delegate. Members send no messages of their own over gossip.
func (*Node) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate. GetBroadcasts returns nothing, because members send no messages of
// their own.
func (*Node) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate. LocalState returns nothing, because members exchange no state of their
// own.
func (*Node) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate. MergeRemoteState does nothing, as LocalState.
func (*Node) MergeRemoteState([]byte, bool) {}
