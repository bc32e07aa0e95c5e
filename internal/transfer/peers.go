// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/report"
)

// Peer is another device that gets the same bytes: each is read once.
type Peer struct {
	Device device.Device
	// From and To tie the two memories together: a byte that goes to From+x of
	// Request.Device goes to To+x here. All destinations of the request lie
	// behind From.
	From, To device.Ptr
	// Stream, with HasStream, is the caller's stream on this device whose
	// queued work may still use the destinations.
	Stream    uint64
	HasStream bool
}

// Ways of bytes to a peer.
const (
	// PeerP2P: the first device wrote them to the peer's memory by itself.
	PeerP2P = "p2p"
	// PeerStaging: they were copied from the same staging slot.
	PeerStaging = "staging"
	// PeerMemory: both are host memory, and they were copied by the CPU.
	PeerMemory = "memory"
)

// peer is a Peer with what the engine has for it.
type peer struct {
	Peer
	port    *port // its own, where bytes come from staging; with link, the link's queue
	link    device.PeerQueue
	refused *report.Refusal
	behind  device.Mark // in the caller's stream, where a link has to wait for it
	bytes   atomic.Int64
}

// pair names a link between two devices.
type pair struct{ from, to device.Device }

// link is a queue of copies from one device to another, shared by all transfers.
type link struct {
	port  *port // the queue as slots see it
	queue device.PeerQueue
	err   error // why there is none
}

// checkPeers refuses what cannot work before anything is touched.
func (t *Transfer) checkPeers() error {
	_, addressable := t.req.Device.(device.Mapper)
	for i, p := range t.req.Peers {
		bad := func(kind errs.Kind, msg, fix string) error {
			return errs.New(kind, "start transfer", fmt.Sprintf("peer %d", i), msg).WithFix(fix)
		}
		if p.Device == nil || p.Device == t.req.Device {
			return bad(errs.Invalid, "is the device of the request itself, or none", "name other devices")
		}
		for _, q := range t.req.Peers[:i] {
			if q.Device == p.Device && q.To == p.To {
				return bad(errs.Invalid, p.Device.Info().ID+" is named twice with the same memory", "name it once")
			}
		}
		if _, ok := p.Device.(device.Mapper); addressable && !ok {
			return bad(errs.Unsupported, fmt.Sprintf("%s gets its bytes from %s, which are read into place and not staged", p.Device.Info().ID, t.req.Device.Info().ID), "name a GPU as the device, and host memory as its peer")
		}
		for _, s := range t.req.Segments {
			if s.Len > 0 && s.Dst < p.From {
				return bad(errs.Invalid, fmt.Sprintf("a destination at 0x%x lies before 0x%x, where its memory begins", uint64(s.Dst), uint64(p.From)), "give the lowest destination")
			}
		}
	}
	if len(t.req.Peers) > 0 && t.req.Route == report.RouteCuFile {
		return errs.New(errs.Invalid, "start transfer", "route cufile", "does not serve peers: cuFile moves bytes to one device").
			WithFix("use route auto, or start a transfer for each device")
	}
	return nil
}

