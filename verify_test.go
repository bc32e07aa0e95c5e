// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestLoadVerifiesOnAGPU(t *testing.T) {
	path := tiny(t)
	g := fakegpu.Build(t, fakegpu.Options{})
	sys := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
	o := nebulaio.LoadOptions{Device: "cuda", Verify: true}
	ctx := context.Background()
	if _, err := sys.Load(ctx, path, o); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(errs.FixOf(err), "inspect "+path+" --checksum") {
		t.Fatalf("without checksums: %v", err)
	}
	s, err := checksum.Compute(ctx, path, 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	m, err := sys.Load(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	same(t, m, path)
	if v := m.Report().Verify; v == nil || v.Blocks != int64(len(s.Blocks)) || v.Bytes != s.Size {
		t.Errorf("report: %+v", v)
	}
	if err := m.Free(); err != nil {
		t.Fatal(err)
	}

	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 0x80
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sys.Load(ctx, path, o); !errs.Is(err, errs.Corrupt) ||
		!strings.Contains(err.Error(), "block 2, bytes 8192 to ") || !strings.Contains(err.Error(), `it holds tensor "`) {
		t.Errorf("one bit flipped: %v", err)
	}
	g.CheckIdle()
}
