// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/report"
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

// fanout is the other devices of a load, which get what its own device gets.
type fanout struct {
	port  *port // of the load's own device
	peers []*peer
}

// enter makes ready what the peers need; the first device is in.
func (x *fanout) enter(e *lane, req *Request) error {
	for _, p := range req.Peers {
		q := &peer{Peer: p}
		x.peers = append(x.peers, q)
		e.mu.Lock()
		l := e.ports.link(x.port, p.Device, req.NoP2P || e.opts.NoP2P)
		var err error
		if q.link = l.queue; q.link != nil {
			q.port = l.port
		} else if q.port, err = e.ports.of(p.Device); err == nil && l.err != nil {
			q.refused = &report.Refusal{What: "p2p", On: x.port.dev.Info().ID + " to " + p.Device.Info().ID,
				Reason: plainly(l.err), Fix: errs.FixOf(l.err)}
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
		if q.HasStream && p.Device.Info().Kind != device.Host {
			if err := q.order(e); err != nil {
				return errs.Wrap("order after the caller's stream on", p.Device.Info().ID, err)
			}
		}
	}
	return nil
}

// order puts what is copied to the peer behind the caller's stream there. A
// link's queue is the first device's and cannot be told to wait for a stream of
// another: what the stream has queued now is waited for before the first copy.
func (q *peer) order(e *lane) error {
	e.mu.Lock()
	own, err := e.ports.of(q.Device)
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

// await waits until what the callers' streams had queued has been done.
func (x *fanout) await() error {
	var all error
	for _, p := range x.peers {
		if p.behind != nil {
			all = errors.Join(all, errs.Wrap("wait for the caller's stream on", p.Device.Info().ID,
				errors.Join(p.behind.Wait(), p.behind.Close())))
			p.behind = nil
		}
	}
	return all
}

// peerCopy is a copy to a peer that is under way from a slot, or behind one.
type peerCopy struct {
	peer *peer
	mark device.Mark
	n    int64
}

// send queues the copies of data, which lies in s, to the peers, behind mark, the first device's. It adds them to also,
// which is waited for with the slot.
func (x *fanout) send(c plan.Chunk, data []byte, s *staging.Slot, mark device.Mark, also []peerCopy) ([]peerCopy,
	error) {
	for _, p := range x.peers {
		m, err := s.MarkFor(p.port.queue)
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
			return also, errs.Wrap("copy to", p.Device.Info().ID, errors.Join(err, p.port.queue.Drain()))
		}
		also = append(also, peerCopy{p, m, n})
	}
	return also, nil
}

// settlePeers waits until the copies to the peers have been done.
func settlePeers(also []peerCopy) error {
	var all error
	for _, c := range also {
		if err := c.mark.Wait(); err != nil {
			all = errors.Join(all, errs.Wrap("copy to", c.peer.Device.Info().ID, errors.Join(err,
				c.peer.port.queue.Drain())))
			continue
		}
		c.peer.bytes.Add(c.n)
	}
	return all
}

// place copies what was read into place to peers that are host memory too.
func (x *fanout) place(c plan.Chunk) {
	for _, p := range x.peers {
		for dst, k := range c.Places() {
			copy(p.port.mapper.Map(p.To+(dst-p.From), k), x.port.mapper.Map(dst, k))
			p.bytes.Add(k)
		}
	}
}

// wayTo is the way that bytes take to a peer.
func (x *fanout) wayTo(p *peer) string {
	switch {
	case p.link != nil:
		return PeerP2P
	case x.port.mapper != nil:
		return PeerMemory
	}
	return PeerStaging
}

// describe adds what each peer got.
func (x *fanout) describe(f *facts) {
	for _, p := range x.peers {
		f.peers = append(f.peers, report.Peer{Device: describeDevice(p.Device.Info()), Bytes: p.bytes.Load(),
			Way: x.wayTo(p), Refused: p.refused})
		if p.refused != nil {
			f.refusals = append(f.refusals, *p.refused)
		}
	}
}
