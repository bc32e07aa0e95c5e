// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// port is the engine's state for one device.
type port struct {
	dev device.Device
	// queue is the one queue for all copies. Two queues were measured to be slower, by 2 to 4 %.
	queue  device.Queue
	convoy *convoy       // copies to the device in batches; nil if the queue takes single copies only
	mapper device.Mapper // nil if the CPU cannot address the memory
	lib    *library      // libcufile; opened at the first use

	ferries ferries
	sums    summing
}

// passed waits until the device has done all work that is queued on the port now.
func (p *port) passed() error {
	m, err := p.queue.NewMark()
	if err == nil {
		err = m.Record()
	}
	if err == nil {
		err = errors.Join(m.Wait(), m.Close())
	}
	return errs.Wrap("wait for the caller's stream on", p.dev.Info().ID, err)
}

// pair identifies a link between two devices.
type pair struct{ from, to device.Device }

// link is a queue of copies from one device to another, shared by all transfers.
type link struct {
	port  *port // port with the link's queue, for slots
	queue device.PeerQueue
	err   error // why there is no link
}

// ports are an engine's devices and the links between them. The owner's lock guards them.
type ports struct {
	all   map[device.Device]*port
	links map[pair]*link
}

// of returns the port of dev, and makes it at the first call.
func (ps *ports) of(dev device.Device) (*port, error) {
	if p, ok := ps.all[dev]; ok {
		return p, nil
	}
	q, err := dev.NewQueue()
	if err != nil {
		return nil, err
	}
	m, _ := dev.(device.Mapper)
	p := &port{dev: dev, queue: q, convoy: convoyOf(q), mapper: m, lib: newLibrary()}
	ps.all[dev] = p
	return p, nil
}

// link returns the link between two devices, which is opened once. If there is no queue between the devices, the
// link's err gives the reason.
func (ps *ports) link(from *port, to device.Device, off bool) *link {
	if from.mapper != nil || to.Info().Kind == device.Host {
		return &link{}
	}
	if off {
		return &link{err: errs.New(errs.Unsupported, "copy between GPUs", "", "it is switched off").
			WithFix("set enable_p2p")}
	}
	at := pair{from.dev, to}
	if l := ps.links[at]; l != nil {
		return l
	}
	l := &link{}
	if p, ok := from.dev.(device.Peered); !ok {
		l.err = errs.New(errs.Unsupported, "copy between devices", "",
			from.dev.Info().ID+" has no way to another device").WithFix("none needed: the bytes come from staging")
	} else if l.queue, l.err = p.NewPeerQueue(to); l.err == nil {
		l.port = &port{dev: from.dev, queue: l.queue, lib: newLibrary()}
	}
	ps.links[at] = l
	return l
}

// close closes queues, links and libraries. No copy may be queued.
func (ps *ports) close() []error {
	var all []error
	for _, l := range ps.links {
		if l.queue != nil {
			all = append(all, l.queue.Close())
		}
	}
	for _, p := range ps.all {
		all = append(all, p.lib.close(), p.sums.close(), p.ferries.close(), p.convoy.close(), p.queue.Close())
	}
	return all
}
