// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// promiseMemory refuses a load to host memory that the machine does not have.
// Destinations have no pages until they are written: a load that is too large
// would otherwise run until the kernel kills the process.
func (t *Transfer) promiseMemory() error {
	t.memory = func() {}
	var shifts []device.Ptr // from a segment's address to one in host memory
	if t.req.Device.Info().Kind == device.Host {
		shifts = append(shifts, 0)
	}
	for _, p := range t.req.Peers {
		if p.Device.Info().Kind == device.Host {
			shifts = append(shifts, p.To-p.From)
		}
	}
	copies := int64(len(shifts))
	places := func(yield func(hostmem.Span) bool) {
		for _, shift := range shifts {
			for _, s := range t.req.Segments {
				if !yield(hostmem.Span{At: uintptr(s.Dst + shift), Len: s.Wanted()}) {
					return
				}
			}
		}
	}
	done, err := hostmem.Promise("load to host memory", copies*t.total, places, func() int64 { return copies * (t.total - t.delivered.Load()) })
	if err != nil {
		return err
	}
	t.memory = done
	return nil
}
