// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/report"
)

// Source supplies a range of a file's bytes from device memory or, if Device is nil, from the byte slice Data.
type Source struct {
	Off    int64 // offset of the range in the file
	Len    int64
	Device device.Device
	Ptr    device.Ptr
	Data   []byte
}

// source is a Source with the port of its device, which is nil for Data.
type source struct {
	Source
	port *port
}

// sources are all sources of a file or object. They have no gaps and no overlaps.
type sources struct {
	name  string   // name of the file or object
	all   []source // in order of offset; neighbours in memory are joined
	ports []*port  // ports of the devices, in order of appearance
	size  int64
}

// tile returns an error if the sources have a gap or an overlap, and joins neighbours.
func tile(name string, given []Source) (*sources, error) {
	x := &sources{name: name}
	bad := func(i int, msg string) error {
		return errs.New(errs.Invalid, "save", name, fmt.Sprintf("source %d %s", i, msg))
	}
	all := slices.Clone(given)
	slices.SortStableFunc(all, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Len,
			b.Len))
	})
	for i, s := range all {
		switch {
		case s.Len < 0 || s.Off != x.size:
			return nil, bad(i, fmt.Sprintf("has %d bytes at offset %d, expected offset %d", s.Len, s.Off, x.size))
		case s.Device == nil && int64(len(s.Data)) != s.Len:
			return nil, bad(i, fmt.Sprintf("has %d bytes of data, expected %d", len(s.Data), s.Len))
		case s.Device != nil && !s.Ptr.Holds(s.Len):
			return nil, bad(i, fmt.Sprintf("has the address 0x%x, expected one that %d bytes can begin at",
				uint64(s.Ptr), s.Len))
		}
		x.size += s.Len
		if s.Len == 0 {
			continue
		}
		if n := len(x.all); n > 0 && s.Device != nil {
			if last := &x.all[n-1]; last.Device == s.Device && last.Ptr+device.Ptr(last.Len) == s.Ptr {
				last.Len += s.Len
				continue
			}
		}
		x.all = append(x.all, source{Source: s})
	}
	return x, nil
}

// enter sets the port of each device. The caller holds lane.mu.
func (x *sources) enter(ps *ports) error {
	for i := range x.all {
		s := &x.all[i]
		if s.Device == nil {
			continue
		}
		p, err := ps.of(s.Device)
		if err != nil {
			return err
		}
		if s.port = p; !slices.Contains(x.ports, p) {
			x.ports = append(x.ports, p)
		}
	}
	return nil
}

// order makes the copies wait for the work that is queued on the caller's streams.
func (x *sources) order(streams map[device.Device]uint64) error {
	for _, p := range x.ports {
		stream, ok := streams[p.dev]
		if !ok || p.dev.Info().Kind == device.Host {
			continue
		}
		if err := p.queue.After(stream); err != nil {
			return errs.Wrap("order after the caller's stream on", p.dev.Info().ID, err)
		}
	}
	return nil
}

// pieces calls f for each source's share of [off, off+n) of the file. dst is the offset of the bytes in the range,
// and at their offset in the source.
func (x *sources) pieces(off, n int64, f func(s *source, at, dst, n int64) error) error {
	i := sort.Search(len(x.all), func(i int) bool { return x.all[i].Off+x.all[i].Len > off })
	for end := off + n; i < len(x.all) && x.all[i].Off < end; i++ {
		s := &x.all[i]
		lo, hi := max(off, s.Off), min(end, s.Off+s.Len)
		if err := f(s, lo-s.Off, lo-off, hi-lo); err != nil {
			return err
		}
	}
	return nil
}

// collect copies the bytes from offset off on into data, which is memory of the slot. It queues the copies from
// devices, each with a mark of the slot behind it, and returns the ports of the devices. After an error, queued
// copies may have no mark behind them.
func (x *sources) collect(off int64, to *staging.Slot, data []byte) (ports []*port, err error) {
	err = x.pieces(off, int64(len(data)), func(s *source, at, dst, n int64) error {
		part := data[dst : dst+n]
		switch {
		case s.port == nil:
			copy(part, s.Data[at:])
			return nil
		case s.port.mapper != nil:
			copy(part, s.port.mapper.Map(s.Ptr+device.Ptr(at), n))
			return nil
		}
		to.Ensure(s.port.dev)
		if !slices.Contains(ports, s.port) {
			ports = append(ports, s.port)
		}
		return s.port.queue.CopyOut(part, s.Ptr+device.Ptr(at))
	})
	for i := 0; err == nil && i < len(ports); i++ {
		var m device.Mark
		if m, err = to.MarkFor(ports[i].queue); err == nil {
			err = m.Record()
		}
	}
	return ports, err
}

// inPlace returns the memory of the range, if it is contiguous and the CPU can address it.
func (x *sources) inPlace(off, n int64) (data []byte) {
	_ = x.pieces(off, n, func(s *source, at, _, k int64) error {
		switch {
		case k != n:
		case s.port == nil:
			data = s.Data[at : at+n]
		case s.port.mapper != nil:
			data = s.port.mapper.Map(s.Ptr+device.Ptr(at), n)
		}
		return nil
	})
	return data
}

// await waits for the marks that collect has recorded for a slot.
func await(s *staging.Slot, ports []*port) error {
	var err error
	for _, p := range ports {
		m, werr := s.MarkFor(p.queue)
		if werr == nil {
			werr = m.Wait()
		}
		if werr != nil {
			err = errors.Join(err, werr, p.queue.Drain())
		}
	}
	return err
}

// devices returns the names of the devices as a text.
func (x *sources) devices() string {
	var ids []string
	for _, p := range x.ports {
		ids = append(ids, p.dev.Info().ID)
	}
	if len(ids) == 0 {
		return "memory"
	}
	return strings.Join(ids, ", ")
}

// shares counts the bytes from each device, in order of appearance.
func (x *sources) shares() (out []report.Source) {
	at := map[string]int{}
	for _, s := range x.all {
		name := "memory"
		if s.port != nil {
			name = s.port.dev.Info().ID
		}
		if _, ok := at[name]; !ok {
			at[name] = len(out)
			out = append(out, report.Source{Device: name})
		}
		out[at[name]].Bytes += s.Len
	}
	return out
}
