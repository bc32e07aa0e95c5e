// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// sizes are those around every bound that something on the way has: pages,
// blocks of sums, content kept with metadata, grants of the door.
var sizes = []int{0, 1, 4095, 4096, 4097, 16<<10 - 1, 16 << 10, 16<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 - 1,
	3 << 20, 3<<20 + 1, 7<<20 + 13}

func TestReadsEveryRangeThroughTheDoor(t *testing.T) {
	for _, id := range []string{"host", "cuda:0"} {
		t.Run(id, func(t *testing.T) {
			r := newRig(t, id != "host")
			c := r.client()
			for i, size := range sizes {
				data := content(uint64(i), size)
				key := fmt.Sprintf("o%d", size)
				info := r.put(key, data)
				ranges := [][2]int64{{0, -1}, {0, int64(size)}, {int64(size), 0}, {int64(size), -1}, {int64(size) / 2, -1},
					{int64(size) / 3, int64(size) / 2}}
				for _, x := range ranges {
					want := data[x[0]:]
					if x[1] >= 0 {
						want = want[:x[1]]
					}
					got, rep, err := r.read(c, Read{Key: key, Off: x[0], Size: x[1], Device: id}, len(want)+100)
					if err != nil || !bytes.Equal(got, want) {
						t.Fatalf("%s from %d, %d bytes: %v, %d bytes, equal %v", key, x[0], x[1], err, len(got), bytes.Equal(got, want))
					}
					if rep.Via != ViaDoor || rep.ETag != info.ETag || rep.Size != int64(size) || rep.Bytes != int64(len(want)) ||
						rep.Report.Device.ID != id || rep.Inline != (size <= 16<<10) {
						t.Fatalf("%s from %d: report %+v", key, x[0], rep)
					}
					if len(want) > 0 && rep.Verify == nil {
						t.Fatalf("%s: nothing was verified", key)
					}
					if rep.Inline && len(want) > 0 && rep.Routes[0].Route != routeSocket {
						t.Fatalf("%s came by %v", key, rep.Routes)
					}
				}
			}
			s := c.Status(t.Context())
			if s.Door != r.socket || s.Store != testStore || s.Counters.InlineReads == 0 || s.Counters.DoorReads == 0 ||
				s.Settings.MaxTransferSize != 3<<20 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	r := newRig(t, true)
	data := content(1, 2<<20)
	r.put("there", data)
	r.put("forbidden/object", data)
	c := r.client()
	mem := r.alloc("cuda:0", 4<<20)
	ok := Read{Bucket: "b", Key: "there", Size: -1, Dst: mem.ptr(), DstSize: 4 << 20, Device: "cuda:0"}
	with := func(f func(*Read)) Read {
		x := ok
		f(&x)
		return x
	}
	freed := r.alloc("cuda:0", 4<<20)
	if err := freed.buf.Free(); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		read Read
		kind errs.Kind
		text []string
	}{
		"missing object": {with(func(r *Read) { r.Key = "missing" }), errs.NotFound, []string{"s3://b/missing"}},
		"missing bucket": {with(func(r *Read) { r.Bucket = "nowhere" }), errs.NotFound, []string{"s3://nowhere/there"}},
		"forbidden": {with(func(r *Read) { r.Key = "forbidden/object" }), errs.Permission,
			[]string{"s3://b/forbidden/object", "not allow"}},
		"buffer too small": {with(func(r *Read) { r.DstSize = 1000 }), errs.Invalid,
			[]string{"2097152 bytes are to be read and the buffer has 1000", "larger buffer"}},
		"size too large": {with(func(r *Read) { r.Size = 5 << 20 }), errs.Invalid,
			[]string{"5242880 bytes are to be read and the buffer has 4194304"}},
		"behind the end": {with(func(r *Read) { r.Off = 3 << 20 }), errs.Invalid, []string{"3145728", "2097152"}},
		"over the end":   {with(func(r *Read) { r.Off, r.Size = 1<<20, 2<<20 }), errs.Invalid, []string{"2097152"}},
		"no address":     {with(func(r *Read) { r.Dst = 0 }), errs.Invalid, []string{"the destination is at 0x0"}},
		"no key":         {with(func(r *Read) { r.Key = "" }), errs.Invalid, []string{"no key"}},
		"no such device": {with(func(r *Read) { r.Device = "cuda:7" }), errs.NotFound, []string{"cuda:7"}},
		"wrong device":   {with(func(r *Read) { r.Device = "cuda:1" }), errs.Invalid, []string{"cuda:1", "cuda:0"}},
		"freed buffer":   {with(func(r *Read) { r.Dst = freed.ptr() }), errs.Invalid, []string{"s3://b/there"}},
		"overwritten":    {with(func(r *Read) { r.IfETag = "other" }), errs.IO, []string{"overwritten", "expected other"}},
		"bad route":      {with(func(r *Read) { r.Route = "teleport" }), errs.Invalid, []string{"teleport"}},
	} {
		m, err := c.StartRead(t.Context(), x.read)
		if err == nil {
			err = m.Wait()
			if rep := m.Report(); rep.Error == "" {
				t.Errorf("%s: the report has no error", name)
			}
		}
		if errs.KindOf(err) != x.kind {
			t.Errorf("%s: kind %s: %v", name, errs.KindOf(err), err)
			continue
		}
		for _, s := range x.text {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q is not in: %v", name, s, err)
			}
		}
	}
	if got, _, err := r.read(c, Read{Key: "there", Size: -1, Device: "cuda:0"}, 2<<20); err != nil ||
		!bytes.Equal(got, data) {
		t.Errorf("after all that: %v", err)
	}
	r.trace()
}
