// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/effort"
)

// content is what version v of the file holds: its number, then noise.
func content(v uint64) []byte {
	b := make([]byte, 100_000+v%7*33_333)
	binary.LittleEndian.PutUint64(b, v)
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], v)
	rand.NewChaCha8(seed).Read(b[8:])
	return b
}

// summed says whether version v is saved with sums.
func summed(v uint64) bool { return v%3 != 0 }

func saveVersion(e *Engine, path string, v uint64) error {
	b := content(v)
	tr, err := e.StartWrite(context.Background(), WriteRequest{Path: path, Checksums: summed(v),
		Sources: []Source{{Len: int64(len(b)), Data: b}}})
	if err != nil {
		return err
	}
	return tr.Err()
}

// crashEnv makes TestCrashChild save for ever: PATH, first version, and the step
// at which it kills itself, or -1.
const crashEnv = "NEBULAIO_TEST_CRASH"

// TestCrashChild is the process that TestKilledSavesLeaveOneVersion kills. It
// tells of each step on stdout.
func TestCrashChild(t *testing.T) {
	path := os.Getenv(crashEnv)
	if path == "" {
		t.Skip("runs in a process of its own")
	}
	first := uint64(effort.Number(t, crashEnv+"_VERSION", 0))
	at := effort.Number(t, crashEnv+"_STEP", -1)
	e := newEngine(t, smallSave)
	var n atomic.Int64
	e.main.saves.onStep = func(string) error {
		if n.Add(1)-1 == int64(at) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		_, _ = os.Stdout.Write([]byte{'.'})
		return nil
	}
	for v := first; ; v++ {
		if err := saveVersion(e, path, v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledSavesLeaveOneVersion kills a process that saves over and over, at
// each step in turn and at any moment after it. What is there is then wholly one
// version with its own sums, or without where it was saved without, and the next
// save leaves nothing else in the directory.
func TestKilledSavesLeaveOneVersion(t *testing.T) {
	effort.Slow(t)
	const steps = 30
	rounds := effort.Rounds{Test: 2 * steps, CI: 200}.Of(t)
	e := newEngine(t, smallSave)
	dir := diskDir(t)
	path := filepath.Join(dir, "f")
	if err := saveVersion(e, path, 1); err != nil {
		t.Fatal(err)
	}
	at := uint64(1) // the version that is in place at least
	left := 0
	for round := range rounds {
		step := round / 2 % steps
		own := round%2 == 0 // it kills itself, else we kill it
		first := uint64(1000 * (round + 1))
		killOne(t, path, first, step, own)
		left += len(namesIn(t, dir))
		v := wholeVersion(t, path)
		if v != at && (v < first || v >= first+1000) {
			t.Fatalf("round %d: version %d is in place, expected %d or one from %d on", round, v, at, first)
		}
		at = first + 500
		if err := saveVersion(e, path, at); err != nil {
			t.Fatalf("round %d: the next save: %v", round, err)
		}
		if v := wholeVersion(t, path); v != at {
			t.Fatalf("round %d: version %d is in place, expected %d", round, v, at)
		}
		want := []string{"f"}
		if summed(at) {
			want = append(want, "f.crc64nvme")
		}
		if got := namesIn(t, dir); !slices.Equal(got, want) {
			t.Fatalf("round %d, step %d: the directory holds %q after the next save, expected %q", round, step, got, want)
		}
	}
	if left <= 2*rounds {
		t.Errorf("%d names were left by %d killed saves: none was in the middle of anything", left, rounds)
	}
}

// killOne runs a saver and ends it.
func killOne(t *testing.T, path string, first uint64, step int, own bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
	at := -1
	if own {
		at = step
	}
	cmd.Env = append(os.Environ(), crashEnv+"="+path, fmt.Sprintf("%s_VERSION=%d", crashEnv, first),
		fmt.Sprintf("%s_STEP=%d", crashEnv, at))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var told []byte
	one := make([]byte, 1)
	for {
		if !own && len(told) > step {
			_ = cmd.Process.Kill()
		}
		if n, err := out.Read(one); n == 0 || err != nil {
			break
		}
		told = append(told, one[0])
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the saver ended by itself: %v\n%s", err, bytes.Trim(told, "."))
	}
}

// wholeVersion fails the test unless the file is one version with its sums.
func wholeVersion(t *testing.T, path string) uint64 {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || len(got) < 8 {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	v := binary.LittleEndian.Uint64(got)
	if !bytes.Equal(got, content(v)) {
		t.Fatalf("the file begins as version %d and is not it", v)
	}
	sums, err := checksum.Read(path, int64(len(got)))
	switch {
	case !summed(v) && !errs.Is(err, errs.NotFound):
		t.Fatalf("version %d was saved without sums, and has %v, %v", v, sums, err)
	case summed(v) && err != nil:
		t.Fatalf("version %d: %v", v, err)
	case summed(v):
		checkSums(t, path)
	}
	return v
}
