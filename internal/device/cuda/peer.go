// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// peerQueue is a stream of this device with copies to another device.
type peerQueue struct {
	*queue
	other *Device
}

// NewPeerQueue implements device.Peered. NewPeerQueue enables peer access, which is never disabled again, because
// other parts of the process may rely on it.
func (g *Device) NewPeerQueue(other device.Device) (device.PeerQueue, error) {
	const op = "copy between GPUs from"
	to, ok := other.(*Device)
	if !ok {
		return nil, errs.New(errs.Unsupported, op, g.info.ID+" to "+other.Info().ID,
			"it is no GPU of this driver").WithFix("none needed: the bytes come from host memory")
	}
	name := g.info.ID + " to " + to.info.ID
	if g == to {
		return nil, errs.New(errs.Invalid, op, name, "they are one device; expected two")
	}
	d := g.drv
	if err := d.lacks(op, name, d.fn.deviceCanAccessPeer, d.fn.ctxEnablePeerAccess, d.fn.memcpyPeerAsync); err != nil {
		return nil, err
	}
	var can int32
	if err := d.check("cuDeviceCanAccessPeer", d.fn.deviceCanAccessPeer.Call(ptr(&can), g.dev, to.dev)); err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	if can == 0 {
		return nil, errs.New(errs.Unsupported, op, name,
			"the driver says that neither NVLink nor PCIe lets one reach the other (cuDeviceCanAccessPeer)").
			WithFix("see nvidia-smi topo -p2p r; behind a virtual IOMMU or with ACS on, PCIe switches do not pass peer traffic")
	}
	err := d.withContext(g.ctx, func() error {
		return d.check("cuCtxEnablePeerAccess", d.fn.ctxEnablePeerAccess.Call(to.ctx, 0))
	})
	switch code(err) {
	case resPeerAlreadyEnabled:
		err = nil
	case resPeerUnsupported:
		return nil, &errs.Error{Kind: errs.Unsupported, Op: op, Name: name, Err: err, Fix: "see nvidia-smi topo -p2p r"}
	}
	if err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	q, err := g.NewQueue()
	if err != nil {
		return nil, err
	}
	return &peerQueue{queue: q.(*queue), other: to}, nil
}

// CopyPeer queues a copy of n bytes from src on this device to dst on the other device.
func (q *peerQueue) CopyPeer(dst, src device.Ptr, n int64) error {
	if n == 0 {
		return nil
	}
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		return d.check("cuMemcpyPeerAsync", d.fn.memcpyPeerAsync.Call(uint64(dst), q.other.ctx, uint64(src), q.dev.ctx,
			int(n), q.stream))
	})
}

// AfterMark makes the queue's stream wait for the event of the mark m.
func (q *peerQueue) AfterMark(m device.Mark) error {
	ev, ok := m.(*mark)
	if !ok || ev.q.dev != q.dev {
		return errs.New(errs.Invalid, "order after a mark on", q.dev.info.ID, fmt.Sprintf("it is a %T of another device", m))
	}
	if !ev.recorded {
		return nil
	}
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		return d.check("cuStreamWaitEvent", d.fn.streamWaitEvent.Call(q.stream, ev.event, 0))
	})
}
