// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Engine runs transfers. One engine serves a process: all transfers share its
// workers and its staging memory, but for those of devices that have a share of
// their own; see Options.Share.
type Engine struct {
	given Options
	main  *crew
	// lanes are those of devices by the answers of Options.Share; guarded by main.mu.
	lanes map[device.Device]*crew
}

// New returns an engine; staging and threads come with Prepare or the first
// transfer.
func New(o Options) (*Engine, error) {
	t, err := o.tune()
	if err != nil {
		return nil, err
	}
	return &Engine{given: o, main: newCrew(t), lanes: map[device.Device]*crew{}}, nil
}

// lane is the crew that serves a device: one of its own where it has a share,
// so that transfers to different devices do not wait for each other's slots.
func (e *Engine) lane(dev device.Device) (*crew, error) {
	if e.given.Share == nil || dev.Info().Kind == device.Host {
		return e.main, nil
	}
	e.main.mu.Lock()
	defer e.main.mu.Unlock()
	if l := e.lanes[dev]; l != nil {
		return l, nil
	}
	if e.main.closed {
		return nil, errs.New(errs.Closed, "start transfer", dev.Info().ID, "the engine is closed")
	}
	l := e.main
	if s, own := e.given.Share(dev.Info()); own {
		o := e.given
		o.Share, o.Near = nil, s.Near
		if s.PoolSize > 0 {
			o.PoolSize = max(s.PoolSize, minPoolSize)
		}
		t, err := o.tune()
		if err != nil {
			return nil, err
		}
		l = newCrew(t)
	}
	e.lanes[dev] = l
	return l, nil
}

// laneOf is the lane of the first GPU that bytes come from: those of others
// come through it too.
func (e *Engine) laneOf(all []Source) (*crew, error) {
	for _, s := range all {
		if s.Device != nil && s.Device.Info().Kind != device.Host {
			return e.lane(s.Device)
		}
	}
	return e.main, nil
}