// enterPeers makes ready what the peers need; the first device is in.
func (e *Engine) enterPeers(t *Transfer) error {
	for _, p := range t.req.Peers {
		q := &peer{Peer: p}
		t.peers = append(t.peers, q)
		e.mu.Lock()
		l := e.linkOf(t.port, p.Device, t.req.NoP2P)
		var err error
		if q.link = l.queue; q.link != nil {
			q.port = l.port
		} else if q.port, err = e.portOf(p.Device); err == nil && l.err != nil {
			q.refused = &report.Refusal{What: "p2p", On: t.port.dev.Info().ID + " to " + p.Device.Info().ID, Reason: plainly(l.err), Fix: errs.FixOf(l.err)}
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
		if q.HasStream && p.Device.Info().Kind != device.Host {
			if err := e.orderPeer(q); err != nil {
				return errs.Wrap("order after the caller's stream on", p.Device.Info().ID, err)
			}
		}
	}
	return nil
}

// orderPeer puts what is copied to a peer behind the caller's stream there. A
// link's queue is the first device's and cannot be told to wait for a stream of
// another: what the stream has queued now is waited for before the first copy.
func (e *Engine) orderPeer(q *peer) error {
	e.mu.Lock()
	own, err := e.portOf(q.Device)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	if err := own.queue.After(q.Stream); err != nil || q.link == nil {
		return err
	}
	q.behind, err = own.queue.NewMark()
	if err != nil {
		return err
	}
	return q.behind.Record()
}

// awaitPeers waits until what the callers' streams had queued has been done.
func (t *Transfer) awaitPeers() error {
	var all error
	for _, p := range t.peers {
		if p.behind != nil {
			all = errors.Join(all, errs.Wrap("wait for the caller's stream on", p.Device.Info().ID, errors.Join(p.behind.Wait(), p.behind.Close())))
			p.behind = nil
		}
	}
	return all
}

// linkOf is the link between two devices, opened once, none where it is switched
// off; the caller holds mu.
func (e *Engine) linkOf(from *port, to device.Device, off bool) *link {
	if from.mapper != nil || to.Info().Kind == device.Host {
		return &link{}
	}
	if off || e.opts.NoP2P {
		return &link{err: errs.New(errs.Unsupported, "copy between GPUs", "", "it is switched off").WithFix("set enable_p2p")}
	}
	at := pair{from.dev, to}
	if l := e.links[at]; l != nil {
		return l
	}
	l := &link{}
	if p, ok := from.dev.(device.Peered); !ok {
		l.err = errs.New(errs.Unsupported, "copy between devices", "", from.dev.Info().ID+" has no way to another device").WithFix("none needed: the bytes come from staging")
	} else if l.queue, l.err = p.NewPeerQueue(to); l.err == nil {
		l.port = &port{dev: from.dev, queue: l.queue}
	}
	e.links[at] = l
	return l
}

// sendPeers queues the copies of data, which lies in s, to the peers, behind mark, the first device's. They are waited for with the slot.
func (t *Transfer) sendPeers(c plan.Chunk, data []byte, s *slot, mark device.Mark) error {
	for _, p := range t.peers {
		m, err := s.markFor(p.port)
		if err == nil && p.link != nil {
			err = p.link.AfterMark(mark)
		}
		var at, n int64
		for dst, k := range c.Places() {
			to := p.To + (dst - p.From)
			switch {
			case err != nil:
			case p.link != nil:
				err = p.link.CopyPeer(to, dst, k)
			case p.port.mapper != nil:
				copy(p.port.mapper.Map(to, k), data[at:at+k])
			default:
				err = p.port.queue.CopyIn(to, data[at:at+k])
			}
			at, n = at+k, n+k
		}
		if err == nil {
			err = m.Record()
		}
		if err != nil {
			// Some copies may be queued without a mark behind them.
			return errs.Wrap("copy to", p.Device.Info().ID, errors.Join(err, p.port.queue.Drain()))
		}
		s.also = append(s.also, peerCopy{p, m, n})
	}
	return nil
}

// peerCopy is a copy to a peer that is under way from a slot, or behind one.
type peerCopy struct {
	peer *peer
	mark device.Mark
	n    int64
}

// settlePeers waits until the copies to the peers have been done.
func (s *slot) settlePeers() error {
	var all error
	for _, c := range s.also {
		if err := c.mark.Wait(); err != nil {
			all = errors.Join(all, errs.Wrap("copy to", c.peer.Device.Info().ID, errors.Join(err, c.peer.port.queue.Drain())))
			continue
		}
		c.peer.bytes.Add(c.n)
	}
	s.also = s.also[:0]
	return all
}

// placePeers copies what was read into place to peers that are host memory too.
func (t *Transfer) placePeers(c plan.Chunk) {
	for _, p := range t.peers {
		for dst, k := range c.Places() {
			copy(p.port.mapper.Map(p.To+(dst-p.From), k), t.port.mapper.Map(dst, k))
			p.bytes.Add(k)
		}
	}
}

// wayTo is the way that bytes take to a peer.
func (t *Transfer) wayTo(p *peer) string {
	switch {
	case p.link != nil:
		return PeerP2P
	case t.port.mapper != nil:
		return PeerMemory
	}
	return PeerStaging
}

// describePeers adds what each peer got.
func (t *Transfer) describePeers(r *report.Report) {
	for _, p := range t.peers {
		info := p.Device.Info()
		x := report.Peer{Device: describeDevice(info), Bytes: p.bytes.Load(), Way: t.wayTo(p), Refused: p.refused}
		if r.Peers = append(r.Peers, x); p.refused != nil {
			r.Refusals = append(r.Refusals, *p.refused)
		}
	}
}
