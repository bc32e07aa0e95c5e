// SPDX-License-Identifier: Apache-2.0

// Package gpu_test runs the library on a real GPU. The test binary is built in advance and copied to a machine with a
// GPU; on other machines the tests skip.
package gpu_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/synth"
)

func open(t *testing.T, o nebulaio.Options) *nebulaio.System {
	t.Helper()
	o.Devices = "require"
	s, err := nebulaio.NewSystem(o)
	if err != nil {
		t.Skipf("no GPU: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// needGPU skips the test if there is no GPU.
func needGPU(t *testing.T) {
	t.Helper()
	s, err := nebulaio.NewSystem(nebulaio.Options{Devices: "require"})
	if err != nil {
		t.Skipf("no GPU: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// dir returns a directory on a disk, so that there is a route past the page cache.
func dir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("/var/tmp", "nebulaio-gpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func generate(t *testing.T, path, shapes string, seed uint64, shard int64) {
	t.Helper()
	sh, err := synth.Shapes(shapes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := synth.Write(t.Context(), path, synth.Options{Shapes: sh, Seed: seed, ShardSize: shard}); err != nil {
		t.Fatal(err)
	}
}

// verify reads every tensor back from the GPU and compares it with the generated content.
func verify(t *testing.T, sys *nebulaio.System, m *nebulaio.Model, path string, seed uint64) {
	t.Helper()
	src, err := sys.OpenSource(t.Context(), path, nebulaio.SourceOptions{Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	host, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{Route: "buffered"})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	for _, name := range m.Names() {
		got, err := m.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := host.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("tensor %s differs on the GPU", name)
		}
	}
}

func TestLoadsAreBitExactOnEveryRoute(t *testing.T) {
	for _, io := range []string{"pread", "uring"} {
		sys := open(t, nebulaio.Options{IO: io})
		path := filepath.Join(dir(t), "m.safetensors")
		generate(t, path, "qwen3-0.6b", 7, 0)
		for _, c := range []struct {
			name, route string
			cache       nebulaio.CachePolicy
			drop        bool
		}{
			{"warm", "auto", "auto", false}, {"cold", "auto", "bypass", true}, {"kept", "auto", "keep", true},
			{"buffered", "buffered", "auto", true}, {"direct", "direct", "auto", false},
		} {
			t.Run(io+"/"+c.name, func(t *testing.T) {
				src, err := sys.OpenSource(t.Context(), path, nebulaio.SourceOptions{Device: "cuda:0"})
				if err != nil {
					t.Fatal(err)
				}
				defer src.Close()
				if c.drop {
					if _, err := src.DropCache(); err != nil {
						t.Fatal(err)
					}
				}
				m, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{Route: nebulaio.Route(c.route), Cache: c.cache})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Free()
				r := m.Report()
				t.Logf("%.2f GB/s, %+v, limiting %s, staging %+v, refusals %+v", r.GBps, r.Routes, r.Limiting, r.Engine, r.Refusals)
				if r.Device.ID != "cuda:0" || !strings.HasPrefix(r.Device.Model, "NVIDIA") {
					t.Errorf("the report names %+v", r.Device)
				}
				if r.Engine.StagingState != "pinned" {
					t.Errorf("staging is %s", r.Engine.StagingState)
				}
				verify(t, sys, m, path, 7)
			})
		}
	}
}

func TestAllDTypesAndShards(t *testing.T) {
	sys := open(t, nebulaio.Options{})
	d := dir(t)
	generate(t, filepath.Join(d, "tiny.safetensors"), "tiny", 3, 0)
	generate(t, filepath.Join(d, "sharded"), "tiny", 3, 2000)
	for _, p := range []string{filepath.Join(d, "tiny.safetensors"), filepath.Join(d, "sharded")} {
		m, err := sys.Load(t.Context(), p, nebulaio.LoadOptions{Device: "cuda"})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, sys, m, p, 3)
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	}
}

func TestFourLoadsAtOnceAreExact(t *testing.T) {
	sys := open(t, nebulaio.Options{})
	d := dir(t)
	var wg sync.WaitGroup
	for i := range 4 {
		p := filepath.Join(d, string(rune('a'+i))+".safetensors")
		generate(t, p, "tiny", uint64(i), 0)
		wg.Go(func() {
			for range 10 {
				m, err := sys.Load(context.Background(), p, nebulaio.LoadOptions{Device: "cuda:0"})
				if err != nil {
					t.Error(err)
					return
				}
				verify(t, sys, m, p, uint64(i))
				m.Free()
			}
		})
	}
	wg.Wait()
}

func TestCancelledLoadLeavesNothing(t *testing.T) {
	sys := open(t, nebulaio.Options{})
	path := filepath.Join(dir(t), "m.safetensors")
	generate(t, path, "qwen3-0.6b", 1, 0)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		src, err := sys.OpenSource(ctx, path, nebulaio.SourceOptions{Device: "cuda:0"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.DropCache(); err != nil {
			t.Fatal(err)
		}
		_, err = src.Load(ctx, nebulaio.SourceLoadOptions{Progress: func(done, _ int64) { cancel() }})
		if nebulaio.KindOf(err).ExitCode() != 130 {
			t.Errorf("cancelled load: %v", err)
		}
		src.Close()
	}
	m, err := sys.Load(t.Context(), path, nebulaio.LoadOptions{Device: "cuda:0"})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, sys, m, path, 1)
	m.Free()
}
