// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/nvtx"
	"github.com/nebulaio/nebulaio/internal/nvtx/fakeprofiler"
)

// underProfiler runs the program with a profiler's library, in a process of its own: the library stays loaded.
func underProfiler(t *testing.T, library string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), nvtx.Variable+"="+library)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// A profiler that runs the program sees the stages of a load and a save, each of which ends.
func TestAProfilerSeesTheProgram(t *testing.T) {
	p := fakeprofiler.Build(t)
	dir := t.TempDir()
	model := filepath.Join(dir, "tiny.safetensors")
	run(t, []string{"generate", "--shapes", "tiny", "--out", model}).want(t, 0)
	underProfiler(t, p.Library, "load", model, "--device", "host")
	underProfiler(t, p.Library, "save", model, filepath.Join(dir, "copy.safetensors"), "--device", "host")
	r := p.Recording(t)
	if len(r.Wrong) > 0 || r.Open > 0 || !slices.Contains(r.Domains, "nebulaio") {
		t.Errorf("%+v", r)
	}
	for _, stage := range []string{"load", "plan", "read_cache", "save", "checksum", "write"} {
		if r.Ranges[stage] == 0 {
			t.Errorf("no range %s: %v", stage, r.Ranges)
		}
	}
}

// A wrong library does not stop a load. The report says that no profiler sees it, and what to do.
func TestAWrongProfilerIsReported(t *testing.T) {
	model := filepath.Join(t.TempDir(), "tiny.safetensors")
	run(t, []string{"generate", "--shapes", "tiny", "--out", model}).want(t, 0)
	out := underProfiler(t, "/nowhere/profiler.so", "load", model, "--device", "host")
	if !strings.Contains(out, "not used: profiler") || !strings.Contains(out, "/nowhere/profiler.so") {
		t.Error(out)
	}
}
