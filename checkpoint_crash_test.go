// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/test/effort"
	"github.com/nebulaio/nebulaio/test/powercut"
)

// Variables of the process that saves checkpoints. It saves to the root that the first one names.
const (
	crashRoot  = "NEBULAIO_TEST_CHECKPOINTS"
	crashFirst = crashRoot + "_FIRST" // first step
	crashCount = crashRoot + "_COUNT" // number of saves; 0: without an end
	crashMark  = crashRoot + "_MARK"  // number of the printed line after which it kills itself
	crashSpin  = crashRoot + "_SPIN"  // how long it counts before
	crashHow   = crashRoot + "_HOW"   // "steps", "same" directory, or "careless"
)

// stepDir returns the directory of a step.
func stepDir(root string, step int) string {
	return filepath.Join(root, fmt.Sprintf("step-%010d", step))
}

// contentOf returns the bytes of a rank's tensor at a step.
func contentOf(step, rank int) []byte {
	b := make([]byte, 10_000+step%7*1111+rank)
	rand.NewChaCha8([32]byte{byte(step), byte(step >> 8), byte(rank)}).Read(b)
	return b
}

// saveStep saves a checkpoint of two ranks, in the order that writers of checkpoints have to keep: data files with
// checksums, then the commit. The function `tell` is called after each step.
func saveStep(sys *nebulaio.System, dir string, step int, careless bool, tell func(string)) error {
	ctx, id := context.Background(), fmt.Sprintf("%016x", step+1)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tell("begun")
	m := map[string]any{"id": id, "step": step, "world": 2}
	var files, items []any
	for rank := range 2 {
		name := fmt.Sprintf("__%d_0_%s.distcp", rank, id)
		data := contentOf(step, rank)
		job, err := sys.StartWritePieces(ctx, filepath.Join(dir, name), []nebulaio.Piece{{Bytes: data[:5000]},
			{Bytes: data[5000:]}}, nebulaio.WriteOptions{})
		if err != nil {
			return err
		}
		if err := job.Wait(); err != nil {
			return err
		}
		files = append(files, map[string]any{"name": name, "size": len(data), "crc64nvme": job.Report().CRC64NVME})
		items = append(items, map[string]any{"tensor": fmt.Sprintf("w%d", rank), "file": rank, "size": len(data),
			"dtype": "U8"})
		tell("written")
	}
	m["files"], m["items"] = files, items
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	metadata := fmt.Appendf(nil, "metadata of step %d: %x", step, contentOf(step, 3)[:200])
	_, err = sys.CommitCheckpoint(ctx, dir, nebulaio.CheckpointCommitOptions{Manifest: text, Metadata: metadata})
	if err != nil || !careless {
		return err
	}
	// The same content again, renamed before it is synced.
	if err := os.WriteFile(filepath.Join(dir, ".metadata.tmp"), metadata, 0o644); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, ".metadata.tmp"), filepath.Join(dir, ".metadata"))
}

// TestCheckpointChild is the process that the crash tests trace and kill.
func TestCheckpointChild(t *testing.T) {
	root := os.Getenv(crashRoot)
	if root == "" {
		t.Skip("runs in a process of its own")
	}
	how, count, kill := os.Getenv(crashHow), effort.Number(t, crashCount, 0), effort.Number(t, crashMark, -1)
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	tell := func(line string) {
		_, _ = os.Stdout.WriteString(line + "\n")
		if told++; told == kill {
			go func() {
				var spun atomic.Int64
				for n := int64(effort.Number(t, crashSpin, 0)); spun.Add(1) < n; {
				}
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}()
		}
	}
	for step := effort.Number(t, crashFirst, 1); count == 0 || step < effort.Number(t, crashFirst, 1)+count; step++ {
		dir := stepDir(root, step)
		if how == "same" {
			dir = stepDir(root, 0)
		}
		if err := saveStep(sys, dir, step, how == "careless", tell); err != nil {
			t.Fatal(err)
		}
		tell(fmt.Sprintf("saved %d", step))
		if _, err := sys.PruneCheckpoints(t.Context(), root, nebulaio.CheckpointPruneOptions{KeepLast: 2}); err != nil {
			t.Fatal(err)
		}
		tell("pruned")
	}
	if err := sys.Close(); err != nil {
		t.Fatal(err)
	}
}

