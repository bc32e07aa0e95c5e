// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bufio"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// killLoads is how many buckets a child changes at once.
const killLoads = 3

func killOptions(dir string) disk.Options {
	return disk.Options{Dir: dir, MemTable: 256 << 10, Reserve: -1}
}

func hashOf(state string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, state)
	return h.Sum64()
}

// killBucket names the buckets of a round. The last one is a directory bucket, whose objects are appended to and
// renamed.
func killBucket(round, i int) string {
	if i == killLoads-1 {
		return fmt.Sprintf("round%d--z%d--x-s3", round, i)
	}
	return fmt.Sprintf("round%d-%d", round, i)
}

// TestKillChild is the process that TestKills kills: it changes a store and
// tells on descriptor 3 of every change before it begins and when it is acknowledged.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("NEBULAIO_CRASH_DIR")
	if dir == "" {
		t.Skip("it is started by TestKills")
	}
	round := effort.Number(t, "NEBULAIO_CRASH_ROUND", 0)
	tell := os.NewFile(3, "pipe")
	s, err := disk.Open(context.Background(), killOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range killLoads {
		l := storetest.NewLoad(context.Background(), uint64(round*killLoads+i), s, killBucket(round, i), 50_000)
		l.Started = func(n int, state string) { fmt.Fprintf(tell, "S %d %d %x\n", i, n, hashOf(state)) }
		l.Acked = func(n int) { fmt.Fprintf(tell, "A %d %d 0\n", i, n) }
		wg.Go(func() {
			for {
				if err := l.Step(); err != nil {
					fmt.Fprintf(os.Stderr, "%v\n  %s\n", err, l.Log())
					os.Exit(3)
				}
				_ = l.Allowed(l.Mark()) // forgets what the parent keeps
			}
		})
	}
	wg.Wait()
}

// told is what a child said of one bucket.
type told struct {
	states []uint64 // by number
	acked  int
}

// TestKills kills a process with kill -9 in the middle of a mixed load, again
// and again on the same store: every acknowledged change is there whole, every
// other one whole or not at all, and what earlier rounds left stays as it was.
func TestKills(t *testing.T) {
	effort.Slow(t)
	rounds := effort.Rounds{Test: 4, CI: 15, Long: 200}.Of(t)
	dir := filepath.Join(t.TempDir(), "store")
	r := rand.New(rand.NewPCG(uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1)), 0))
	settled := map[string]string{} // the states that earlier rounds left
	for round := range rounds {
		said := killOnce(t, dir, round, 10+r.IntN(300))
		if r.IntN(3) == 0 {
			wantClean(t, killOptions(dir)) // also before anything was recovered
		}
		s, err := disk.Open(t.Context(), killOptions(dir))
		if err != nil {
			t.Fatalf("round %d: open: %v", round, err)
		}
		for i, b := range said {
			name := killBucket(round, i)
			state, err := storetest.State(t.Context(), s, name)
			if err != nil {
				t.Fatalf("round %d: %s: %v", round, name, err)
			}
			if !slices.Contains(b.states[b.acked:], hashOf(state)) {
				t.Fatalf("round %d: %s is in none of the states %d (acknowledged) to %d:\n%s", round, name, b.acked,
					len(b.states)-1, state)
			}
			settled[name] = state
		}
		for name, want := range settled {
			if state, err := storetest.State(t.Context(), s, name); err != nil || state != want {
				t.Fatalf("round %d: %s changed: %v\n%s\nbecame\n%s", round, name, err, want, state)
			}
		}
		if round%5 == 4 {
			clear(settled) // what is not looked at any more stays in the store all the same
		}
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: close: %v", round, err)
		}
		wantClean(t, killOptions(dir))
	}
}

// startChild runs one test of this program in a process of its own and returns the end of the pipe to which it writes.
func startChild(t *testing.T, test string, env ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+test+"$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the child has it
	return cmd, r
}

// killOnce starts a child, kills it after it has said so many lines, and returns what it said.
func killOnce(t *testing.T, dir string, round, lines int) []told {
	t.Helper()
	cmd, r := startChild(t, "TestKillChild", "NEBULAIO_CRASH_DIR="+dir, fmt.Sprintf("NEBULAIO_CRASH_ROUND=%d", round))
	defer r.Close()
	said := make([]told, killLoads)
	for i := range said {
		said[i].states = []uint64{hashOf("")}
	}
	n := 0
	for in := bufio.NewScanner(r); in.Scan(); {
		var what string
		var i, number int
		var hash uint64
		if _, err := fmt.Sscanf(in.Text(), "%s %d %d %x", &what, &i, &number, &hash); err != nil {
			t.Fatalf("the child said %q: %v", in.Text(), err)
		}
		switch what {
		case "S":
			if number != len(said[i].states) {
				t.Fatalf("state %d after %d", number, len(said[i].states)-1)
			}
			said[i].states = append(said[i].states, hash)
		case "A":
			said[i].acked = number
		}
		if n++; n == lines {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil || n < lines {
		t.Fatalf("round %d: the child ended by itself after %d lines: %v", round, n, err)
	}
	return said
}
