// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// tiny writes a small model and returns its path and its files as written.
func tiny(t *testing.T, name string, shard int64) (string, []*format.File) {
	t.Helper()
	shapes, err := synth.Shapes("tiny")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	files, err := synth.Write(context.Background(), path, synth.Options{Shapes: shapes, Seed: 7, ShardSize: shard})
	if err != nil {
		t.Fatal(err)
	}
	return path, files
}

func open(t *testing.T, path string, o model.Options) *model.Model {
	t.Helper()
	m, err := model.Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestEveryTensorArrivesAtItsPlace(t *testing.T) {
	path, files := tiny(t, "m.safetensors", 0)
	e, err := transfer.New(transfer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, addressable := range []bool{false, true} {
		m := open(t, path, model.Options{Addressable: addressable})
		dev := host.New()
		b, err := dev.Alloc(m.Layouts[0].Size)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Free()
		tr, err := m.Start(context.Background(), e, dev, []model.Destination{{Ptr: b.Ptr(), Size: b.Size()}},
			model.LoadOptions{Route: report.RouteAuto, Cache: report.CacheAuto})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		if len(m.Tensors) != len(files[0].Tensors) {
			t.Fatalf("%d tensors of %d", len(m.Tensors), len(files[0].Tensors))
		}
		sum := int64(0)
		for _, x := range m.Tensors {
			want := make([]byte, x.Size)
			synth.Content(synth.FileSeed(7, 0), x.Offset, want)
			if !bytes.Equal(dev.Map(b.Ptr(), b.Size())[x.At:x.At+x.Size], want) {
				t.Errorf("%s differs", x.Name)
			}
			sum += x.Size
		}
		if m.Bytes() != sum || m.Sharded {
			t.Errorf("%d bytes, sharded %v", m.Bytes(), m.Sharded)
		}
	}
}

func TestGlobsChooseTensors(t *testing.T) {
	path, files := tiny(t, "m.safetensors", 0)
	name := files[0].Tensors[0].Name
	m := open(t, path, model.Options{Tensors: []string{name}})
	if len(m.Tensors) != 1 || m.Tensors[0].Name != name || m.Layouts[0].Size != m.Tensors[0].Size {
		t.Errorf("%+v", m.Tensors)
	}
	all := open(t, path, model.Options{Tensors: []string{"*", name}}) // matched twice, taken once
	if len(all.Tensors) != len(files[0].Tensors) {
		t.Errorf("%d tensors of %d", len(all.Tensors), len(files[0].Tensors))
	}
	_, err := model.Open(context.Background(), path, model.Options{Tensors: []string{"*", "nobody.*"}})
	if !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), `"nobody.*"`) ||
		!strings.Contains(err.Error(), path) || errs.FixOf(err) == "" {
		t.Errorf("a glob that matches nothing: %v", err)
	}
	_, err = model.Open(context.Background(), path, model.Options{Tensors: []string{"[a"}})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), `"[a"`) {
		t.Errorf("not a glob: %v", err)
	}
}

func TestDestinationsAreCheckedBeforeAnythingMoves(t *testing.T) {
	path, _ := tiny(t, "m.safetensors", 0)
	m := open(t, path, model.Options{})
	e, err := transfer.New(transfer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	dev := host.New()
	need := m.Layouts[0].Size
	for want, dst := range map[string][]model.Destination{
		"0 destinations given, expected 1": {},
		"2 destinations given, expected 1": {{}, {}},
		"expected at least":                {{Ptr: 4096, Size: need - 1}},
		"at 0x0, expected":                 {{Ptr: 0, Size: need}},
		"not aligned to 8":                 {{Ptr: 4097, Size: need}},
	} {
		if _, err := m.Start(context.Background(), e, dev, dst, model.LoadOptions{}); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", dst, err)
		}
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := m.Start(context.Background(), e, dev, nil, model.LoadOptions{}); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed model: %v", err)
	}
}

func TestDropCacheAndCached(t *testing.T) {
	path, _ := tiny(t, "m.safetensors", 0)
	m := open(t, path, model.Options{})
	left, err := m.DropCache()
	if errs.Is(err, errs.Unsupported) {
		t.Skipf("the temporary folder is in memory: %v", err)
	}
	if err != nil || left != 0 {
		t.Fatalf("%d bytes are left: %v", left, err)
	}
	if n, err := m.Cached(); err != nil || n != 0 {
		t.Errorf("%d bytes are cached: %v", n, err)
	}
}

func TestOpenFailsWithItsReason(t *testing.T) {
	if _, err := model.Open(context.Background(), filepath.Join(t.TempDir(), "none.safetensors"),
		model.Options{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
	path, _ := tiny(t, "m.safetensors", 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := model.Open(ctx, path, model.Options{}); !errs.Is(err, errs.Cancelled) {
		t.Errorf("got %v", err)
	}
}
