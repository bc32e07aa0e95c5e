// SPDX-License-Identifier: Apache-2.0

// Package setup_test runs make's set-up scripts as several concurrent runs of make do.
package setup_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/test/effort"
)

// script writes a program for a test.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/usr/bin/env bash\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// together starts the same command several times at once and returns the output of each. The test fails if a command
// fails.
func together(t *testing.T, times int, env []string, args ...string) []string {
	t.Helper()
	said := make([]string, times)
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() {
			cmd := exec.Command("bash", args...)
			cmd.Env = append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("run %d: %v\n%s", i, err, out)
			}
			said[i] = string(out)
		})
	}
	wg.Wait()
	return said
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestOneVenvForAll creates a virtual environment from scratch, four times at once, with the machine's own Python. A
// second environment can import the packages of the first one.
func TestOneVenvForAll(t *testing.T) {
	effort.Slow(t)
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script(t, filepath.Join(dir, "python"), fmt.Sprintf("echo \"$*\" >>%s\nexec python3 \"$@\"\n", calls))
	requirements := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(requirements, []byte("# nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(dir, "a clone", "venv")
	// A run that was killed has left half of one.
	if err := os.MkdirAll(filepath.Join(venv, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(venv, "bin", "python"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	together(t, 4, nil, "venv.sh", filepath.Join(dir, "python"), venv, requirements)
	if got := lines(t, calls); len(got) != 1 {
		t.Errorf("it was made %d times: %q", len(got), got)
	}
	if out, err := exec.Command(filepath.Join(venv, "bin", "python"), "-c", "import pip").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	found, err := filepath.Glob(filepath.Join(venv, "lib", "python*", "site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q, %v", found, err)
	}
	script(t, filepath.Join(found[0], "only_in_base.py"), "")
	above := filepath.Join(dir, "above")
	together(t, 1, nil, "venv.sh", "python3", above, requirements, filepath.Join(venv, "bin", "python"))
	if out, err := exec.Command(filepath.Join(above, "bin", "python"), "-c",
		"import only_in_base").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAptIsWaitedFor runs the installer while an apt has the lock of the package lists, for which apt does not wait.
func TestAptIsWaitedFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("packages are installed by root alone")
	}
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	script(t, filepath.Join(dir, "bin", "apt-get"), fmt.Sprintf(`echo "$*" >>%[1]s
case " $* " in *" update "*)
	test $(grep -c update %[1]s) -ge 4 || { echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2; exit 100; } ;;
*" install "*)
	printf '#!/bin/sh\n' >%[2]s/bin/wanted-tool && chmod +x %[2]s/bin/wanted-tool ;;
esac
`, state, dir))
	env := []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "APT_PAUSE=0"}
	said := together(t, 1, env, "apt.sh", "wanted-tool", "some-package")
	if !strings.Contains(said[0], "waiting for it") {
		t.Errorf("it does not say that it waits: %s", said[0])
	}
	got := lines(t, state)
	if len(got) != 5 || !strings.HasSuffix(got[4], " some-package") {
		t.Errorf("%q", got)
	}
	for _, line := range got {
		if !strings.Contains(line, "-o DPkg::Lock::Timeout=") {
			t.Errorf("apt-get %s does not wait for dpkg's lock", line)
		}
	}
	// What is there is not installed again, and what fails for another reason is not tried again.
	together(t, 1, env, "apt.sh", "wanted-tool", "some-package")
	script(t, filepath.Join(dir, "bin", "apt-get"), fmt.Sprintf("echo \"$*\" >>%s\necho 'E: Unable to locate package "+
		"x' >&2\nexit 100\n", state))
	cmd := exec.Command("bash", "apt.sh", "another-tool", "x")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Unable to locate package x") {
		t.Errorf("%v: %s", err, out)
	}
	if got := lines(t, state); len(got) != 6 {
		t.Errorf("%q", got)
	}
}

// TestCRIUIsProvided runs the set-up of criu with a criu that works, and with one that cannot be replaced.
func TestCRIUIsProvided(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("packages are installed by root alone")
	}
	dir := t.TempDir()
	bin, folder := filepath.Join(dir, "bin"), filepath.Join(dir, "criu")
	for name, text := range map[string]string{"criu": "exit 0\n", "protoc-c": "exit 0\n",
		"apt-get": fmt.Sprintf("test \"$1\" != indextargets || echo file://%s/mirror/\n", dir)} {
		script(t, filepath.Join(bin, name), text)
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	together(t, 1, env, "criu.sh", folder)
	if _, err := os.Stat(folder); err == nil {
		t.Error("a criu was built although one works")
	}
	script(t, filepath.Join(bin, "criu"), "exit 1\n")
	cmd := exec.Command("bash", "criu.sh", folder)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "does not work on this kernel") {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "build.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// A criu that was built before and works is enough.
	script(t, filepath.Join(folder, "criu"), "exit 0\n")
	together(t, 1, env, "criu.sh", folder)
}

// TestFilesAreReplacedWhole builds a file repeatedly in two runs while it is read. The reader must always see the
// complete file.
func TestFilesAreReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	busy := filepath.Join(dir, "busy")
	const size = 4 << 20
	// mkdir fails where another builder is at work with the same name.
	build := fmt.Sprintf(`mkdir %[1]s && head -c %[2]d /dev/urandom >"$STAGED" && rmdir %[1]s`, busy, size)
	together(t, 1, nil, "place.sh", file, "sh", "-c", build)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for range 5 {
			together(t, 2, nil, "place.sh", file, "sh", "-c", build)
		}
	})
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		if info, err := os.Stat(file); err != nil || info.Size() != size {
			t.Errorf("a reader found %v, %v", info, err)
			break
		}
	}
	wg.Wait()
	// What has not changed is not replaced: programs that run it keep their pages.
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	together(t, 1, nil, "place.sh", file, "true")
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("an unchanged file was replaced: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
