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

// peer is a Peer with the engine's state for it.
type peer struct {
	Peer
	port    *port // the peer's own port for copies from staging, or the link's queue
	link    device.PeerQueue
	refused *report.Refusal
	behind  device.Mark // mark in the caller's stream for which a link must wait
	bytes   atomic.Int64
}

// fanout holds the peers of a load, which receive the same bytes as its own device.
type fanout struct {
	port  *port // port of the load's own device
	peers []*peer
}

// enter prepares the ports and links of the peers. The first device must be prepared before.
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

// order makes copies to the peer wait for the caller's stream on the peer. A link's queue belongs to the first device
// and cannot wait for a stream of another device. So the engine itself waits for this stream before the first copy.
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

// await waits for the work that was queued on the caller's streams.
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

// peerCopy is a running copy to a peer, from a slot or from the first device.
type peerCopy struct {
	peer *peer
	mark device.Mark
	n    int64
}

// send queues the copies of data, which is in s, to the peers. Copies from GPU to GPU run after mark, the mark of the
// copy to the first device. send appends the copies to also, which is awaited with the slot.
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
			// Some queued copies may have no mark behind them.
			return also, errs.Wrap("copy to", p.Device.Info().ID, errors.Join(err, p.port.queue.Drain()))
		}
		also = append(also, peerCopy{p, m, n})
	}
	return also, nil
}

// settlePeers waits until the copies to the peers have ended.
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

// place copies bytes that were read into host memory to peers in host memory.
func (x *fanout) place(c plan.Chunk) {
	for _, p := range x.peers {
		for dst, k := range c.Places() {
			copy(p.port.mapper.Map(p.To+(dst-p.From), k), x.port.mapper.Map(dst, k))
			p.bytes.Add(k)
		}
	}
}

// wayTo returns the way in which bytes reach a peer: p2p, staging or memory.
func (x *fanout) wayTo(p *peer) string {
	switch {
	case p.link != nil:
		return PeerP2P
	case x.port.mapper != nil:
		return PeerMemory
	}
	return PeerStaging
}

// describe adds the bytes of each peer to the report.
func (x *fanout) describe(f *facts) {
	for _, p := range x.peers {
		f.peers = append(f.peers, report.Peer{Device: describeDevice(p.Device.Info()), Bytes: p.bytes.Load(),
			Way: x.wayTo(p), Refused: p.refused})
		if p.refused != nil {
			f.refusals = append(f.refusals, *p.refused)
		}
	}
}
