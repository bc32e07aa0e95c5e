// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/doctor"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/node"
)

// TestGPUDirectStatus: of a machine without a server, of one whose server has no door, and of one that has.
func TestGPUDirectStatus(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	run(t, []string{"gpudirect", "status", "--data", dir, "--rdma-enabled"}).want(t, 0, "no server runs on "+dir,
		"gpudirect.sock", "max_transfer_size 256", "not used  door", "fix: start one",
		"not used  rdma: rdma.enabled is true, and there is no RDMA transport")
	run(t, []string{"gpudirect"}).want(t, 2, "no command given; expected status")

	p := startServer(t, dir, nil)
	run(t, []string{"gpudirect", "status", "--data", dir}).want(t, 0, "not served by the server",
		"gpudirect.enabled is false", "NEBULAIO_GPUDIRECT_ENABLED")
	if p.GPUDirect.Enabled || p.GPUDirect.Reason == "" {
		t.Errorf("%+v", p.GPUDirect)
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}

	short, err := os.MkdirTemp("", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	socket := filepath.Join(short, "s")
	p = startServer(t, dir, []string{"NEBULAIO_GPUDIRECT_ENABLED=true", "NEBULAIO_GPUDIRECT_SOCKET=" + socket,
		"NEBULAIO_GPUDIRECT_QUEUE_DEPTH=17"})
	const clamped = "gpudirect.queue_depth is 17, but clients use at most 16"
	run(t, []string{"gpudirect", "status", "--data", dir}).want(t, 0, "not used  setting: "+clamped,
		"fix: lower gpudirect.queue_depth")
	if log := p.log.String(); !strings.Contains(log, "a setting has less effect than its value says") ||
		!strings.Contains(log, clamped) {
		t.Errorf("the log does not say that a setting has less effect: %s", log)
	}
	if !p.GPUDirect.Enabled || p.GPUDirect.Socket != socket {
		t.Errorf("%+v", p.GPUDirect)
	}
	run(t, []string{"gpudirect", "status", "--data", dir}).want(t, 0, "door      open at "+socket, "queue_depth 17",
		"clients   0 connected, 0 logins, 0 refused", "direct    ")
	r := run(t, []string{"gpudirect", "status", "--data", dir, "--json"})
	r.want(t, 0)
	st := decode[gpudirectJSON](t, r)
	if !st.Running || !st.Door.Served || st.Door.Stats == nil || st.Door.Settings.QueueDepth != 17 ||
		st.Verdict.Direct == "" {
		t.Errorf("%+v", st)
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left")
	}
}

// TestWhatGPUDirectStatusPrints: counters, devices and refusals in words.
func TestWhatGPUDirectStatusPrints(t *testing.T) {
	var b strings.Builder
	printGPUDirect(&b, &gpudirectJSON{Running: true, Data: "/d",
		Door: node.Door{Served: true, Socket: "/d/gpudirect.sock", Store: "id",
			Settings: node.DoorSettings{DeviceIDs: []int{0, 2}},
			Stats: &door.Stats{Connections: 2, Logins: 3, LoginsRefused: 1, Handles: 1, HeldBytes: 1 << 30,
				Refused: map[string]int64{"NoSuchKey": 4, "Damaged": 0},
				Moved: []door.Moved{{Direction: "read", Device: "cuda:0", Route: "direct", Stage: "read", Bytes: 1 << 20,
					Seconds: 2}}}},
		Devices: []gpudirectDevice{{0, "cuda:0", "NVIDIA H200", "GPU-1", 0, true},
			{1, "cuda:1", "NVIDIA H200", "GPU-2", -1, false}},
		Verdict: doctor.Verdict{Direct: "no", Summary: "blocked by\x1b[2J something",
			Routes: []doctor.RouteInfo{{Name: "p2pdma", State: "blocked"}}},
		Refusals: []gpudirectRefusal{{"cufile", "/d", "why", "what to do"}},
	})
	for _, want := range []string{"door      open at /d/gpudirect.sock", "device_ids 0,2",
		"clients   2 connected, 3 logins, 1 refused", "refused   NoSuchKey: 4", "read       cuda:0  direct",
		"0  cuda:0  NVIDIA H200  GPU-1     0  yes", "1  cuda:1  NVIDIA H200  GPU-2     ?  no", "p2pdma: blocked",
		"not used  cufile (/d): why\n  fix: what to do"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") || strings.Contains(b.String(), "Damaged") {
		t.Errorf("%q", b.String())
	}
}

// TestGPUDirectStatusNamesTheGPUs, which of them may be used, and what is asked for and is not there.
func TestGPUDirectStatusNamesTheGPUs(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	dir := t.TempDir()
	r := run(t, []string{"gpudirect", "status", "--data", dir, "--gpudirect-device-ids", "1,5", "--json"}, func(w *World) {
		w.CUDALibrary, w.NVMLLibrary = g.CUDA, g.NVML
	})
	r.want(t, 0)
	st := decode[gpudirectJSON](t, r)
	if len(st.Devices) != 2 || st.Devices[0].Allowed || !st.Devices[1].Allowed || st.Devices[1].UUID == "" ||
		st.Devices[0].Name == "" {
		t.Errorf("%+v", st.Devices)
	}
	found := map[string]string{}
	for _, x := range st.Refusals {
		found[x.What] += x.Reason + "|" + x.Fix
	}
	if !strings.Contains(found["gpu"], "no such GPU, 2 GPUs found|correct gpudirect.device_ids") || found["door"] == "" ||
		found["cufile"] == "" {
		t.Errorf("%q", found)
	}
}
