// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// packedLoad loads a cold file to a fake GPU. The destinations of the segments are 16 bytes apart, as those of tensors
// behind a scale of 4 bytes are.
func packedLoad(t *testing.T, r *cuRig, f *vfs.File, want []byte, lens ...int64) report.Report {
	t.Helper()
	const apart = 16
	requireDirect(t, f)
	dropped(t, f)
	b := alloc(t, r.dev, f.Size()+apart*int64(len(lens)))
	var segs []Segment
	var off int64
	for i, n := range lens {
		segs = append(segs, Segment{Off: off, Len: n, Dst: b.Ptr() + device.Ptr(off+apart*int64(i))})
		off += n
	}
	tr := start(t, r.e, context.Background(), Request{Device: r.dev, Files: []*vfs.File{f}, Route: report.RouteAuto,
		Cache: report.CacheBypass, Segments: segs, Gap: DefaultGap})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	for i, s := range segs {
		if !bytes.Equal(r.gpu.Bytes(s.Dst, s.Len), want[s.Off:s.Off+s.Len]) {
			t.Fatalf("segment %d has other bytes", i)
		}
	}
	return tr.Report()
}

// TestPackedBytesTellWhyCuFileLeftThem loads small tensors with space between them, which are packed in host memory.
// The report says why cuFile read none of them.
func TestPackedBytesTellWhyCuFileLeftThem(t *testing.T) {
	path, want := writeFile(t, 300_000, 47)
	for reason, judged := range map[string]DirectPath{
		"a virtual disk":        {Reason: "a virtual disk", Fix: "an NVMe disk"},
		"packed in host memory": {Plausible: true},
	} {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{Route: fakegpu.P2P}, judged)
		rep := packedLoad(t, r, openFile(t, path), want, 100_000, 4, 199_996)
		if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, reason) || x.Fix == "" || x.On != path {
			t.Errorf("expected the reason %q, got %+v", reason, x)
		}
		if n := routeBytes(rep, report.RouteTakenDirect); n != 300_000 || r.opens != 0 {
			t.Errorf("%d bytes went past the page cache, and cuFile was opened %d times: %+v", n, r.opens, rep.Routes)
		}
	}
}

// TestLargeTensorsBesideSmallOnesGoByCuFile loads two large tensors with a scale of 4 bytes between them: cuFile reads
// the large ones.
func TestLargeTensorsBesideSmallOnesGoByCuFile(t *testing.T) {
	const large = 16 * units.MiB
	path, want := writeFile(t, 2*large+4, 48)
	for _, api := range apis() {
		r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{Route: fakegpu.P2P}, DirectPath{Plausible: true})
		rep := packedLoad(t, r, openFile(t, path), want, large, 4, large)
		if n := routeBytes(rep, report.RouteTakenCuFileP2P); n < 2*large {
			t.Errorf("%s: cuFile read %d bytes, expected %d: %+v", api, n, 2*large, rep.Routes)
		}
	}
}

// TestPackedBytesHideNoOtherReason loads small tensors and a large one where libcufile cannot be opened. The report
// says that libcufile cannot be opened, whether the small tensors or the large one come first.
func TestPackedBytesHideNoOtherReason(t *testing.T) {
	const large = 16 * units.MiB
	path, want := writeFile(t, large+300_000, 49)
	orders := map[string][]int64{"small": {100_000, 4, 199_996, large}, "large": {large, 100_000, 4, 199_996}}
	for first, lens := range orders {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{}, DirectPath{Plausible: true})
		r.e.main.opts.OpenDirect = func(context.Context, device.Device) (device.Direct, error) {
			return nil, errors.New("libcufile.so.0 is not installed")
		}
		rep := packedLoad(t, r, openFile(t, path), want, lens...)
		if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, "is not installed") {
			t.Errorf("%s tensors first: the report says %+v", first, x)
		}
	}
}
