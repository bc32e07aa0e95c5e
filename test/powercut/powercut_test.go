// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// childEnv makes TestChild write files to the directory that the variable names.
const childEnv = "NEBULAIO_TEST_POWERCUT"

// TestChild is the program that TestRecord traces. It replaces a file with and without the needed syncs.
func TestChild(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("runs in a process of its own")
	}
	sync := func(name string) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("safe.tmp", "new content")
	sync(filepath.Join(dir, "safe.tmp"))
	if err := os.Rename(filepath.Join(dir, "safe.tmp"), filepath.Join(dir, "safe")); err != nil {
		t.Fatal(err)
	}
	sync(dir)
	os.Stdout.WriteString("safe\n")
	put("risky", "content that is not synced")
	sync(dir)
	os.Stdout.WriteString("risky\n")
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	put("sub/a", "x")
	sync(filepath.Join(dir, "sub", "a"))
	sync(filepath.Join(dir, "sub"))
	os.Stdout.WriteString("sub\n")
}

// TestRecord: a synced and renamed file survives each cut after its mark. A file that was not synced may be empty, and
// a directory with a name that was not synced may be gone.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	trace, err := Record(cmd, dir)
	if errors.Is(err, ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var empty, gone, before bool
	for n := range len(trace.Ops) + 1 {
		for _, l := range Losses() {
			at := t.TempDir()
			if err := trace.Rebuild(at, n, l, r); err != nil {
				t.Fatal(err)
			}
			marks := trace.Marks(n)
			b, err := os.ReadFile(filepath.Join(at, "safe"))
			if slices.Contains(marks, "safe") {
				if err != nil || string(b) != "new content" {
					t.Fatalf("after change %d the safe file is %q, %v", n, b, err)
				}
			} else if err == nil && string(b) != "new content" {
				t.Fatalf("before change %d the safe file is %q", n, b)
			} else if err != nil {
				before = true
			}
			if slices.Contains(marks, "risky") {
				b, err := os.ReadFile(filepath.Join(at, "risky"))
				if err != nil {
					t.Fatal(err)
				}
				empty = empty || len(b) == 0
			}
			if slices.Contains(marks, "sub") {
				_, err := os.Stat(filepath.Join(at, "sub"))
				gone = gone || err != nil
			}
		}
	}
	if !empty || !gone || !before {
		t.Errorf("empty %v, gone %v, before %v: some losses were not tried", empty, gone, before)
	}
}
