// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/doctor"
)

// gpuCapture is a capture of a machine with a GPU and a virtio disk, on which
// no direct path exists.
func gpuCapture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"meta.json": `{"version":1,"meta":{"kernel":"6.8.0","arch":"x86_64","cpus":8,"p2p_symbol":"no","io_uring":"ok","memlock":-1,"nofile":-1,
			"target":{"path":"/data","dir":true,"major":254,"minor":0,"direct_read":"not tried: a directory"}},
			"links":{"/sys/dev/block/254:0":"/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda","/sys/class/block/vda":"/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda"}}`,
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " +
			"580.95.05\n",
		"proc/driver/nvidia/gpus/0000:8d:00.0/information": "Model: NVIDIA H200\n",
		"proc/self/mountinfo":                              "22 1 254:0 / / rw,noatime - xfs /dev/vda rw\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDoctorOnThisMachine(t *testing.T) {
	path := tinyModel(t)
	r := run(t, []string{"doctor", path})
	if r.code > 1 || r.stderr != "" || !strings.HasPrefix(r.out, "verdict ") || !strings.Contains(r.out, " PASS, ") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.stderr)
	}
	if all := run(t, []string{"doctor", path, "--all"}); !strings.Contains(all.out, "\nPASS ") {
		t.Errorf("no rule that holds is shown:\n%s", all.out)
	}
}

func TestDoctorFailsWithOneAndSaysSoInJSON(t *testing.T) {
	dir := gpuCapture(t)
	r := run(t, []string{"doctor", "--root", dir, "--json"})
	var v struct {
		Version  int
		Machine  struct{ Kernel string }
		Path     struct{ Path string }
		GPU      struct{ Model string }
		Verdict  doctor.Verdict
		Findings []doctor.Finding
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	if r.code != 1 || r.stderr != "" || v.Version != 1 || v.Machine.Kernel != "6.8.0" || v.Path.Path != "/data" ||
		v.GPU.Model != "NVIDIA H200" ||
		v.Verdict.Direct != "no" || v.Verdict.Cause == nil || v.Verdict.Cause.ID != "blk.peer" ||
		v.Findings[0].Level != doctor.Fail {
		t.Errorf("exit code %d, stderr %q, %+v", r.code, r.stderr, v)
	}
	if text := run(t, []string{"doctor", "--root", dir}); text.code != 1 ||
		!strings.Contains(text.out, "first     blk.peer vda: a virtio disk is not a PCI peer") {
		t.Errorf("exit code %d\n%s", text.code, text.out)
	}
	if gone := run(t, []string{"doctor", "--root", dir, "--gpu", "5"}); gone.code != 1 ||
		!strings.Contains(gone.out, "gpu.present GPU 5: not there; 1 found") {
		t.Errorf("exit code %d\n%s", gone.code, gone.out)
	}
}

func TestDoctorFixScript(t *testing.T) {
	r := run(t, []string{"doctor", "--root", gpuCapture(t), "--fix-script"})
	if !strings.HasPrefix(r.out, "#!/bin/sh\n") || !strings.Contains(r.out, "exit 1\nset -eu\n") ||
		!strings.Contains(r.out, "# FAIL blk.peer:") {
		t.Errorf("exit code %d\n%s", r.code, r.out)
	}
}

func TestDoctorBaseline(t *testing.T) {
	dir, file := gpuCapture(t), filepath.Join(t.TempDir(), "before.json")
	if err := os.WriteFile(file, []byte(run(t, []string{"doctor", "--root", dir, "--json"}).out), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run(t, []string{"doctor", "--root", dir, "--baseline", file}); !strings.Contains(r.out,
		"baseline  0 better, 0 worse, 0 new, 0 gone") {
		t.Errorf("a machine differs from itself:\n%s", r.out)
	}
	if err := os.WriteFile(filepath.Join(dir, "proc/self/mountinfo"), []byte("22 1 254:0 / / rw - xfs /dev/vda rw\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if r := run(t, []string{"doctor", "--root", dir, "--baseline", file}); !strings.Contains(r.out,
		"worse   fs.atime /: PASS -> WARN") {
		t.Errorf("strict access times are not seen:\n%s", r.out)
	}
	r := run(t, []string{"doctor", "--root", dir, "--baseline", file, "--json"})
	var v struct{ Baseline doctor.Diff }
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || len(v.Baseline.Worse) != 1 {
		t.Errorf("%v: %+v", err, v)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"doctor", "--root", dir, "--baseline", file}).want(t, 5, "is not a result of doctor --json")
}

func TestDoctorCapture(t *testing.T) {
	path, out := tinyModel(t), filepath.Join(t.TempDir(), "this.tar")
	run(t, []string{"doctor", "capture", out, path}).want(t, 0, "captured")
	r := run(t, []string{"doctor", "--root", out})
	if r.code > 1 || !strings.Contains(r.out, "\npath      "+path) {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.stderr)
	}
}

func TestDoctorUsage(t *testing.T) {
	run(t, []string{"doctor", "/nowhere/at/all"}).want(t, 3, "look at /nowhere/at/all")
	run(t, []string{"doctor", "--root", "/nowhere"}).want(t, 3, "read capture /nowhere")
	run(t, []string{"doctor", "a", "b"}).want(t, 2, `2 paths given, the second is "b"`)
	run(t, []string{"doctor", "--profile", "game"}).want(t, 2, "expected train, infer or checkpoint")
	run(t, []string{"doctor", "--gpu", "-1"}).want(t, 2, "expected a whole number of 0 or more")
	run(t, []string{"doctor", "/tmp", "--root", "/tmp"}).want(t, 2, "a capture contains its own path")
	run(t, []string{"doctor", "--json", "--fix-script"}).want(t, 2, "expected one of them")
	run(t, []string{"doctor", "capture"}).want(t, 2, "no path given")
}
