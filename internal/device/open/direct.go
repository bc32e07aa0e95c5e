// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cufile"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// direct is a cuFile session that removes itself from its set when it is closed.
type direct struct {
	*cufile.Session
	set  *set
	gpus int
}

// Close implements device.Direct.
func (d *direct) Close() error {
	d.set.mu.Lock()
	delete(d.set.directs, d)
	d.set.mu.Unlock()
	return d.Session.Close()
}

// Facts returns the facts of the cuFile session, and as visible_gpus the number of GPUs on which libcufile created a
// context.
func (d *direct) Facts() map[string]string {
	f := d.Session.Facts()
	f["visible_gpus"] = strconv.Itoa(d.gpus)
	return f
}

func (s *set) cufileNames() []string { return or(s.opts.CuFileLibraries, cufile.LibraryNames()) }

// OpenDirect implements device.Set.
func (s *set) OpenDirect(ctx context.Context, dev device.Device) (device.Direct, error) {
	const op = "open cuFile for"
	id := dev.Info().ID
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(op, id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errs.New(errs.Closed, op, id, "the device set is closed")
	}
	if dev.Info().Kind != device.CUDA {
		e := errs.New(errs.Unsupported, op, id,
			"it is no GPU, and cuFile moves bytes to GPUs alone").WithFix("open a device of kind cuda")
		if s.looked && s.driver == nil {
			e.Msg += "; there is none: " + s.survey.NoGPU
			e.Fix = s.survey.Fix
		}
		return nil, e
	}
	contexts, ok := dev.(cufile.Contexts)
	if !ok || s.opened[id] != dev {
		return nil, errs.New(errs.Invalid, op, id,
			"it was not opened by this set, or is closed").WithFix("open it here first")
	}
	if s.cufile == nil {
		lib, err := cufile.Find(s.cufileNames()...)
		if err != nil {
			return nil, errs.Wrap(op, id, err)
		}
		s.cufile = lib
	}
	session, err := s.cufile.Open(contexts, dev.Info())
	if err != nil {
		return nil, err
	}
	d := &direct{Session: session, set: s, gpus: len(s.survey.Devices) - 1}
	s.directs[d] = struct{}{}
	return d, nil
}
