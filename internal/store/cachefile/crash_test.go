// SPDX-License-Identifier: Apache-2.0

package cachefile_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/test/effort"
)

// stepFS calls before ahead of each step that changes the file system.
type stepFS struct {
	vfs.FS
	before func(op, path string)
}

func (f *stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.before("create", name)
	file, err := f.FS.Create(name, c)
	return f.file(name, file, err)
}

func (f *stepFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f.before("open to write", name)
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return f.file(name, file, err)
}

func (f *stepFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return f.file(name, file, err)
}

func (f *stepFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.before("reuse", name)
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.file(name, file, err)
}

func (f *stepFS) Remove(name string) error {
	f.before("remove", name)
	return f.FS.Remove(name)
}

func (f *stepFS) Rename(old, name string) error {
	f.before("rename", name)
	return f.FS.Rename(old, name)
}

func (f *stepFS) MkdirAll(name string, perm os.FileMode) error {
	f.before("mkdir", name)
	return f.FS.MkdirAll(name, perm)
}

func (f *stepFS) Unwrap() vfs.FS { return f.FS }

func (f *stepFS) file(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &stepFile{file, f, name}, nil
}

type stepFile struct {
	vfs.File
	fs   *stepFS
	path string
}

func (f *stepFile) Write(p []byte) (int, error) {
	f.fs.before("write", f.path)
	return f.File.Write(p)
}

func (f *stepFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.before("write", f.path)
	return f.File.WriteAt(p, off)
}

func (f *stepFile) Sync() error {
	f.fs.before("sync", f.path)
	return f.File.Sync()
}

func (f *stepFile) SyncData() error {
	f.fs.before("sync", f.path)
	return f.File.SyncData()
}

func (f *stepFile) SyncTo(n int64) (bool, error) {
	f.fs.before("sync", f.path)
	return f.File.SyncTo(n)
}

// load changes a cache by chance.
type load struct {
	s *cachefile.Store
	r *rand.Rand
	// mu guards kept: content that was flushed whole, and that nothing has begun to evict.
	mu   sync.Mutex
	kept map[object.Identity]bool
	tell func(string) // may be nil
	// given counts contents that the cache did not take.
	given int
}

// someID returns one of the contents of the load.
func someID(r *rand.Rand) object.Identity {
	n := r.IntN(40)
	size := []int64{1, 300, 4096, 5000, 20_000, 70_000, mib, 2*mib + 100}[n%8]
	return identity(fmt.Sprintf("k%d", n), size)
}

// step makes one change.
func (l *load) step(ctx context.Context) error {
	id := someID(l.r)
	switch l.r.IntN(10) {
	case 0:
		l.mu.Lock()
		delete(l.kept, id)
		l.mu.Unlock()
		_, err := l.s.Evict(ctx, cachefile.Match{Key: id.Key, Exact: true})
		return err
	case 1:
		return l.s.Flush(ctx)
	case 2:
		return l.s.Remember(id.Origin, id.Key, cachefile.Known{Identity: id, Checked: time.Unix(1, 0)})
	case 3:
		d, ok, err := l.s.Draft(ctx, id.Origin, id.Key, id.Size)
		if err != nil || !ok {
			return err
		}
		if err := l.put(ctx, id, d.Put, nil); err != nil {
			d.Drop()
			return err
		}
		if err := d.Keep(ctx, id); err != nil {
			if errors.Is(err, cachefile.ErrAbsent) {
				return nil // not all of it was taken
			}
			return err
		}
		return l.flushed(ctx, id)
	}
	if e, ok := l.s.Lookup(id, id.Size); ok {
		e.Release()
	}
	e, ok, err := l.s.Admit(ctx, id)
	if err != nil || !ok {
		return err
	}
	defer e.Release()
	err = l.put(ctx, id, e.Put, func(block int64) bool {
		return l.r.IntN(8) == 0 || e.Missing(object.Range{Off: block * mib, N: 1}) == nil
	})
	if err != nil {
		return err
	}
	if l.r.IntN(3) == 0 && e.Whole() {
		if err := e.Flush(ctx); err != nil {
			return err
		}
		return l.flushed(ctx, id)
	}
	return nil
}

