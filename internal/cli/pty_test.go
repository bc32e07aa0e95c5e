// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/test/effort"
	"golang.org/x/sys/unix"
)

// openTerminal gives both ends of a new terminal of so many columns.
func openTerminal(t *testing.T, columns uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal runs the built program with a terminal as its stderr, and returns
// what it wrote there and its exit code.
func onTerminal(t *testing.T, columns uint16, args ...string) (string, int) {
	t.Helper()
	master, slave := openTerminal(t, columns)
	cmd := exec.Command(program, args...)
	cmd.Stderr = slave
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	text, err := io.ReadAll(master)
	if err != nil && !errors.Is(err, syscall.EIO) { // how a terminal ends
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code tells
	return string(text), cmd.ProcessState.ExitCode()
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// TestLiveLinesFitTheTerminal runs every command with a live line on real
// terminals. No line wraps, and the cursor returns to an empty line at the end.
func TestLiveLinesFitTheTerminal(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	dir := t.TempDir()
	deep := filepath.Join(dir, "a directory with a long name and 模型 in it, so that lines are long")
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	model, data := filepath.Join(deep, "model.safetensors"), newStoreDir(t)
	writeModel(t, model, 0)
	quick := []string{"--size", "1MiB", "--device", "host"}
	for _, width := range []uint16{80, 40} {
		for name, args := range map[string][]string{
			"generate": {"generate", "--shapes", "tiny", "--out", filepath.Join(deep, "new.safetensors")},
			"load":     {"load", model, "--device", "host", "--repeat", "2"},
			"save":     {"save", model, filepath.Join(deep, "saved.safetensors"), "--device", "host"},
			"inspect":  {"inspect", model, "--checksum"},
			"read":     append([]string{"bench", "read", deep, "--time", "300ms"}, quick...),
			"write":    append([]string{"bench", "write", deep, "--time", "200ms"}, quick...),
			"sweep":    append([]string{"bench", "sweep", "pattern", deep, "--time", "10ms"}, quick...),
			"train": append([]string{"bench", "train", deep, "--sample-size", "16KiB", "--batch", "4", "--step", "2ms",
				"--steps", "30"}, quick...),
			"ceilings": append([]string{"bench", "ceilings", deep, "--rounds", "1", "--time", "20ms"}, quick...),
			"all":      append([]string{"bench", "all", deep, "--rounds", "1", "--time", "10ms"}, quick...),
			"check":    {"store", "check", "--data", data},
			"scrub":    {"store", "scrub", "--data", data},
			"backup":   {"store", "backup", filepath.Join(dir, fmt.Sprintf("backup%d", width)), "--data", data},
		} {
			if width != 40 && !slices.Contains([]string{"generate", "load", "read", "train"}, name) {
				continue // each takes its time, and what is left out draws by the same function
			}
			text, code := onTerminal(t, width, args...)
			if code != 0 {
				t.Errorf("%s: exit code %d: %q", name, code, text)
				continue
			}
			if !strings.Contains(text, "\r") {
				t.Errorf("%s shows nothing on a terminal of %d columns", name, width)
			}
			for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\r' || r == '\n' }) {
				if n := columns(escapes.ReplaceAllString(line, "")); n >= int(width) {
					t.Errorf("%s: a line of %d columns on a terminal of %d: %q", name, n, width, line)
				}
			}
			if text != "" && !strings.HasSuffix(text, "\r") && !strings.HasSuffix(text, "\n") {
				t.Errorf("%s: the cursor does not return: %q", name, text[max(0, len(text)-80):])
			}
			if strings.Contains(text, "\n") {
				t.Errorf("%s: more than one line: %q", name, text)
			}
			if name == "all" && (!strings.Contains(text, "step 1 of 20: ") || !strings.Contains(text, "step 20 of 20, about ") ||
				!strings.Contains(text, "sweep ")) {
				t.Errorf("the steps are not told: %q", text)
			}
		}
	}
}
