// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
)

var here = record.Machine{Kernel: "6.8", CPU: "a CPU", CPUs: 8, Memory: 64 << 30,
	Device:  record.Device{ID: "cuda:0", Kind: "cuda", Model: "a GPU", Driver: "580"},
	Storage: []record.Storage{{Path: "/data", FS: "xfs", Source: "/dev/nvme0n1"}}}

func limits(m record.Machine, all ...record.Limit) *record.Ceilings {
	return &record.Ceilings{Schema: record.Schema, Version: "x", Measured: time.Now().UTC(), Machine: m, Limits: all}
}

func TestCeilingsOfSeveralDisksAreKeptTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "ceilings.json")
	if c, err := bench.LoadCeilings(path); c != nil || err != nil {
		t.Fatalf("before there are any: %v, %v", c, err)
	}
	keep := func(c *record.Ceilings) *record.Ceilings {
		t.Helper()
		if err := bench.KeepCeilings(path, c); err != nil {
			t.Fatal(err)
		}
		got, err := bench.LoadCeilings(path)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	keep(limits(here, record.Limit{ID: record.StorageRead, On: "/dev/nvme0n1", GBps: 6},
		record.Limit{ID: record.MemoryCopy, On: "host", GBps: 90}))
	got := keep(limits(here, record.Limit{ID: record.StorageRead, On: "/dev/nvme1n1", GBps: 3},
		record.Limit{ID: record.MemoryCopy, On: "host", GBps: 100}))
	for on, want := range map[string]float64{"/dev/nvme0n1": 6, "/dev/nvme1n1": 3} {
		if l, ok := got.Find(record.StorageRead, on); !ok || l.GBps != want {
			t.Errorf("%s: %v", on, l)
		}
	}
	if l, _ := got.Find(record.MemoryCopy, "host"); l.GBps != 100 {
		t.Errorf("a limit measured again is %v", l.GBps)
	}
	other := here
	other.CPUs = 16
	if got = keep(limits(other, record.Limit{ID: record.MemoryCopy, On: "host", GBps: 1})); len(got.Limits) != 1 {
		t.Errorf("limits of two machines are mixed: %v", got.Limits)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

func TestKeptCeilingsAreProved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	for text, word := range map[string]string{
		"":              "unexpected end",
		`{"schema": 7}`: "version 7",
		`{"schema": 1, "limits": [{"id": "x", "gbps": -1}]}`:  "-1 GB/s",
		`{"schema": 1, "limits": [{"id": "x", "gbps": 1e9}]}`: "1e+09 GB/s",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := bench.LoadCeilings(path); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), word) ||
			errs.FixOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := bench.KeepCeilings("", limits(here)); errs.FixOf(err) == "" {
		t.Errorf("no place: %v", err)
	}
}

func TestDoubtsAboutKeptCeilings(t *testing.T) {
	kept := limits(here)
	if d := bench.Doubts(kept, here, time.Now()); len(d) != 0 || bench.Differs(here, here) != "" {
		t.Errorf("doubts about fresh limits of this machine: %v", d)
	}
	now := here
	now.Kernel, now.Device.Driver = "6.9", "590"
	if d := bench.Doubts(kept, now, time.Now().Add(100*24*time.Hour)); len(d) != 3 {
		t.Errorf("%v", d)
	}
	for _, change := range []func(*record.Machine){
		func(m *record.Machine) { m.CPUs = 4 },
		func(m *record.Machine) { m.Memory = 32 << 30 },
		func(m *record.Machine) { m.Device.Model = "another GPU" },
	} {
		other := here
		change(&other)
		if bench.Differs(here, other) == "" {
			t.Errorf("%+v is taken for the same machine", other)
		}
	}
	// Without a GPU in use its limits still stand.
	hostOnly := here
	hostOnly.Device = record.Device{ID: "host", Kind: "host", Model: "host memory"}
	if why := bench.Differs(here, hostOnly); why != "" {
		t.Error(why)
	}
}

// The limit that binds is the slowest on the way that the bytes really took.
func TestShareIsOfTheLimitThatBinds(t *testing.T) {
	set := files(t, 1, 1, 1<<20, false)
	if ok, _ := set.Files()[0].Direct(); !ok {
		t.Skip("no direct reads here")
	}
	m := bench.Describe(device.Info{ID: "host", Kind: device.Host}, set)
	key := bench.StorageKey(m.Storage[0])
	for _, c := range []struct {
		spec    bench.Spec
		storage float64
		memory  float64
		want    string
	}{
		{bench.Spec{}, 4, 100, record.StorageRead},
		{bench.Spec{Route: bench.Buffered, Cache: bench.Warm}, 4, 100, record.PageCache},
		{bench.Spec{Memory: bench.Pinned}, 4, 100, record.StorageRead},
		{bench.Spec{Memory: bench.Pinned}, 400, 100, record.MemoryCopy},
		{bench.Spec{Memory: bench.Engine, Cache: bench.Warm}, 4, 10, record.MemoryCopy},
	} {
		c.spec.BlockSize = 64 << 10
		release := func() {}
		if c.spec.Cache == bench.Warm {
			release = vfstest.Hold(t, set.Files()[0].Path(), 0, 1<<20)
		}
		r, err := bench.Run(t.Context(), bench.Job{Set: set, Device: host.Staged(), Engine: engine(t), Spec: c.spec,
			Machine: m,
			Ceilings: limits(m, record.Limit{ID: record.StorageRead, On: key, GBps: c.storage},
				record.Limit{ID: record.PageCache, On: "host", GBps: 50},
				record.Limit{ID: record.MemoryCopy, On: "host", GBps: c.memory})})
		release()
		if err != nil {
			t.Fatal(err)
		}
		if r.Share == nil || r.Share.Of != c.want || r.Share.Ratio != r.GBps/r.Share.Ceiling {
			t.Errorf("%s: %+v of %v", r.Name, r.Share, r.Routes)
		}
	}
	r, err := bench.Run(t.Context(), bench.Job{Set: set, Spec: bench.Spec{BlockSize: 64 << 10}, Machine: m,
		Ceilings: limits(m)})
	if err != nil || r.Share != nil {
		t.Errorf("a share of a limit that nobody measured: %+v, %v", r.Share, err)
	}
}
