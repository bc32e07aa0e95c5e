// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// smallSave makes many writes of little data.
var smallSave = Options{PoolSize: 4 * units.MiB, MaxTransfer: 64 * units.KiB, WriteBlock: 64 * units.KiB, WriteDepth: 4,
	Poison: true}

// scattered cuts random content into sources at odd places of the devices, with
// a header of literal bytes before.
func scattered(t *testing.T, seed uint64, size int64, devices ...device.Device) (want []byte, all []Source) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	want = make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(want)
	head := min(size, 1+rng.Int64N(9000))
	all = append(all, Source{Len: head, Data: want[:head]})
	room := make([]device.Ptr, len(devices))
	for i, d := range devices {
		room[i] = alloc(t, d, 2*size+64).Ptr()
	}
	for off := head; off < size; {
		n := 1 + rng.Int64N(3000)
		if rng.IntN(4) == 0 {
			n = 1 + rng.Int64N(300_000)
		}
		n = min(n, size-off)
		i := rng.IntN(len(devices))
		room[i] += device.Ptr(rng.Int64N(min(64, n+1)))
		put(room[i], want[off:off+n])
		all = append(all, Source{Off: off, Len: n, Device: devices[i], Ptr: room[i]})
		room[i] += device.Ptr(n)
		off += n
	}
	return want, all
}

// put writes to the memory of a device, which in these tests the CPU can address.
func put(p device.Ptr, b []byte) { copy(host.New().Map(p, int64(len(b))), b) }

