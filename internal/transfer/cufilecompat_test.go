// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// TestCompatOnlyIsCountedByNebulaIO: where no direct route exists, reports count
// exactly what cuFile did, say who counted, and leave libcufile's statistics alone.
func TestCompatOnlyIsCountedByNebulaIO(t *testing.T) {
	const pieces, rest = 48, 1234
	path, want := writeFile(t, pieces*64*units.KiB+rest, 43)
	for _, api := range apis() {
		t.Run(string(api), func(t *testing.T) {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{CompatOnly: true}, DirectPath{})
			f := openFile(t, path)
			for range 2 {
				got, rep := loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteCuFile)
				if !bytes.Equal(got, want) {
					t.Fatal("bytes differ")
				}
				if len(rep.Routes) != 1 || rep.Routes[0].Route != report.RouteTakenCuFileCompat || rep.Routes[0].Bytes != f.Size() {
					t.Errorf("routes %+v", rep.Routes)
				}
				ops := device.RouteOps{Total: pieces + 1, Posix: pieces + 1}
				counted := device.DirectCounters{Known: true, CountedBy: device.CountedByNebulaIO, Reads: ops, ReadBytes: f.Size()}
				if api == report.CuFileBatch {
					counted.Reads, counted.ReadBytes, counted.Batch, counted.BatchBytes = device.RouteOps{}, 0, ops, f.Size()
				}
				if c := rep.CuFile; c == nil || c.Counters == nil || *c.Counters != *describeCounters(counted) ||
					c.Uncounted != "" {
					t.Errorf("cufile %+v, want %+v", c, counted)
				}
				if text, err := json.Marshal(rep); err != nil ||
					!strings.Contains(string(text), `"counters":{"known":true,"counted_by":"nebulaio","reads"`) {
					t.Errorf("%s, %v", text, err)
				}
			}
			if n := r.fake.Count("stats_calls"); n != 0 {
				t.Errorf("%d calls of libcufile's statistics", n)
			}
		})
	}
}
