// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/synth"
)

// TestCacheAutoKeepsAFileThatIsLoadedAgain walks the policy as a user meets it,
// with a system of its own for each load, as separate processes have: past the
// page cache the first time, through it when the data is absent again, and from
// it after that.
func TestCacheAutoKeepsAFileThatIsLoadedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	shapes := []format.Tensor{{Name: "w", DType: format.U8, Shape: []int64{16<<20 + 5}, Size: 16<<20 + 5}}
	if _, err := synth.Write(context.Background(), path, synth.Options{Shapes: shapes, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"direct", "buffered", "page_cache"} {
		sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: "off"})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			src, err := sys.OpenSource(context.Background(), path, nebulaio.SourceOptions{Device: "host"})
			if err != nil {
				t.Fatal(err)
			}
			if left, err := src.DropCache(); err != nil || left > 0 {
				t.Skipf("the page cache cannot be dropped here: %d bytes left, %v", left, err)
			}
			src.Close()
		}
		m, err := sys.Load(context.Background(), path, nebulaio.LoadOptions{Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		r := m.Report()
		if !r.Files[0].Direct {
			t.Skipf("the file system under the test refuses O_DIRECT: %+v", r.Refusals)
		}
		share := map[string]int64{}
		for _, x := range r.Routes {
			share[string(x.Route)] = x.Bytes
		}
		// The ragged ends and what the header's page brings along are small.
		// Where the load itself fills the page cache, the kernel's readahead may
		// run before the planner: what it brought is cached when it is asked.
		through := share[want]
		if want == "buffered" && through > 0 {
			through += share["page_cache"]
		}
		if through < r.Bytes*9/10 {
			t.Errorf("load %d: %v, expected nearly all by %s", i+1, share, want)
		}
		m.Free()
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	}
}
