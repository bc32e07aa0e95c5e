// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// ProveHere reads the file at path through cuFile into a GPU of the device set, and counts the reads by route.
// ProveHere runs in the separate process that Prove starts. ProveHere returns errors as part of the proof.
func ProveHere(ctx context.Context, set device.Set, gpu int, path string) *facts.Proof {
	p := &facts.Proof{GPU: gpu}
	if err := proveInto(ctx, p, set, path); err != nil {
		p.Error, p.Fix = plain(err), errs.FixOf(err)
		if absent(err) {
			p.Skipped, p.Error = p.Error, ""
		}
	}
	return p
}

func proveInto(ctx context.Context, p *facts.Proof, set device.Set, path string) (err error) {
	dev, err := set.Open(ctx, fmt.Sprintf("cuda:%d", p.GPU))
	if err != nil {
		return err
	}
	direct, err := set.OpenDirect(ctx, dev)
	if err != nil {
		return err
	}
	defer func() {
		if e := direct.Close(); err == nil {
			err = e
		}
	}()
	p.Version = direct.Version()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) { // no O_DIRECT here
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return errs.Wrap("open", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errs.Wrap("look at", path, err)
	}
	size := min(st.Size, proofSize) &^ (proofAlign - 1)
	if size <= 0 {
		return errs.New(errs.Invalid, "read", path, fmt.Sprintf("the file has %d bytes; a read needs %d", st.Size,
			proofAlign))
	}
	buf, err := dev.Alloc(proofSize)
	if err != nil {
		return err
	}
	defer buf.Free()
	unregister, err := direct.Register(buf)
	if err != nil {
		return err
	}
	defer func() { _ = unregister() }()
	file, err := direct.OpenFile(fd)
	if err != nil {
		return err
	}
	defer file.Close()
	counting := direct.StartCounting()
	for i := range int64(proofReads) {
		if n, err := file.Read(buf.Ptr(), 0, size, i%(st.Size/size)*size); err != nil {
			return err
		} else if n != size {
			return errs.New(errs.IO, "read", path, fmt.Sprintf("%d of %d bytes came; the file became shorter", n, size))
		}
	}
	p.Reads, p.ReadSize = proofReads, size
	p.Counters, err = direct.Counters()
	if err == nil {
		err = counting
	}
	p.Done, p.Route = true, p.Counters.Route()
	return err
}

// absent reports whether cuFile is not installed, so that there is nothing to prove.
func absent(err error) bool {
	for e := (*errs.Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Kind == errs.NotFound && e.Op == "" { // of the loader
			return true
		}
		if e.Err == nil {
			return false
		}
	}
	return false
}