// crashSystem opens a system that is closed with the test.
func crashSystem(t *testing.T) *nebulaio.System {
	t.Helper()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return sys
}

// child returns the command that runs TestCheckpointChild.
func child(root, how string, first, count, mark, spin int) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestCheckpointChild$")
	cmd.Env = append(os.Environ(), crashRoot+"="+root, crashHow+"="+how, fmt.Sprintf("%s=%d", crashFirst, first),
		fmt.Sprintf("%s=%d", crashCount, count), fmt.Sprintf("%s=%d", crashMark, mark), fmt.Sprintf("%s=%d", crashSpin, spin))
	return cmd
}

// lastSaved returns the last step that the lines of a child acknowledge, or otherwise.
func lastSaved(lines []string, otherwise int) int {
	for _, line := range lines {
		if n, ok := strings.CutPrefix(line, "saved "); ok {
			otherwise, _ = strconv.Atoi(n)
		}
	}
	return otherwise
}

// judgeRoot checks what a crash left: every checkpoint that is listed is complete and verifies, and the last one is at
// least as new as the one that was acknowledged.
func judgeRoot(sys *nebulaio.System, root string, acknowledged int) error {
	ctx := context.Background()
	found, err := sys.ListCheckpoints(ctx, root, nebulaio.CheckpointListOptions{})
	if err != nil {
		return err
	}
	last := -1
	for _, c := range found {
		v, err := sys.VerifyCheckpoint(ctx, c.Path, nebulaio.CheckpointVerifyOptions{})
		if err != nil {
			return err
		}
		if v.Verdict != "good" || !c.Complete {
			return fmt.Errorf("%s is listed, and is %s: %+v", c.Name, v.Verdict, v.Problems)
		}
		id, err := strconv.ParseUint(c.ID, 16, 64)
		if err != nil {
			return fmt.Errorf("%s has the id %q", c.Name, c.ID)
		}
		last = max(last, int(id)-1)
		if err := readBack(c, int(id)-1); err != nil {
			return err
		}
	}
	if last < acknowledged {
		return fmt.Errorf("the last checkpoint is that of step %d, but step %d was acknowledged; found %+v", last,
			acknowledged, found)
	}
	return nil
}

// readBack compares the data files of a checkpoint with what was saved.
func readBack(c nebulaio.Checkpoint, step int) error {
	for rank := range 2 {
		b, err := os.ReadFile(filepath.Join(c.Path, fmt.Sprintf("__%d_0_%s.distcp", rank, c.ID)))
		if err != nil {
			return err
		}
		if !bytes.HasSuffix(b, contentOf(step, rank)) {
			return fmt.Errorf("%s: the file of rank %d has other content", c.Name, rank)
		}
	}
	return nil
}

// TestKilledCheckpoints kills a process that saves and prunes checkpoints, at random moments. After each kill, the last
// acknowledged checkpoint is listed and verifies, no partial one is listed, and a prune keeps the last good one.
func TestKilledCheckpoints(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	sys := crashSystem(t)
	r := rand.New(rand.NewPCG(uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1)), 0))
	for _, how := range []string{"steps", "same"} {
		root := t.TempDir()
		last, partial := -1, 0
		for round := range (effort.Rounds{Test: 25, CI: 100, Long: 500}).Of(t) {
			lines := killChild(t, child(root, how, last+1, 0, 1+r.IntN(11), r.IntN(4_000_000)))
			acknowledged := lastSaved(lines, last)
			if err := judgeRoot(sys, root, acknowledged); err != nil {
				t.Fatalf("%s, round %d: %v", how, round, err)
			}
			all, err := sys.ListCheckpoints(t.Context(), root, nebulaio.CheckpointListOptions{All: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				if !c.Complete {
					partial++
				}
			}
			if _, err := sys.PruneCheckpoints(t.Context(), root, nebulaio.CheckpointPruneOptions{KeepLast: 1}); err != nil {
				t.Fatal(err)
			}
			if err := judgeRoot(sys, root, acknowledged); err != nil {
				t.Fatalf("%s, round %d, after a prune: %v", how, round, err)
			}
			last = acknowledged
			if found, _ := sys.ListCheckpoints(t.Context(), root, nebulaio.CheckpointListOptions{}); len(found) > 0 {
				id, _ := strconv.ParseUint(found[len(found)-1].ID, 16, 64)
				last = max(last, int(id)-1) // the kill came between the commit and its acknowledgement
			}
		}
		t.Logf("%s: step %d was reached, %d partial checkpoints were left and not listed", how, last, partial)
	}
}

