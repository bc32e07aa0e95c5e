// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Target is an open file for reads and writes at any offset. A Target stays registered with libcufile until Close,
// because libcufile accepts a descriptor only once. All methods of a Target are safe for concurrent use; Close must
// be the last call.
type Target struct {
	*vfs.Editable
	e *lane

	mu    sync.Mutex
	files map[*library]device.DirectFile
}

// knownBy is the registration of a Target with libcufile for one device. If file is nil, libcufile is not used; for a
// GPU, refused is then the reason.
type knownBy struct {
	file    device.DirectFile
	lib     *library
	opened  bool // libcufile was opened by this call
	refused *report.Refusal
}

// known registers the file with libcufile for a device. must means that the caller asked for cuFile. Without must,
// cuFile is used only if a direct path is plausible and the counters have not shown otherwise.
func (g *Target) known(ctx context.Context, p *port, must bool) (k knownBy, err error) {
	refuse := func(reason, fix string) (knownBy, error) {
		return knownBy{refused: &report.Refusal{What: "cufile", On: g.Path(), Reason: reason, Fix: fix}}, nil
	}
	if !must && (p.dev.Info().Kind == device.Host || g.e.opts.DirectPath == nil) {
		return k, nil
	}
	k.lib = p.lib
	if !must {
		path, route, err := g.judged(p, k.lib)
		switch {
		case err != nil:
			return knownBy{}, err
		case !path.Plausible:
			return refuse(path.Reason, path.Fix)
		case route == device.RouteCompat:
			return refuse(wasCompat, fixCompat)
		}
	}
	if k.opened, err = k.lib.open(ctx, &g.e.opts, p.dev, must); err == nil {
		k.file, err = g.register(k.lib)
	}
	if err == nil {
		return k, nil
	}
	if must {
		return knownBy{}, err
	}
	return refuse(plainly(err), errs.FixOf(err))
}

// judged returns whether a direct path is plausible, and the route that the counters have shown.
func (g *Target) judged(p *port, lib *library) (DirectPath, string, error) {
	src, err := g.Source()
	if err != nil {
		return DirectPath{}, "", err
	}
	path, route := g.e.directPath(src, p.dev.Info()), lib.shown(fileSystem(src))
	return path, route, src.Close()
}

func (g *Target) register(lib *library) (device.DirectFile, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.files[lib]; f != nil {
		return f, nil
	}
	fd := g.DirectFD()
	if fd < 0 {
		fd = g.FD()
	}
	f, err := lib.opened().OpenFile(fd)
	if err != nil {
		return nil, errs.Wrap("give to cuFile", g.Path(), err)
	}
	g.files[lib] = f
	return f, nil
}

// Close deregisters the file from libcufile and closes it. No read or write of the file may be running during Close.
func (g *Target) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []error
	for lib, f := range g.files {
		all = append(all, f.Close())
		delete(g.files, lib)
	}
	return errors.Join(append(all, g.Editable.Close())...)
}

// Range is a range of a Target, with the address of its source or destination memory.
type Range struct {
	Mem device.Ptr
	Off int64
	Len int64
}

func (g *Target) check(op string, r Range) error {
	if r.Off < 0 || r.Len < 0 || r.Off > 1<<62-r.Len || !r.Mem.Holds(r.Len) {
		return errs.New(errs.Invalid, op, g.Path(),
			fmt.Sprintf("%d bytes at offset %d, memory at 0x%x; expected an address, and offset and length of 0 or more", r.Len,
				r.Off, uint64(r.Mem)))
	}
	return nil
}