func startWrite(t *testing.T, e *Engine, ctx context.Context, r WriteRequest) *Save {
	t.Helper()
	tr, err := e.StartWrite(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// checkSaved fails the test unless the file and its sums are right.
func checkSaved(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes differ from %d expected", path, len(got), len(want))
	}
	checkSums(t, path)
}

func checkSums(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	told, err := checksum.Read(path, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	found, err := checksum.Compute(context.Background(), path, told.Block, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(told.Blocks, found.Blocks) {
		t.Fatalf("%s: the sums are not those of the file", path)
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	return vfstest.Names(t, dir)
}

func onlyNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := namesIn(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory holds %q, expected %q", got, want)
	}
}

func TestSaveIsExact(t *testing.T) {
	effort.Slow(t)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	places := map[string][]device.Device{
		"host": {host.New()}, "staged": {host.Staged()}, "gpu": {g.Open("cuda:0")},
		"everywhere": {host.New(), host.Staged(), g.Open("cuda:0"), g.Open("cuda:1")},
	}
	for name, devices := range places {
		for _, o := range []Options{smallSave, {Poison: true}, {PoolSize: 256 * units.KiB, Poison: true}} {
			for _, route := range []report.Route{report.RouteAuto, report.RouteBuffered, report.RouteDirect} {
				t.Run(fmt.Sprintf("%s/%d/%s", name, o.PoolSize, route), func(t *testing.T) {
					e := newEngine(t, o)
					dir := diskDir(t)
					path := filepath.Join(dir, "f")
					for i, size := range []int64{1, 4096, 65536, 65537, 3*units.MiB + 77, 2 * units.MiB} {
						want, src := scattered(t, uint64(i), size, devices...)
						tr := startWrite(t, e, context.Background(),
							WriteRequest{Path: path, Sources: src, Route: route, Checksums: true})
						if err := tr.Err(); err != nil {
							t.Fatal(err)
						}
						checkSaved(t, path, want)
						r := tr.Report()
						taken := report.RouteTakenDirect
						if route == report.RouteBuffered {
							taken = report.RouteTakenBuffered
						}
						if routeBytes(r, taken) != size || r.Bytes != size || !r.Save.Durable || !r.Save.Reserved ||
							r.Save.Replaced != (i > 0) {
							t.Fatalf("report: %+v %+v", r, r.Save)
						}
					}
					onlyNames(t, dir, "f", "f.crc64nvme")
				})
			}
		}
	}
	g.CheckIdle()
	g.CheckPinned()
}

// TestSaveWritesFromWhereItLies: aligned host memory needs no staging.
func TestSaveWritesFromWhereItLies(t *testing.T) {
	e := newEngine(t, smallSave)
	d := host.New()
	b := alloc(t, d, units.MiB)
	rand.NewChaCha8([32]byte{7}).Read(bytesOf(b))
	path := filepath.Join(diskDir(t), "f")
	tr := startWrite(t, e, context.Background(), WriteRequest{Path: path, Checksums: true, Route: report.RouteDirect,
		Sources: []Source{{Len: b.Size(), Device: d, Ptr: b.Ptr()}}})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	checkSaved(t, path, bytesOf(b))
	if r := tr.Report(); r.Engine.StagingUsed {
		t.Errorf("engine: %+v", r.Engine)
	}
}

func TestSaveRefusesWhatDoesNotTile(t *testing.T) {
	e := newEngine(t, smallSave)
	d := host.New()
	path := filepath.Join(t.TempDir(), "f")
	for name, src := range map[string][]Source{
		"nothing":    nil,
		"hole":       {{Len: 3, Data: []byte("abc")}, {Off: 4, Len: 1, Data: []byte("d")}},
		"overlap":    {{Len: 3, Data: []byte("abc")}, {Off: 2, Len: 1, Data: []byte("d")}},
		"start":      {{Off: 1, Len: 3, Data: []byte("abc")}},
		"negative":   {{Len: -1}},
		"short data": {{Len: 4, Data: []byte("abc")}},
		"address 0":  {{Len: 4, Device: d}},
	} {
		if _, err := e.StartWrite(context.Background(), WriteRequest{Path: path, Sources: src}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.StartWrite(context.Background(), WriteRequest{Path: path, Route: "fast",
		Sources: []Source{{Len: 1, Data: []byte("a")}}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("route: %v", err)
	}
	onlyNames(t, filepath.Dir(path))
}

// TestSaveThatFailsLeavesTheOldFile makes every step fail, one after the other.
func TestSaveThatFailsLeavesTheOldFile(t *testing.T) {
	broken := errors.New("broken for the test")
	for _, sums := range []bool{true, false} {
		var steps []string
		// A whole save over another one tells the steps there are.
		run := func(t *testing.T, failAt int) (dir string, old, want []byte, err error) {
			e := newEngine(t, smallSave)
			dir = diskDir(t)
			old, src := scattered(t, 1, 300_000, host.Staged())
			path := filepath.Join(dir, "f")
			if err := startWrite(t, e, context.Background(),
				WriteRequest{Path: path, Sources: src, Checksums: true}).Err(); err != nil {
				t.Fatal(err)
			}
			want, src = scattered(t, 2, 400_000, host.Staged())
			var n atomic.Int64
			steps = nil
			var mu sync.Mutex
			e.main.saves.onStep = func(step string) error {
				mu.Lock()
				defer mu.Unlock()
				steps = append(steps, step)
				if n.Add(1)-1 == int64(failAt) {
					return broken
				}
				return nil
			}
			tr := startWrite(t, e, context.Background(), WriteRequest{Path: path, Sources: src, Checksums: sums})
			err = tr.Err()
			if r := tr.Report(); (err != nil) != (r.Error != "") || strings.Contains(fmt.Sprint(r), ".nebulaio.tmp") {
				t.Errorf("report: %+v", r)
			}
			return dir, old, want, err
		}
		if _, _, _, err := run(t, -1); err != nil {
			t.Fatal(err)
		}
		all := slices.Clone(steps)
		rename := slices.Index(all, "rename")
		for at := range all {
			t.Run(fmt.Sprintf("%v/%d-%s", sums, at, all[at]), func(t *testing.T) {
				dir, old, want, err := run(t, at)
				path := filepath.Join(dir, "f")
				switch {
				case at <= rename:
					if !errors.Is(err, broken) {
						t.Fatalf("err: %v", err)
					}
					checkSaved(t, path, old)
					onlyNames(t, dir, "f", "f.crc64nvme")
				case at == rename+1: // in place, not known to be durable
					if !errors.Is(err, broken) || !strings.Contains(err.Error(), "in place") {
						t.Fatalf("err: %v", err)
					}
					fallthrough
				default:
					if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
						t.Fatal("the new file is not in place")
					}
					if sums {
						checkSums(t, path)
					} else if _, err := checksum.Read(path, int64(len(want))); !errs.Is(err, errs.NotFound) {
						t.Fatalf("sums: %v", err)
					}
				}
			})
		}
	}
}

// TestSaveStepsInOrder is the order that the promise of durability rests on.
func TestSaveStepsInOrder(t *testing.T) {
	for sums, want := range map[bool]string{
		true: "reserve write sync sweep_checksums write_checksums sync_directory rename sync_directory rename_checksums " +
			"sync_directory",
		false: "reserve write sync sweep_checksums retire_checksums sync_directory rename sync_directory rename_checksums " +
			"sync_directory",
	} {
		e := newEngine(t, smallSave)
		path := filepath.Join(diskDir(t), "f")
		req := WriteRequest{Path: path, Sources: []Source{{Len: 3, Data: []byte("abc")}}, Checksums: true}
		if err := startWrite(t, e, context.Background(), req).Err(); err != nil {
			t.Fatal(err)
		}
		var steps []string
		e.main.saves.onStep = func(step string) error { steps = append(steps, step); return nil }
		req.Checksums = sums
		if err := startWrite(t, e, context.Background(), req).Err(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(steps, " "); got != want {
			t.Errorf("checksums %v:\n%s, expected\n%s", sums, got, want)
		}
	}
}

// checkNotSaved fails the test unless the file at path still holds "old", alone in its directory, and no copy is
// under way.
func checkNotSaved(t *testing.T, g *fakegpu.GPU, path string) {
	t.Helper()
	if n := g.Count("copies_in_flight"); n != 0 {
		t.Errorf("%d copies are still queued", n)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Error("the old file is not as it was")
	}
	onlyNames(t, filepath.Dir(path), filepath.Base(path))
}

func TestSaveWhenTheDeviceFails(t *testing.T) {
	for name, arrange := range map[string]func(g *fakegpu.GPU){
		"queue copy":   fakegpu.FailingCall("cuMemcpyDtoHAsync_v2", 5, fakegpu.InvalidValue),
		"copy":         fakegpu.FailingCopy(6, fakegpu.LaunchFailed, false),
		"copy, sticky": fakegpu.FailingCopy(6, fakegpu.LaunchFailed, true),
		"record":       fakegpu.FailingCall("cuEventRecord", 3, fakegpu.InvalidValue),
		"query":        fakegpu.FailingCall("cuEventQuery", 3, fakegpu.LaunchFailed),
		"make mark":    fakegpu.FailingCall("cuEventCreate", 1, fakegpu.OutOfMemory),
	} {
		t.Run(name, func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			dir := diskDir(t)
			path := filepath.Join(dir, "f")
			_, src := scattered(t, 3, 2*units.MiB, d)
			e := engineOfBroken(t, smallSave)
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			arrange(g)
			tr := startWrite(t, e, context.Background(), WriteRequest{Path: path, Sources: src, Checksums: true})
			if err := tr.Err(); !errs.Is(err, errs.Device) && !errs.Is(err, errs.NoMemory) {
				t.Fatalf("err: %v", err)
			}
			checkNotSaved(t, g, path)
		})
	}
}

// TestSaveWaitsForTheCallersStream: what the caller has queued comes first.
func TestSaveWaitsForTheCallersStream(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, smallSave)
	b := alloc(t, d, 200_000)
	put(b.Ptr(), make([]byte, b.Size()))
	caller := g.Thread(0)
	defer caller.Leave()
	stream := caller.NewStream()
	fresh := alloc(t, host.New(), b.Size())
	for i := range bytesOf(fresh) {
		bytesOf(fresh)[i] = 7
	}
	g.HoldStream(stream, true)
	caller.Copy(stream, b.Ptr(), bytesOf(fresh))
	path := filepath.Join(diskDir(t), "f")
	tr := startWrite(t, e, context.Background(), WriteRequest{Path: path,
		Sources:   []Source{{Len: b.Size(), Device: d, Ptr: b.Ptr()}},
		Checksums: true, Streams: map[device.Device]uint64{d: stream}})
	releaseStream(t, g, stream, tr)
	checkSaved(t, path, bytesOf(fresh))
	caller.DestroyStream(stream)
}

func TestSaveCancelled(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, smallSave)
	dir := diskDir(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, src := scattered(t, 4, 2*units.MiB, d)
	g.Hold(3)
	ctx, cancel := context.WithCancelCause(context.Background())
	tr := startWrite(t, e, ctx, WriteRequest{Path: path, Sources: src, Checksums: true})
	cancelHeld(t, g, tr, func() { cancel(errors.New("enough")) })
	if err := tr.Err(); !errs.Is(err, errs.Cancelled) || !strings.Contains(err.Error(), "enough") {
		t.Fatalf("err: %v", err)
	}
	checkNotSaved(t, g, path)
	if r := tr.Report(); r.Error == "" || r.Save.Durable {
		t.Errorf("report: %+v", r)
	}
}

// TestSaversOfOneName: the last one wins, whole and with its own sums.
func TestSaversOfOneName(t *testing.T) {
	e := newEngine(t, smallSave)
	dir := diskDir(t)
	path := filepath.Join(dir, "f")
	var all [][]byte
	var wg sync.WaitGroup
	for i := range 8 {
		want, src := scattered(t, uint64(i+10), 50_000+int64(i), host.New())
		all = append(all, want)
		wg.Go(func() {
			for range 5 {
				tr, err := e.StartWrite(context.Background(), WriteRequest{Path: path, Sources: src, Checksums: i%4 != 3})
				if err == nil {
					err = tr.Err()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(b []byte) bool { return bytes.Equal(b, got) })
	if i < 0 {
		t.Fatal("the file is nobody's")
	}
	want := []string{"f"}
	if i%4 != 3 {
		checkSums(t, path)
		want = append(want, "f.crc64nvme")
	}
	onlyNames(t, dir, want...)
}

// TestSaveBesideLoads: both are exact and neither starves.
func TestSaveBesideLoads(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, smallSave)
	source, content := writeFile(t, 3*units.MiB+5, 31)
	f := openFile(t, source)
	want, src := scattered(t, 6, 3*units.MiB, d, host.New())
	path := filepath.Join(diskDir(t), "f")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			got, _ := loadGPU(t, g, e, d, f, report.RouteAuto)
			if !bytes.Equal(got, content) {
				t.Error("loaded bytes differ")
			}
		})
		tr := startWrite(t, e, context.Background(), WriteRequest{Path: path, Sources: src, Checksums: true})
		if err := tr.Err(); err != nil {
			t.Error(err)
		}
		checkSaved(t, path, want)
	}
	wg.Wait()
	g.CheckIdle()
}

// TestSaveInMemorySaysSo: tmpfs has no direct writes, and nothing there lasts.
func TestSaveInMemorySaysSo(t *testing.T) {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is no tmpfs")
	}
	dir, err := os.MkdirTemp("/dev/shm", "nebulaio-test")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	e := newEngine(t, smallSave)
	path := filepath.Join(dir, "f")
	want, src := scattered(t, 8, 200_000, host.New())
	tr := startWrite(t, e, context.Background(), WriteRequest{Path: path, Sources: src, Checksums: true})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	checkSaved(t, path, want)
	r := tr.Report()
	if r.Save.Durable || routeBytes(r, report.RouteTakenBuffered) != 200_000 || len(r.Refusals) == 0 ||
		r.Refusals[0].What != "direct" || r.Refusals[0].Fix == "" {
		t.Errorf("report: %+v %+v", r, r.Save)
	}
	tr = startWrite(t, e, context.Background(), WriteRequest{Path: path, Sources: src, Route: report.RouteDirect})
	if err := tr.Err(); !errs.Is(err, errs.Unsupported) || errs.FixOf(err) == "" {
		t.Errorf("direct: %v", err)
	}
	checkSaved(t, path, want)
	runtime.KeepAlive(src)
}

// TestWritersGetTheirShare: whatever the pool, a save can run and the pool is
// not exceeded.
func TestWritersGetTheirShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		o := Options{PoolSize: minPoolSize + rng.Int64N(256*units.MiB), MaxTransfer: minTransfer + rng.Int64N(16*units.MiB),
			WriteBlock: minTransfer + rng.Int64N(16*units.MiB), WriteDepth: rng.IntN(64), Workers: rng.IntN(32),
			QueueDepth: rng.IntN(64)}
		d, err := o.tune()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case d.layout().Size() > o.PoolSize:
			t.Fatalf("%+v: %d bytes of staging", o, d.layout().Size())
		case d.WriteDepth < 1 || d.writeSlots < d.WriteDepth || d.largeSlots < 1:
			t.Fatalf("%+v: %d writers for %d slots beside %d", o, d.WriteDepth, d.writeSlots, d.largeSlots)
		case d.WriteBlock < minTransfer || d.WriteBlock%minTransfer != 0:
			t.Fatalf("%+v: writes of %d bytes", o, d.WriteBlock)
		}
	}
	for _, o := range []Options{{WriteBlock: 1}, {WriteBlock: 2 * units.GiB}, {WriteDepth: -1}, {WriteDepth: 1025}} {
		if _, err := New(o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestASaveCanSumWithoutAChecksumFile: Sums and Checksums are two wishes.
func TestASaveCanSumWithoutAChecksumFile(t *testing.T) {
	e := newEngine(t, smallSave)
	path := filepath.Join(t.TempDir(), "a")
	for _, size := range []int{0, 1, 3<<20 + 1} {
		data := noise(int64(size), 5)
		for _, r := range []WriteRequest{{}, {Sums: true}, {Checksums: true}, {Checksums: true, Sums: true}} {
			r.Path, r.Empty, r.Sources = path, true, []Source{{Len: int64(size), Data: data}}
			s, err := e.StartWrite(context.Background(), r)
			if err == nil {
				err = s.Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes: %v", len(got), err)
			}
			if sums := s.Sums(); (sums != nil) != (r.Sums || r.Checksums) || sums != nil && sums.Whole() != checksum.Of(data) {
				t.Errorf("%d bytes, %+v: %+v", size, r.Sums, sums)
			}
			if _, err := os.Stat(checksum.Path(path)); (err == nil) != r.Checksums {
				t.Errorf("%d bytes, checksums %v: %v", size, r.Checksums, err)
			}
		}
	}
}
