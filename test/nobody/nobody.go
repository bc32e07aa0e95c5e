// SPDX-License-Identifier: Apache-2.0

// Package nobody runs a test again as the user nobody, who has no rights.
package nobody

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ID is the user and group id of nobody.
const ID = 65534

// Command returns a command that runs the test called name of this test binary as nobody, and the folder that holds
// the copy of the binary. Nobody can enter the folder. Command skips the calling test if its user is not root.
func Command(t *testing.T, name string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become nobody")
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for p := dir; strings.HasPrefix(p, os.TempDir()+"/"); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "test")
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(bin, "-test.run", "^"+name+"$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ID, Gid: ID}}
	return cmd, dir
}

// Run runs a command of Command and fails the calling test unless the test called name passed.
func Run(t *testing.T, cmd *exec.Cmd, name string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
		t.Errorf("%v\n%s", err, out)
	}
}
