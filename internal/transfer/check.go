// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/report"
)

// check returns an error if the request is not valid, before anything is changed.
func (r *Request) check() (total int64, err error) {
	rows := int64(0)
	for i, s := range r.Segments {
		if s.File < 0 || s.File >= len(r.Files) {
			return 0, errs.New(errs.Invalid, "start transfer", fmt.Sprintf("segment %d", i),
				fmt.Sprintf("names file %d of %d", s.File, len(r.Files)))
		}
		f := r.Files[s.File]
		if s.Off < 0 || s.Len < 0 || s.Len > f.Size()-s.Off {
			return 0, errs.New(errs.Invalid, "start transfer", f.Path(),
				fmt.Sprintf("segment %d is [%d, %d+%d), the file has %d bytes", i, s.Off, s.Off, s.Len, f.Size()))
		}
		if err := s.Check(f.Path()); err != nil {
			return 0, err
		}
		total += s.Wanted()
		if rows++; s.Strided() {
			rows += (s.Len - 1) / s.Stride
		}
	}
	if r.Route == report.RouteCuFile && rows > mostRows {
		return 0, errs.New(errs.Invalid, "start transfer", "route cufile",
			fmt.Sprintf("would read %d rows one by one, expected at most %d: what comes through cuFile is not packed",
				rows, mostRows)).
			WithFix("use route auto, which reads rows together, or take more of the inner dimensions")
	}
	if r.Route == report.RouteCuFile && r.Verify != nil {
		return 0, errs.New(errs.Invalid, "start transfer", "route cufile",
			"cannot be verified: what completes a block and is not wanted itself has no place that cuFile could put it").
			WithFix("use route auto, which uses cuFile where it is of use and verifies on the device")
	}
	if err := r.checkRemotes(); err != nil {
		return 0, err
	}
	if err := r.checkPeers(); err != nil || r.Route != report.RouteDirect {
		return total, err
	}
	for _, f := range r.Files {
		if ok, why := f.Direct(); !ok {
			return 0, errDirect(f, why)
		}
	}
	return total, nil
}

// checkRemotes returns an error if the route is not possible for a remote file.
func (r *Request) checkRemotes() error {
	for _, f := range r.Files {
		if f.Remote() != nil && r.Route == report.RouteCuFile {
			return errs.New(errs.Unsupported, "read through cuFile", f.Path(), "it is read over a network").
				WithFix("use route auto")
		}
	}
	return nil
}

// checkPeers returns an error if a peer of the request is not valid.
func (r *Request) checkPeers() error {
	_, addressable := r.Device.(device.Mapper)
	for i, p := range r.Peers {
		bad := func(kind errs.Kind, msg, fix string) error {
			return errs.New(kind, "start transfer", fmt.Sprintf("peer %d", i), msg).WithFix(fix)
		}
		if p.Device == nil || p.Device == r.Device {
			return bad(errs.Invalid, "is the device of the request itself, or none", "name other devices")
		}
		for _, q := range r.Peers[:i] {
			if q.Device == p.Device && q.To == p.To {
				return bad(errs.Invalid, p.Device.Info().ID+" is named twice with the same memory", "name it once")
			}
		}
		if _, ok := p.Device.(device.Mapper); addressable && !ok {
			return bad(errs.Unsupported,
				fmt.Sprintf("%s gets its bytes from %s, which are read into place and not staged",
					p.Device.Info().ID, r.Device.Info().ID), "name a GPU as the device, and host memory as its peer")
		}
		for _, s := range r.Segments {
			if s.Len > 0 && s.Dst < p.From {
				return bad(errs.Invalid,
					fmt.Sprintf("a destination at 0x%x lies before 0x%x, where its memory begins",
						uint64(s.Dst), uint64(p.From)), "give the lowest destination")
			}
		}
	}
	if len(r.Peers) > 0 && r.Route == report.RouteCuFile {
		return errs.New(errs.Invalid, "start transfer", "route cufile",
			"does not serve peers: cuFile moves bytes to one device").
			WithFix("use route auto, or start a transfer for each device")
	}
	return nil
}

// mostRows is the largest number of rows that a transfer by the route cufile reads one by one, because each row takes
// memory in the plan.
const mostRows = 4 << 20