// killChild runs a child until it kills itself, and returns the lines that it printed.
func killChild(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		lines = append(lines, s.Text())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by itself: %v\n%s", err, strings.Join(lines, "\n"))
	}
	return lines
}

// record traces a child that saves a few checkpoints.
func record(t *testing.T, how string, count int) *powercut.Trace {
	t.Helper()
	root := t.TempDir()
	trace, err := powercut.Record(child(root, how, 1, count, -1, 0), root)
	if errors.Is(err, powercut.ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestPowerCutsOfCheckpoints records the system calls of saves and prunes, takes the power away at random moments, and
// looks at what may be on the disk then.
func TestPowerCutsOfCheckpoints(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	sys := crashSystem(t)
	r := rand.New(rand.NewPCG(uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1)), 1))
	for _, how := range []string{"steps", "same"} {
		trace := record(t, how, 4)
		if n := lastSaved(trace.Marks(len(trace.Ops)), -1); n != 4 || len(trace.Ops) < 200 {
			t.Fatalf("%s: the trace has %d changes, and step %d was acknowledged", how, len(trace.Ops), n)
		}
		cuts := effort.Rounds{Test: 50, CI: 200, Long: 3000}.Of(t)
		for i := range cuts {
			n := r.IntN(len(trace.Ops) + 1)
			if cuts > len(trace.Ops)*len(powercut.Losses()) {
				n = i / len(powercut.Losses()) % (len(trace.Ops) + 1) // each moment in turn
			}
			loss := powercut.Losses()[i%len(powercut.Losses())]
			if err := judgeCut(t, sys, trace, n, loss, r, i%10 == 0); err != nil {
				t.Fatalf("%s, after change %d of %d, loss %d: %v", how, n, len(trace.Ops), loss, err)
			}
		}
		t.Logf("%s: %d cuts between %d changes", how, cuts, len(trace.Ops))
	}
}

// judgeCut checks what a loss of power leaves, and sometimes goes on saving there.
func judgeCut(t *testing.T, sys *nebulaio.System, trace *powercut.Trace, n int, loss powercut.Loss, r *rand.Rand,
	goOn bool) error {
	root, err := os.MkdirTemp(t.TempDir(), "cut")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := trace.Rebuild(root, n, loss, r); err != nil {
		return err
	}
	acknowledged := lastSaved(trace.Marks(n), -1)
	if err := judgeRoot(sys, root, acknowledged); err != nil {
		return err
	}
	if _, err := sys.PruneCheckpoints(t.Context(), root, nebulaio.CheckpointPruneOptions{KeepLast: 1}); err != nil {
		return err
	}
	if err := judgeRoot(sys, root, acknowledged); err != nil {
		return fmt.Errorf("after a prune: %w", err)
	}
	if !goOn {
		return nil
	}
	if err := saveStep(sys, stepDir(root, 100), 100, false, func(string) {}); err != nil {
		return err
	}
	return judgeRoot(sys, root, 100)
}

// TestPowerCutsFindACarelessCommit: the test of power cuts fails for a commit that syncs too little.
func TestPowerCutsFindACarelessCommit(t *testing.T) {
	effort.SingleThreaded(t)
	sys := crashSystem(t)
	trace := record(t, "careless", 2)
	r := rand.New(rand.NewPCG(1, 1))
	if err := judgeCut(t, sys, trace, len(trace.Ops), powercut.LoseNone, r, false); err != nil {
		t.Fatal(err)
	}
	for n := range len(trace.Ops) + 1 {
		if judgeCut(t, sys, trace, n, powercut.LoseSome, r, false) != nil {
			return
		}
	}
	t.Error("no cut shows that .metadata was not synced")
}
