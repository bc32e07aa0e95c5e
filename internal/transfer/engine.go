// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Engine runs transfers. A process has one engine, and all transfers share its workers and staging memory. A device
// may have its own share of workers and staging memory; see Options.Share.
type Engine struct {
	given Options
	main  *crew
	// lanes holds the lane of each device, as chosen by Options.Share. It is guarded by main.mu.
	lanes map[device.Device]*crew
}

// New returns an engine. The staging memory and threads of the engine are made by Prepare or by the first transfer.
func New(o Options) (*Engine, error) {
	t, err := o.tune()
	if err != nil {
		return nil, err
	}
	return &Engine{given: o, main: newCrew(t), lanes: map[device.Device]*crew{}}, nil
}

// lane returns the crew that serves a device. A device with a share has its own crew, so that transfers to different
// devices do not wait for each other's slots.
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

// laneOf returns the lane of the first GPU among the sources. Bytes of all other sources use the same lane.
func (e *Engine) laneOf(all []Source) (*crew, error) {
	for _, s := range all {
		if s.Device != nil && s.Device.Info().Kind != device.Host {
			return e.lane(s.Device)
		}
	}
	return e.main, nil
}

// crews returns all lanes, the engine's own first. The caller holds main.mu.
func (e *Engine) crews() []*crew {
	all := []*crew{e.main}
	for _, k := range e.lanes {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}

// busy counts the running transfers of all lanes. The caller holds main.mu.
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

// Prepare makes staging memory and threads for dev in the background. A caller that will soon start a transfer to dev
// can call Prepare to save time. Prepare reports no error; if the preparation failed, a later call of Start fails with
// its error.
func (e *Engine) Prepare(dev device.Device) {
	if _, ok := dev.(device.Mapper); ok {
		return
	}
	if k, err := e.lane(dev); err == nil {
		k.prepare(dev)
	}
}

// Foresee prepares a load of f to dev in the background, so that the load waits less. Foresee finds out which storage
// is below f. If f is not in the page cache, Foresee also prepares memory for reads from storage, and finds out whether
// a direct path to dev is plausible. The caller may close f at any time.
func (e *Engine) Foresee(dev device.Device, f *vfs.File) {
	k, err := e.lane(dev)
	if err != nil || f.Remote() != nil {
		return
	}
	_, mapped := dev.(device.Mapper) // needs neither staging memory nor a direct path
	cold := !mapped && isCold(f)
	if cold {
		k.prepareCold(dev)
	}
	if ask := k.storages.Later(f); ask != nil {
		k.background(ask)
	}
	if cold && dev.Info().Kind != device.Host && k.opts.DirectPath != nil {
		k.judgeLater(f, dev.Info())
	}
}

// isCold reports whether most of the first window of f is on a disk and not in the page cache.
func isCold(f *vfs.File) bool {
	if f.FS().Memory {
		return false
	}
	n := min(f.Size(), plan.WindowSize)
	r, err := f.Residency(0, n)
	return err == nil && n > 0 && r.Cached <= n/2
}

// Start checks the request, begins a load and returns at once. If the context ends, the load is cancelled. The caller
// must not use the destinations or close the files until the load's Done channel is closed.
func (e *Engine) Start(ctx context.Context, req Request) (*Load, error) {
	k, err := e.lane(req.Device)
	if err != nil {
		return nil, err
	}
	return startLoad(ctx, &k.loads, req)
}

// StartWrite checks the request, begins a save and returns at once. If the context ends, the save is cancelled and the
// old file stays unchanged. The sources must not change until the save's Done channel is closed.
func (e *Engine) StartWrite(ctx context.Context, req WriteRequest) (*Save, error) {
	k, err := e.laneOf(req.Sources)
	if err != nil {
		return nil, err
	}
	return startSave(ctx, &k.saves, req, k.enterSave)
}

// StartUpload checks the request, begins an upload and returns at once. If the context ends, the upload is cancelled.
// After a cancellation the object is not on the server, unless the server was already completing the object. The
// sources must not change until the upload's Done channel is closed.
func (e *Engine) StartUpload(ctx context.Context, req UploadRequest) (*Upload, error) {
	k, err := e.laneOf(req.Sources)
	if err != nil {
		return nil, err
	}
	return startUpload(ctx, k.lane, req)
}

// StartPut begins to write a range of an open file and returns at once. If the context ends, the write is cancelled;
// bytes that are already written stay in the file. The written bytes survive a crash only after Target.Sync.
func (e *Engine) StartPut(ctx context.Context, req PutRequest) (*Put, error) {
	k, err := e.lane(req.Device)
	if err != nil {
		return nil, err
	}
	return startPut(ctx, k.lane, req)
}

// StartInStream queues a read or write on the caller's CUDA stream; libcufile executes it. Work that is queued on the
// stream after the read or write sees its result. If libcufile cannot queue the read or write, nothing is queued and
// the result `refused` gives the reason. If libcufile cannot queue a request with the route cufile, StartInStream
// returns an error.
func (e *Engine) StartInStream(ctx context.Context, req StreamRequest) (m *StreamMove, refused *report.Refusal,
	err error) {
	k, err := e.lane(req.Device)
	if err != nil {
		return nil, nil, err
	}
	return startInStream(ctx, k.lane, req)
}

// NewTarget returns a Target for the open file f. The Target owns f: Target.Close closes it.
func (e *Engine) NewTarget(f *vfs.Editable) *Target {
	return &Target{Editable: f, e: e.main.lane, files: map[*library]device.DirectFile{}}
}

// Deliver copies data, which should be small, to dst on a device and returns after the copy. The copy begins after the
// work that is queued on the given CUDA streams. Deliver makes no report. Deliver checks whether the context has ended
// before it copies each 64 KiB.
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

// Writes returns the size in bytes of one write of a save, and the number of writes in flight. The write size and the
// number of writes come from Options, and are smaller if the staging memory does not suffice.
func (e *Engine) Writes() (block int64, depth int) {
	e.main.mu.Lock()
	defer e.main.mu.Unlock()
	return e.main.opts.WriteBlock, e.main.opts.WriteDepth
}

// Close ends the workers and frees the staging memory and queues. If a transfer is running, Close fails with kind
// Invalid and closes nothing.
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

// Bound sets upper limits for the staging memory in bytes and for the number of O_DIRECT reads in flight, for example
// the limits that a server announces. A limit of 0 means no limit. Bound does not change values that the caller chose
// in Options. Bound must be called before the first transfer. After the first transfer, Bound changes nothing, and
// returns false if the limits would change the engine.
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
		return true // the engine's own values are within the limits
	}
	t, err := o.tune()
	if err != nil || e.main.closed || len(e.main.ports.all) > 0 || len(e.lanes) > 0 {
		return false
	}
	e.given.PoolSize, e.given.QueueDepth = o.PoolSize, o.QueueDepth
	e.main.retune(t)
	return true
}