// crews are all lanes, the engine's own first; the caller holds main.mu.
func (e *Engine) crews() []*crew {
	all := []*crew{e.main}
	for _, k := range e.lanes {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}

// busy counts what runs, on all lanes; the caller holds main.mu.
func (e *Engine) busy() int {
	n := 0
	for _, k := range e.crews() {
		if k == e.main {
			n += k.running
			continue
		}
		k.mu.Lock()
		n += k.running
		k.mu.Unlock()
	}
	return n
}

// Prepare makes ready in the background what a transfer to dev will need, for a
// caller that knows of one a little ahead: staging memory and threads. What
// fails here fails again, and is reported, in Start.
func (e *Engine) Prepare(dev device.Device) {
	if _, ok := dev.(device.Mapper); ok {
		return
	}
	if k, err := e.lane(dev); err == nil {
		k.prepare(dev)
	}
}

// Start checks the request and begins to move bytes; it returns at once. The
// context cancels the load. The files and destinations belong to the
// load until Done is closed.
func (e *Engine) Start(ctx context.Context, req Request) (*Load, error) {
	k, err := e.lane(req.Device)
	if err != nil {
		return nil, err
	}
	return startLoad(ctx, &k.loads, req)
}

// StartWrite checks the request and begins to write; it returns at once. The
// context cancels the save: the file is then as it was before. The sources
// belong to the save, and do not change, until Done is closed.
func (e *Engine) StartWrite(ctx context.Context, req WriteRequest) (*Save, error) {
	k, err := e.laneOf(req.Sources)
	if err != nil {
		return nil, err
	}
	return startSave(ctx, &k.saves, req, k.enterSave)
}

// StartUpload checks the request and begins to send; it returns at once. The
// context cancels it: nothing of the object is then on the server, unless it
// was being completed at that moment. The sources belong to the upload, and do not change, until Done is closed.
func (e *Engine) StartUpload(ctx context.Context, req UploadRequest) (*Upload, error) {
	k, err := e.laneOf(req.Sources)
	if err != nil {
		return nil, err
	}
	return startUpload(ctx, k.lane, req)
}

// StartPut begins to write and returns at once. The context cancels it; what
// was written by then stays. The bytes are on disk only after Target.Sync.
func (e *Engine) StartPut(ctx context.Context, req PutRequest) (*Put, error) {
	k, err := e.lane(req.Device)
	if err != nil {
		return nil, err
	}
	return startPut(ctx, k.lane, req)
}

// StartInStream queues a move on the caller's stream, done by libcufile when the
// stream gets there; work queued later sees its effect. Where that is not open
// refused says why and nothing was queued; with the route cufile it is an error.
func (e *Engine) StartInStream(ctx context.Context, req StreamRequest) (m *StreamMove, refused *report.Refusal,
	err error) {
	k, err := e.lane(req.Device)
	if err != nil {
		return nil, nil, err
	}
	return startInStream(ctx, k.lane, req)
}

// NewTarget takes over an open file, which Close closes.
func (e *Engine) NewTarget(f *vfs.Editable) *Target {
	return &Target{Editable: f, e: e.main.lane, files: map[*library]device.DirectFile{}}
}

// Deliver moves data, which is small and in memory already, to a device and
// returns when it is there; where streams of the caller are given, after the
// work queued on them. It does not report. The context is looked at before each
// 64 KiB.
func (e *Engine) Deliver(ctx context.Context, dev device.Device, dst device.Ptr, data []byte, streams ...uint64) error {
	k, err := e.lane(dev)
	if err != nil {
		return err
	}
	port, err := k.enter(dev)
	if err != nil {
		return err
	}
	defer k.leave()
	if len(data) == 0 {
		return nil
	}
	if err := port.ferries.cross(ctx, dev, dst, data, streams); err != nil {
		return errs.Wrap(fmt.Sprintf("deliver %d bytes at 0x%x of", len(data), uint64(dst)), dev.Info().ID, err)
	}
	return nil
}

// Writes is the size of one write of a save and how many are in flight, as they
// were dealt out of the staging memory.
func (e *Engine) Writes() (block int64, depth int) {
	e.main.mu.Lock()
	defer e.main.mu.Unlock()
	return e.main.opts.WriteBlock, e.main.opts.WriteDepth
}

// Close ends the workers and frees staging and queues. Running transfers make
// it fail with kind Invalid: end them first.
func (e *Engine) Close() error {
	e.main.mu.Lock()
	if n := e.busy(); n > 0 {
		e.main.mu.Unlock()
		return errs.New(errs.Invalid, "close engine", "", fmt.Sprintf("%d transfers are still running", n)).
			WithFix("cancel them and wait for their end")
	}
	if e.main.closed {
		e.main.mu.Unlock()
		return nil
	}
	var all []error
	crews := e.crews()
	e.main.closed = true
	for _, k := range crews[1:] {
		k.mu.Lock()
		k.closed = true
		k.mu.Unlock()
	}
	e.main.mu.Unlock()
	for _, k := range crews {
		all = append(all, k.close())
	}
	return errors.Join(all...)
}

// Bound tells the engine of bounds that somebody else asks it to keep, a server
// of the objects that it will move: staging and direct reads in flight are then no
// more, where the caller has not chosen them. It comes before the first
// transfer; later it changes nothing and reports false. Zero means no bound.
func (e *Engine) Bound(poolSize int64, queueDepth int) bool {
	e.main.mu.Lock()
	defer e.main.mu.Unlock()
	o := e.given
	if o.PoolSize == 0 && poolSize > 0 && poolSize < DefaultPoolSize {
		o.PoolSize = max(poolSize, minPoolSize)
	}
	if o.QueueDepth == 0 && queueDepth > 0 && queueDepth < defaultQueueDepth {
		o.QueueDepth = queueDepth
	}
	if o.PoolSize == e.given.PoolSize && o.QueueDepth == e.given.QueueDepth {
		return true // the engine takes no more by itself
	}
	t, err := o.tune()
	if err != nil || e.main.closed || len(e.main.ports.all) > 0 || len(e.lanes) > 0 {
		return false
	}
	e.given.PoolSize, e.given.QueueDepth = o.PoolSize, o.QueueDepth
	e.main.retune(t)
	return true
}
