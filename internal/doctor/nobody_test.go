// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/test/nobody"
)

const nobodyEnv = "NEBULAIO_TEST_AS_NOBODY"

// TestAsNobody runs diagnosis and capture as a user without any right.
func TestAsNobody(t *testing.T) {
	cmd, dir := nobody.Command(t, "TestNobodysPart")
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(work, nobody.ID, nobody.ID); err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Env = work, append(os.Environ(), nobodyEnv+"="+work)
	nobody.Run(t, cmd, "TestNobodysPart")
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
