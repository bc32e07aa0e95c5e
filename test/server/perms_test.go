// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openEntries lists the entries of a directory that other users may access.
func openEntries(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			open = append(open, e.Name())
		}
	}
	return open
}

// TestOtherUsersReachOnlyTheDoor checks that other users who may enter the data directory can access only the door's
// socket. A store of an earlier version gets the right permissions at its next start, and the log says so.
func TestOtherUsersReachOnlyTheDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := startDoor(t, dir)
	if open := openEntries(t, dir); len(open) != 1 || open[0] != "gpudirect.sock" {
		t.Errorf("other users may use %v, expected gpudirect.sock alone", open)
	}
	if log := s.log.String(); strings.Contains(log, "other users") {
		t.Errorf("a new store was made open:\n%s", log)
	}
	s.stop(t)
	if err := os.Chmod(filepath.Join(dir, "meta"), 0o755); err != nil {
		t.Fatal(err)
	}
	s = startDoor(t, dir)
	if open := openEntries(t, dir); len(open) != 1 || open[0] != "gpudirect.sock" {
		t.Errorf("other users may use %v, expected gpudirect.sock alone", open)
	}
	if log := s.log.String(); !strings.Contains(log, "closed a part of the store that other users could reach") ||
		!strings.Contains(log, filepath.Join(dir, "meta")) {
		t.Errorf("the log does not tell:\n%s", log)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the data directory has mode %v, %v", info.Mode(), err)
	}
	s.stop(t)
}