// put puts the blocks of id that skip does not name.
func (l *load) put(ctx context.Context, id object.Identity, put func(context.Context, int64, []byte) error,
	skip func(int64) bool) error {
	data := contentOf(id)
	for i := int64(0); i*mib < id.Size; i++ {
		if skip != nil && skip(i) {
			continue
		}
		err := put(ctx, i, data[i*mib:min((i+1)*mib, id.Size)])
		if errors.Is(err, object.ErrNoSpace) || errors.Is(err, cachefile.ErrAbsent) {
			l.given++ // the cache is full, or somebody evicted the entry
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flushed notes that id is durable.
func (l *load) flushed(_ context.Context, id object.Identity) error {
	l.mu.Lock()
	l.kept[id] = true
	l.mu.Unlock()
	if l.tell != nil {
		l.tell(id.Key)
	}
	return nil
}

// judge compares all content of a cache with the truth. What is in the cache must be right, and kept content must be
// there.
func judge(ctx context.Context, s *cachefile.Store, kept map[object.Identity]bool) error {
	for n := range 40 {
		id := identity(fmt.Sprintf("k%d", n), []int64{1, 300, 4096, 5000, 20_000, 70_000, mib, 2*mib + 100}[n%8])
		e, ok := s.Peek(id)
		if !ok {
			if kept[id] {
				return fmt.Errorf("%s was durable and is gone", id.Key)
			}
			continue
		}
		data := contentOf(id)
		for i := int64(0); i*mib < id.Size; i++ {
			r := object.Range{Off: i * mib, N: min(mib, id.Size-i*mib)}
			if e.Missing(r) != nil {
				if kept[id] {
					return fmt.Errorf("%s: block %d was durable and is gone", id.Key, i)
				}
				continue
			}
			got, err := read(e, r)
			if err != nil || !bytes.Equal(got, data[r.Off:r.Off+r.N]) {
				return fmt.Errorf("%s: block %d is wrong: %d bytes: %w", id.Key, i, len(got), err)
			}
		}
		e.Release()
	}
	r, err := s.Verify(ctx, cachefile.Match{}, nil)
	if err != nil || r.Dropped != 0 || r.Lost != 0 || s.Stats().Lost != 0 {
		return fmt.Errorf("verify: %+v, %d entries without a file: %w", r, s.Stats().Lost, err)
	}
	return nil
}

// cut is the disk as a loss of power left it, and what must be on it.
type cut struct {
	name string
	fs   *vfs.MemFS
	kept map[object.Identity]bool
}

// TestPowerCuts takes the power away before random steps of the file system while the cache is filled, flushed and
// evicted. Every block on the disk is right or absent, and what was flushed is there.
func TestPowerCuts(t *testing.T) {
	effort.SingleThreaded(t)
	for round := range (effort.Rounds{Test: 1, CI: 3, Long: 50}).Of(t) { // of 20 power cuts
		for _, tight := range []bool{false, true} {
			cutRound(t, uint64(round), 10, tight)
		}
	}
}

func cutRound(t *testing.T, seed uint64, n int, tight bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	mem := vfs.NewCrashableMem()
	var mu sync.Mutex
	var cuts []cut
	next, armed := 1, false
	l := &load{r: rand.New(rand.NewPCG(seed, 6)), kept: map[object.Identity]bool{}}
	fs := &stepFS{FS: mem}
	fs.before = func(op, path string) {
		mu.Lock()
		defer mu.Unlock()
		if next--; !armed || next > 0 || len(cuts) >= n {
			return
		}
		next = 1 + r.IntN(40)
		percent := [...]int{0, 0, 100, 50, 10, 90}[r.IntN(6)]
		c := cut{name: fmt.Sprintf("seed %d, tight %v, cut %d, %d %% of what was not synced, before %s %s", seed, tight,
			len(cuts), percent, op, path), kept: map[object.Identity]bool{}}
		l.mu.Lock()
		for id := range l.kept {
			c.kept[id] = !tight // by themselves, entries go only from a full cache
		}
		l.mu.Unlock()
		c.fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(r.Uint64(), 0))})
		cuts = append(cuts, c)
	}
	o := func(o *cachefile.Options) {
		o.FS, o.FlushBytes = fs, 300_000
		if tight {
			o.Capacity = 3 * mib
		}
	}
	s := open(t, "cache", o)
	l.s = s
	mu.Lock()
	armed = true
	mu.Unlock()
	for {
		mu.Lock()
		done := len(cuts) >= n
		mu.Unlock()
		if done {
			break
		}
		if err := l.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range cuts {
		s := open(t, "cache", func(op *cachefile.Options) { o(op); op.FS = c.fs })
		if err := judge(t.Context(), s, c.kept); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		id := identity("after", mib+1)
		if fill(t, s, id) {
			wantWarm(t, s, id)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
}

// TestKillChild is the process that TestKills kills.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("NEBULAIO_CRASH_CACHE_DIR")
	if dir == "" {
		t.Skip("it is started by TestKills")
	}
	tell := os.NewFile(3, "pipe")
	round := effort.Number(t, "NEBULAIO_CRASH_ROUND", 0)
	s, err := cachefile.Open(t.Context(), killOptions(dir, round))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 3 {
		l := &load{s: s, r: rand.New(rand.NewPCG(uint64(round), uint64(i))), kept: map[object.Identity]bool{}}
		l.tell = func(key string) { fmt.Fprintf(tell, "F %s\n", key) }
		wg.Go(func() {
			for {
				fmt.Fprintln(tell, "S -")
				if err := l.step(context.Background()); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(3)
				}
			}
		})
	}
	wg.Wait()
}

// killOptions make each other round evict all the time.
func killOptions(dir string, round int) cachefile.Options {
	o := cachefile.Options{Dir: dir, Capacity: 1 << 30, FlushEvery: time.Millisecond, FlushBytes: 1 << 20, ColdTime: -1,
		Reserve: -1}
	if round%2 == 1 {
		o.Capacity = 4 * mib
	}
	return o
}

// TestKills kills a process with kill -9 while it fills, flushes and evicts, again and again on the same cache. Every
// cached block is right or absent, and no file is left without an entry.
func TestKills(t *testing.T) {
	rounds := effort.Rounds{Test: 2, CI: 8, Long: 200}.Of(t)
	dir := filepath.Join(t.TempDir(), "cache")
	r := rand.New(rand.NewPCG(uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1)), 0))
	warm := 0
	for round := range rounds {
		killOnce(t, dir, round, 5+r.IntN(200))
		s, err := cachefile.Open(t.Context(), killOptions(dir, 0))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := judge(t.Context(), s, nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		st := s.Stats()
		warm += int(st.Entries)
		cachefile.WaitSwept(s)
		files := 0
		for i := range s.List(t.Context(), cachefile.Match{}) {
			if !i.Inline {
				files++
			}
		}
		if n := countFiles(t, dir); n != files {
			t.Fatalf("round %d: %d files, %d entries with files", round, n, files)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if warm == 0 {
		t.Error("no entry outlived a kill")
	}
	t.Logf("%d kills, %d entries found again", rounds, warm)
}

// killOnce starts a child and kills it after it has said so many lines.
func killOnce(t *testing.T, dir string, round, lines int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestKillChild$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "NEBULAIO_CRASH_CACHE_DIR="+dir, fmt.Sprintf("NEBULAIO_CRASH_ROUND=%d", round))
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the child has it
	n := 0
	for in := bufio.NewScanner(r); in.Scan(); {
		if n++; n == lines {
			_ = cmd.Process.Kill()
		}
		if !strings.HasPrefix(in.Text(), "F ") && in.Text() != "S -" {
			t.Fatalf("the child said %q", in.Text())
		}
	}
	if err := cmd.Wait(); err == nil || n < lines {
		t.Fatalf("round %d: the child ended by itself after %d lines: %v", round, n, err)
	}
}

// Readers, writers and evictions at once see right bytes or none.
func TestAllAtOnce(t *testing.T) {
	s := open(t, t.TempDir(), func(o *cachefile.Options) {
		o.Capacity, o.OpenFiles, o.FlushBytes, o.FlushEvery = 6*mib, 4, mib, time.Millisecond
	})
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range 6 {
		l := &load{s: s, r: rand.New(rand.NewPCG(uint64(i), 9)), kept: map[object.Identity]bool{}}
		wg.Go(func() {
			for range 60 {
				if err := l.step(ctx); err != nil {
					t.Error(err)
					return
				}
				id := someID(l.r)
				e, ok := s.Lookup(id, id.Size)
				if !ok {
					continue
				}
				if e.Whole() {
					got, err := read(e, object.Range{N: id.Size})
					evicted := errors.Is(err, cachefile.ErrAbsent) // in the meantime, by another goroutine
					if !evicted && (err != nil || !bytes.Equal(got, contentOf(id))) {
						t.Errorf("%s: %d bytes: %v", id.Key, len(got), err)
					}
				}
				e.Proven("length+etag")
				e.Release()
				if l.r.IntN(20) == 0 {
					if r, err := s.Verify(ctx, cachefile.Match{}, nil); err != nil || r.Dropped != 0 {
						t.Errorf("%+v: %v", r, err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	var sum int64
	for i := range s.List(ctx, cachefile.Match{}) {
		sum += i.Allocated
	}
	if st.Bytes != sum || st.Pending != 0 || st.Bytes > st.Capacity {
		t.Errorf("%d bytes in entries: %+v", sum, st)
	}
}
