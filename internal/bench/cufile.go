// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// cufile holds the state of lanes whose blocks are moved by cuFile.
type cufile struct {
	lib        device.Direct
	files      [][]device.DirectFile // as the set's groups and files
	unregister func() error
	counts     bool
}

// openCuFile registers the files and the device memory with cuFile.
func (l *lanes) openCuFile(ctx context.Context) (err error) {
	if l.OpenDirect == nil {
		return errs.New(errs.Unsupported, "benchmark", "cufile", "needs a GPU")
	}
	if l.cu.lib, err = l.OpenDirect(ctx); err != nil {
		return err
	}
	if l.cu.unregister, err = l.cu.lib.Register(l.dev); err != nil {
		return err
	}
	for g, group := range l.Set.Groups {
		var all []device.DirectFile
		for i, f := range group.Files {
			fd := f.DirectFD()
			if l.Spec.Route == Buffered {
				fd = f.BufferedFD() // through the page cache, where cuFile's compat mode is fastest with what is cached
			}
			if l.Spec.Op == Write {
				fd = l.targets[g][i].DirectFD()
			}
			df, err := l.cu.lib.OpenFile(fd)
			if err != nil {
				return errs.Wrap("give to cuFile", f.Path(), err)
			}
			all = append(all, df)
		}
		l.cu.files = append(l.cu.files, all)
	}
	if err := l.cu.lib.StartCounting(); err == nil {
		l.cu.counts = true
	} else {
		l.notes = append(l.notes, "cuFile's statistics are not available: "+err.Error())
	}
	return nil
}

// byCuFile lets cuFile move one block between storage and device memory.
func (ln *lane) byCuFile(b block) error {
	l := ln.l
	f, base := l.cu.files[b.group][b.file], l.dev.Ptr()
	off := int64(ln.slots[0].dev - base)
	move := f.Read
	if l.Spec.Op == Write {
		move = f.Write
	}
	n, err := move(base, off, b.len, b.off)
	if err == nil && n < b.len {
		err = l.file(b).ErrShort(b.off, int(b.len), int(n))
	}
	if err != nil {
		return errs.Wrap("move by cuFile "+b.String()+" of", l.file(b).Path(), err)
	}
	if l.Spec.Verify && l.Spec.Op == Read {
		return ln.verify(b, 0)
	}
	return nil
}

// report records the routes that cuFile counted, never the route that was requested.
func (c *cufile) report(r *record.Run) error {
	r.Proof = "cuFile's statistics, operations by route"
	n := device.DirectCounters{}
	if c.counts {
		var err error
		if n, err = c.lib.Counters(); err != nil {
			return err
		}
	}
	ops := n.Reads
	if r.Settings.Op == string(Write) {
		ops = n.Writes
	}
	route := n.Route()
	switch basis := n.Basis(); {
	case basis != "":
		r.Proof = "operations by route, " + basis
		r.Notes = append(r.Notes, fmt.Sprintf("cuFile %s made %d operations: %s; %s", c.lib.Version(), ops.Total, ops, basis))
	case n.Known:
		r.Notes = append(r.Notes, fmt.Sprintf("cuFile %s counted %d operations: p2p %d, nvfs %d, compat %d, unaligned %d",
			c.lib.Version(), ops.Total, ops.P2P, ops.NVFS, ops.Posix, ops.Unaligned))
	}
	switch route {
	case device.RouteMixed, device.RouteUnknown, device.RouteNone:
		r.Routes = []record.Route{{Route: "unknown", Bytes: r.Bytes}}
		r.Notes = append(r.Notes, "bytes by route are unknown: the counters say "+route)
	default:
		r.Routes = []record.Route{{Route: "cufile_" + route, Bytes: r.Bytes}}
	}
	return nil
}

func (c *cufile) close() error {
	var all []error
	for _, g := range c.files {
		for _, f := range g {
			all = append(all, f.Close())
		}
	}
	if c.unregister != nil {
		all = append(all, c.unregister())
	}
	if c.lib != nil {
		all = append(all, c.lib.Close())
	}
	return errors.Join(all...)
}
