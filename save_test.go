// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
)

// randomTensors are tensors of every dtype, empty, scalar, tiny, odd and large.
func randomTensors(t *testing.T, seed uint64) []nebulaio.SaveTensor {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	fill := rand.NewChaCha8([32]byte{byte(seed)})
	var out []nebulaio.SaveTensor
	add := func(d nebulaio.DType, shape ...int64) {
		n, err := safetensors.SizeOf(format.DType(d), shape)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		fill.Read(b)
		out = append(out, nebulaio.SaveTensor{Name: fmt.Sprintf("t%03d.%s", len(out), d), DType: d, Shape: shape, Bytes: b})
	}
	for _, d := range nebulaio.DTypes() {
		add(d, 4, rng.Int64N(5)*4)
		add(d, 8, 1+rng.Int64N(300))
		add(d, 0, 3)
		if d.Bits() >= 8 {
			add(d)
			add(d, 1+rng.Int64N(7), 1+rng.Int64N(9), 1+rng.Int64N(11))
		}
	}
	add("BF16", 1, 5<<20+3)
	add("U8", 4097)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func checkLoaded(t *testing.T, sys *nebulaio.System, path, device string, want []nebulaio.SaveTensor,
	bytesOf func(nebulaio.SaveTensor) []byte) {
	t.Helper()
	m, err := sys.Load(context.Background(), path, nebulaio.LoadOptions{Device: device, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	if len(m.Names()) != len(want) {
		t.Fatalf("%d tensors, expected %d", len(m.Names()), len(want))
	}
	for _, w := range want {
		got, ok := m.Tensor(w.Name)
		if !ok || got.DType != w.DType || !slices.Equal(got.Shape, w.Shape) {
			t.Fatalf("%s: %+v", w.Name, got)
		}
		b, err := m.Read(w.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, bytesOf(w)) {
			t.Fatalf("%s: bytes differ", w.Name)
		}
	}
}

func ownBytes(w nebulaio.SaveTensor) []byte { return w.Bytes }

// onlyThere fails the test when dir holds anything but these names.
func onlyThere(t *testing.T, dir string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := vfstest.Names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory holds %q, expected %q", got, want)
	}
}

func TestSaveAndLoadBack(t *testing.T) {
	sys := open(t, nebulaio.Options{Devices: "off"})
	for seed := range uint64(3) {
		dir := t.TempDir()
		path := filepath.Join(dir, "m.safetensors")
		tensors := randomTensors(t, seed)
		r, err := sys.Save(context.Background(), path, tensors,
			nebulaio.SaveOptions{Metadata: map[string]string{"format": "pt", "n": fmt.Sprint(seed)}})
		if err != nil {
			t.Fatal(err)
		}
		st, _ := os.Stat(path)
		if r.Direction != "save" || r.Bytes != st.Size() || r.Tensors != len(tensors) || r.Save == nil ||
			r.Save.Checksums != path+".crc64nvme" {
			t.Errorf("report: %+v %+v", r, r.Save)
		}
		checkLoaded(t, sys, path, "host", tensors, ownBytes)
		src, err := sys.OpenSource(context.Background(), path, nebulaio.SourceOptions{Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		if src.Metadata()["n"] != fmt.Sprint(seed) {
			t.Errorf("metadata: %v", src.Metadata())
		}
		src.Close()
		onlyThere(t, dir, "m.safetensors", "m.safetensors.crc64nvme")
	}
}

func TestSaveFromGPUsAndHostTogether(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	sys := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML, BufferPoolSize: 4 << 20})
	dir := t.TempDir()
	first := filepath.Join(dir, "a.safetensors")
	tensors := randomTensors(t, 9)
	if _, err := sys.Save(context.Background(), first, tensors, nebulaio.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	// Each third of the tensors lies elsewhere.
	var models []*nebulaio.Model
	for _, id := range []string{"cuda:0", "cuda:1", "host"} {
		m, err := sys.Load(context.Background(), first, nebulaio.LoadOptions{Device: id})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		models = append(models, m)
	}
	spread := slices.Clone(tensors)
	for i := range spread {
		m := models[i%3]
		held, _ := m.Tensor(spread[i].Name)
		spread[i].Bytes, spread[i].Ptr, spread[i].Size, spread[i].Device = nil, held.Ptr, held.Size, m.Report().Device.ID
	}
	second := filepath.Join(dir, "b.safetensors")
	r, err := sys.Save(context.Background(), second, spread,
		nebulaio.SaveOptions{Streams: map[string]uint64{"cuda:0": 0, "cuda:1": 0}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Save.Sources) != 4 || r.Device.Kind != "cuda" || r.Engine.StagingState != "pinned" {
		t.Errorf("report: %+v %+v %+v", r.Save, r.Device, r.Engine)
	}
	a, _ := os.ReadFile(first)
	b, _ := os.ReadFile(second)
	if !bytes.Equal(a, b) {
		t.Fatal("the same tensors from three places make another file")
	}
	if n := g.Count("pageable_copies"); n != 0 {
		t.Errorf("%d copies went to memory that is not pinned", n)
	}
	third := filepath.Join(dir, "c.safetensors")
	if _, err := models[1].Save(context.Background(), third, nebulaio.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, _ := os.ReadFile(third); !bytes.Equal(a, c) {
		t.Fatal("a loaded model saves to another file")
	}
	g.CheckIdle()
}

// TestVerifiedLoadsBesideSaves: whoever loads while the file and its sums are
// being replaced gets one version, verified, or hears that it was replaced; good
// bytes are never called corrupt.
func TestVerifiedLoadsBesideSaves(t *testing.T) {
	sys := open(t, nebulaio.Options{Devices: "off"})
	path := filepath.Join(t.TempDir(), "m.safetensors")
	version := func(v byte) []nebulaio.SaveTensor {
		return []nebulaio.SaveTensor{{Name: "t", DType: "U8", Shape: []int64{20_000}, Bytes: bytes.Repeat([]byte{v}, 20_000)}}
	}
	if _, err := sys.Save(context.Background(), path, version(0), nebulaio.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		for v := range byte(60) {
			if _, err := sys.Save(context.Background(), path, version(v),
				nebulaio.SaveOptions{NoChecksums: v%5 == 4}); err != nil {
				t.Error(err)
			}
		}
	}()
	for more := true; more; {
		select {
		case <-saved:
			more = false
		default:
		}
		m, err := sys.Load(context.Background(), path, nebulaio.LoadOptions{Device: "host", Verify: true})
		switch k := nebulaio.KindOf(err); {
		case err == nil:
			b, err := m.Read("t")
			if err != nil || !bytes.Equal(b, bytes.Repeat(b[:1], len(b))) {
				t.Errorf("a mixture was loaded: %v", err)
			}
			m.Free()
		case k != errs.IO && k != errs.NotFound: // replaced, or saved without sums
			t.Fatalf("a good file: %v", err)
		}
	}
}

// TestSaveRefusesTwoStreamsOfOneDevice: which of them made the tensors would be
// left to chance.
func TestSaveRefusesTwoStreamsOfOneDevice(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	sys := newSystem(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
	o := nebulaio.SaveOptions{Streams: map[string]uint64{"cuda": 1, "cuda:0": 2}}
	if _, err := sys.Save(t.Context(), filepath.Join(t.TempDir(), "f"),
		[]nebulaio.SaveTensor{{Name: "w", DType: "U8", Shape: []int64{1}, Bytes: []byte{1}}}, o); !errs.Is(err,
		errs.Invalid) {
		t.Errorf("err: %v", err)
	}
}

// TestWritesAsTheyAreDealt: what is asked for, as far as the pool goes, and as
// the report of a save then says.
func TestWritesAsTheyAreDealt(t *testing.T) {
	for _, c := range []struct {
		o     nebulaio.Options
		block int64
		depth int
	}{
		{nebulaio.Options{}, 1 << 20, 16},
		{nebulaio.Options{WriteBlockSize: 1 << 30, WriteDepth: 1024}, 4 << 20, 6},
		{nebulaio.Options{BufferPoolSize: 256 << 10}, 64 << 10, 1},
	} {
		sys := newSystem(t, c.o)
		block, depth := sys.WriteSettings()
		r, err := sys.Save(t.Context(), filepath.Join(t.TempDir(), "f"),
			[]nebulaio.SaveTensor{{Name: "w", DType: "U8", Shape: []int64{1}, Bytes: []byte{1}}}, nebulaio.SaveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if block != c.block || depth != c.depth || r.Engine.BlockSize != block || r.Engine.QueueDepth != depth {
			t.Errorf("%+v: %d writes of %d, the report says %+v", c.o, depth, block, r.Engine)
		}
	}
}

// TestSaveToFullDisk: the old file stays and nothing else.
func TestSaveToFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a file system of its own: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	sys := open(t, nebulaio.Options{Devices: "off"})
	path := filepath.Join(dir, "m.safetensors")
	small := []nebulaio.SaveTensor{{Name: "t", DType: "U8", Shape: []int64{1 << 20}, Bytes: make([]byte, 1<<20)}}
	large := []nebulaio.SaveTensor{{Name: "t", DType: "U8", Shape: []int64{8 << 20}, Bytes: make([]byte, 8<<20)}}
	if _, err := sys.Save(context.Background(), path, small, nebulaio.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := sys.Save(context.Background(), path, large, nebulaio.SaveOptions{})
	if nebulaio.KindOf(err) != errs.IO || errs.FixOf(err) == "" || r.Error == "" || r.Save.Durable {
		t.Errorf("full: %v", err)
	}
	checkLoaded(t, sys, path, "host", small, ownBytes)
	onlyThere(t, dir, "m.safetensors", "m.safetensors.crc64nvme")
	// Over and over: the space of what was replaced comes back in time.
	for range 20 {
		if _, err := sys.Save(context.Background(), path, small, nebulaio.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheDiskFillsUpInMidSave saves to a file system that cannot reserve space, so
// that it is full only after a part has been written.
func TestTheDiskFillsUpInMidSave(t *testing.T) {
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(image, make([]byte, 16<<20), 0o600), os.Mkdir(disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"mkfs.ext2", "-q", "-F", image}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no disk to fill: %v: %s", err, out)
		}
	}
	defer func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	sys := open(t, nebulaio.Options{Devices: "off"})
	path := filepath.Join(disk, "m.safetensors")
	save := func(n int64) error {
		_, err := sys.Save(t.Context(), path, []nebulaio.SaveTensor{{Name: "w", DType: "U8", Shape: []int64{n},
			Bytes: bytes.Repeat([]byte{7}, int(n))}}, nebulaio.SaveOptions{})
		return err
	}
	if err := save(1 << 20); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = save(64 << 20)
	if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "write at offset") ||
		!strings.Contains(errs.FixOf(err), "free space") {
		t.Errorf("full in the middle: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old file changed, or %v", err)
	}
	names, err := filepath.Glob(filepath.Join(disk, ".*"))
	if err != nil || len(names) > 0 {
		t.Errorf("left behind: %q, %v", names, err)
	}
	m, err := sys.Load(t.Context(), path, nebulaio.LoadOptions{Device: "host", Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
}
