// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

const nobodyEnv = "NEBULAIO_TEST_AS_NOBODY"

// TestAsNobody runs diagnosis and capture as a user without any right.
func TestAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become nobody; the other tests run without root then")
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for p := dir; strings.HasPrefix(p, os.TempDir()+"/"); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	work, bin := filepath.Join(dir, "work"), filepath.Join(dir, "test")
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(work, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.run", "^TestNobodysPart$", "-test.v")
	cmd.Dir, cmd.Env = work, append(os.Environ(), nobodyEnv+"="+work)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestNobodysPart") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNobodysPart is what TestAsNobody runs as nobody.
func TestNobodysPart(t *testing.T) {
	work := os.Getenv(nobodyEnv)
	if work == "" {
		t.Skip("run by TestAsNobody")
	}
	file := filepath.Join(work, "model")
	if err := os.WriteFile(file, make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := facts.Look(file, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if m.UID == 0 || m.NVMe != nil {
		t.Fatalf("uid %d, drives %v", m.UID, m.NVMe)
	}
	live, err := Diagnose(facts.Live(), m, Options{GPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range live.Findings {
		if f.Level == Unknown && f.FixNow == "" {
			t.Errorf("%s is UNKNOWN and does not say what to run", f.ID)
		}
	}
	for _, name := range []string{"out.tar", "out"} {
		out := filepath.Join(work, name)
		if _, err := Capture(out, facts.Live(), m); err != nil {
			t.Fatal(err)
		}
		tree, meta, err := facts.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Diagnose(tree, meta, Options{GPU: -1})
		if err != nil {
			t.Fatal(err)
		}
		if again.Verdict.Direct != live.Verdict.Direct || again.Machine.Root || len(again.Findings) != len(live.Findings) {
			t.Errorf("%s: the capture says %q with %d findings, the machine %q with %d", name, again.Verdict.Direct,
				len(again.Findings), live.Verdict.Direct, len(live.Findings))
		}
	}
}
