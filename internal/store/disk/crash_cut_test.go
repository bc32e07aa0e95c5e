// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// crashOptions make a store in which little content is much: it passes every limit.
func crashOptions(fs vfs.FS) disk.Options {
	return disk.Options{Dir: "store", FS: fs, Inline: 300, MemTable: 64 << 10, Reserve: -1}
}

// cut is the disk as a loss of power left it, and what may be found on it.
type cut struct {
	name    string
	fs      *vfs.MemFS
	allowed map[string][]string // states by bucket
	seed    uint64
}

// cutter takes the power away, over and over, between two steps of the file
// system that it chooses by chance.
type cutter struct {
	mem   *vfs.MemFS
	fs    *stepFS // over mem
	loads map[string]*storetest.Load
	cuts  chan cut
	r     *rand.Rand
	round int

	armed atomic.Bool
	mu    sync.Mutex // also keeps marks of loads in order
	left  int        // cuts to make
	next  int        // steps before the next
}

// before is called ahead of each step of the file system.
func (c *cutter) before(s step) error {
	if !c.armed.Load() || s.op == "read" || s.op == "open" || s.op == "list" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return nil
	}
	if c.next--; c.next > 0 {
		return nil
	}
	c.next = 1 + c.r.IntN(60)
	c.left--
	marks := map[string]int{}
	for b, l := range c.loads {
		marks[b] = l.Mark()
	}
	percent := [...]int{0, 0, 100, 50, 10, 90}[c.r.IntN(6)]
	k := cut{name: fmt.Sprintf("round %d, %d cuts left, %d %% of what was not synced, before %s %s", c.round, c.left,
		percent, s.op, s.path), seed: c.r.Uint64()}
	k.fs = c.fs.crash(c.mem, percent, rand.New(rand.NewPCG(k.seed, 0)))
	k.allowed = map[string][]string{}
	for b, l := range c.loads {
		k.allowed[b] = l.Allowed(marks[b])
	}
	c.cuts <- k
	if c.left == 0 {
		close(c.cuts)
	}
	return nil
}

// TestPowerCuts takes the power away at many random moments of a mixed load,
// and looks at what is on the disk: every acknowledged change is there whole,
// every other one whole or not at all, and the store is as good as new. Some
// cuts are followed by another one while the store recovers.
func TestPowerCuts(t *testing.T) {
	effort.SingleThreaded(t)
	const perRound = 50
	cuts := effort.Rounds{Test: 25, CI: 100, Long: 1000}.Of(t)
	seed := uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1))
	for round := 0; round*perRound < cuts; round++ {
		cutRound(t, seed, round, min(perRound, cuts-round*perRound))
		if t.Failed() {
			t.Fatalf("NEBULAIO_CRASH_SEED=%d, round %d", seed, round)
		}
	}
}

func cutRound(t *testing.T, seed uint64, round, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &cutter{mem: vfs.NewCrashableMem(), round: round, loads: map[string]*storetest.Load{}, cuts: make(chan cut, n),
		left: n, next: 1,
		r: rand.New(rand.NewPCG(seed, uint64(round)))}
	c.fs = &stepFS{FS: c.mem, before: c.before}
	o := crashOptions(c.fs)
	s, err := disk.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		b := fmt.Sprint("bucket", i)
		if i >= 2 {
			b = fmt.Sprintf("bucket%d--z1--x-s3", i) // whose objects are appended to and renamed
		}
		c.loads[b] = storetest.NewLoad(context.Background(), c.r.Uint64(), s, b, 1500)
	}
	c.armed.Store(true)
	var wg sync.WaitGroup
	for _, l := range c.loads {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := l.Step(); err != nil {
					t.Errorf("round %d: %v\n  %s", round, err, l.Log())
					cancel()
					return
				}
			}
		})
	}
	for k := range c.cuts {
		if err := judge(t, k); err != nil {
			t.Errorf("%s: %v", k.name, err)
			break
		}
	}
	cancel()
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	wantClean(t, o)
}

// judge opens what a cut left, sometimes only to cut again, and compares.
func judge(t *testing.T, k cut) error {
	ctx := t.Context()
	fs := k.fs
	r := rand.New(rand.NewPCG(k.seed, 1))
	if r.IntN(3) == 0 {
		fs = cutAgain(t, k.fs, r)
	}
	o := crashOptions(&stepFS{FS: fs})
	s, err := disk.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = s.Close()
		}
	}()
	for b, allowed := range k.allowed {
		found, err := storetest.State(ctx, s, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b, err)
		}
		if !slices.Contains(allowed, found) {
			return fmt.Errorf("%s is in none of the %d states that are allowed (- the acknowledged one, + found):\n%s", b,
				len(allowed),
				storetest.Diff(strings.Split(allowed[0], "\n"), strings.Split(found, "\n")))
		}
	}
	if err := useIt(ctx, s); err != nil {
		return fmt.Errorf("the store cannot be used: %w", err)
	}
	closed = true
	if err := s.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	report, err := disk.Check(ctx, o, check.Options{})
	if err != nil || report.Found > 0 {
		return fmt.Errorf("check: %v, %d problems: %+v", err, report.Found, report.Problems)
	}
	return nil
}

// cutAgain takes the power away a second time while the store is being opened, and returns what is left then.
func cutAgain(t *testing.T, fs *vfs.MemFS, r *rand.Rand) *vfs.MemFS {
	at := int64(1 + r.IntN(40))
	var n atomic.Int64
	var again atomic.Pointer[vfs.MemFS]
	rng := rand.New(rand.NewPCG(r.Uint64(), 0))
	steps := &stepFS{FS: fs}
	steps.before = func(s step) error {
		if s.op != "read" && s.op != "open" && s.op != "list" && n.Add(1) == at {
			again.Store(steps.crash(fs, 50, rng))
		}
		return nil
	}
	s, err := disk.Open(t.Context(), crashOptions(steps))
	if err != nil {
		return fs // which judge will see too
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if f := again.Load(); f != nil {
		return f
	}
	return fs
}

// useIt does a little of everything to a store.
func useIt(ctx context.Context, s object.Store) error {
	if err := s.CreateBucket(ctx, object.Bucket{Name: "after", Versioning: object.VersioningEnabled}); err != nil {
		return err
	}
	for _, n := range []int{10, 2000} {
		data := storetest.Bytes(uint64(n), n)
		if _, err := s.Put(ctx, object.Put{Bucket: "after", Key: "k", Size: int64(n),
			Body: bytes.NewReader(data)}); err != nil {
			return err
		}
		_, got, err := storetest.Read(ctx, s, object.Ref{Bucket: "after", Key: "k"})
		if err != nil || !bytes.Equal(got, data) {
			return fmt.Errorf("read back %d bytes: %w", len(got), err)
		}
	}
	_, err := s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: "after", Key: "k"}})
	return err
}
