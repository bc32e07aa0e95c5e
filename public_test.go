// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/fault"
	"github.com/nebulaio/nebulaio/test/effort"
)

// TestProgramOfAnotherModule builds and runs test/public, which has the public packages alone and no network. The
// program fails if an error is not what its kind says.
func TestProgramOfAnotherModule(t *testing.T) {
	effort.SingleThreaded(t)
	dir := filepath.Join("test", "public")
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mod := read(filepath.Join(dir, "go.mod"))
	if n := strings.Count(mod, "\nreplace "); n != 1 || !strings.Contains(mod, "\nreplace "+module+" => ../..\n") {
		t.Fatalf("go.mod has %d lines that replace modules, expected one for %s", n, module)
	}
	// A copy of go.mod keeps the checkout clean if our dependencies are newer than those it names.
	copied := filepath.Join(t.TempDir(), "public.mod")
	for name, text := range map[string]string{copied: mod, strings.TrimSuffix(copied, "mod") +
		"sum": read(filepath.Join(dir, "go.sum")) + read("go.sum")} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "public")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-modfile="+copied, "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, k := range fault.Kinds() {
		name := k.String()
		if k == fault.Other {
			name = "other"
		}
		if !strings.Contains("\n"+string(out), "\n"+name+"  ") {
			t.Errorf("the table has no line for the kind %q", name)
		}
	}
	t.Logf("\n%s", out)
}
