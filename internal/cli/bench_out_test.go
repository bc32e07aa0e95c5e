// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/test/effort"
)

func TestBenchWritesToWhatIsNoFile(t *testing.T) {
	dir, pipe := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// Open for both, so that neither end waits for the other.
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	run(t, small("read", dir, "--out", pipe)).want(t, 0)
	if info, err := os.Lstat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe was replaced: %v, %v", info.Mode(), err)
	}
}

func TestIdleWorkersAreNotTheFirst(t *testing.T) {
	dir := t.TempDir()
	r := run(t, small("read", dir, "--workers", "64", "--json"))
	r.want(t, 0)
	if f := decode[record.File](t, r); f.Runs[0].First == nil || f.Runs[0].First.Bytes == 0 {
		t.Errorf("%+v", f.Runs[0].First)
	}
}

func TestCeilingsReplaceCorruptOnes(t *testing.T) {
	effort.SingleThreaded(t)
	kept := writeFile(t, "c.json", []byte("{"))
	run(t, []string{"bench", "ceilings", "--device", "host", "--rounds", "1", "--ceilings", kept}).want(t, 0, "kept ")
}

func TestReportOfAPipeDoesNotWait(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"bench", "report", pipe}).want(t, 5, "ends before its JSON does")
}

func TestNothingComparedIsNotNoDifference(t *testing.T) {
	dir := t.TempDir()
	r := run(t, small("write", dir, "--verify", "--time", "10ms", "--json"))
	r.want(t, 0)
	if f := decode[record.File](t, r); f.Runs[0].Verify != nil || len(f.Runs[0].Notes) == 0 {
		t.Errorf("%+v, %v", f.Runs[0].Verify, f.Runs[0].Notes)
	}
}

func TestWritesIntoMemoryAreNotOfStorage(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "nebulaio-test-")
	if err != nil {
		t.Skip("no /dev/shm to write to:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	run(t, small("write", dir)).want(t, 0, "Into memory, not to storage", "measured memory, not storage")
}

func TestCeilingsShowTheirSize(t *testing.T) {
	r := run(t, []string{"bench", "ceilings", "--help"})
	r.out = strings.Join(strings.Fields(r.out), " ") // the lines of the help break anywhere
	r.want(t, 0, "(default 4.00 GiB)")
}
