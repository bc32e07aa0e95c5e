// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/effort"
)

var errDead = errors.New("the process was killed")

// dyingPlace behaves as a process that is killed at step `at`: from then on, nothing happens any more, and what is
// there stays.
type dyingPlace struct {
	Place
	at int

	mu    sync.Mutex
	steps int
}

// alive counts a step, and fails if the process is dead.
func (p *dyingPlace) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps++; p.steps > p.at {
		return errDead
	}
	return nil
}

// around does one step whose effect is there before the process dies, or is not.
func (p *dyingPlace) around(do func() error) error {
	if err := p.alive(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return p.alive()
}

func (p *dyingPlace) Create(ctx context.Context, name string) (f File, err error) {
	err = p.around(func() error {
		f, err = p.Place.Create(ctx, name)
		return err
	})
	return &dyingFile{f, p}, err
}

func (p *dyingPlace) Remove(ctx context.Context, name string) error {
	return p.around(func() error { return p.Place.Remove(ctx, name) })
}

func (p *dyingPlace) Sync(ctx context.Context) error {
	return p.around(func() error { return p.Place.Sync(ctx) })
}

func (p *dyingPlace) Flush(ctx context.Context) error {
	return p.around(func() error { return p.Place.Flush(ctx) })
}

func (p *dyingPlace) Put(ctx context.Context, name string, content io.WriterTo) error {
	return p.around(func() error { return p.Place.Put(ctx, name, content) })
}

type dyingFile struct {
	File
	p *dyingPlace
}

func (f *dyingFile) Write(b []byte) (int, error) {
	n := 0
	err := f.p.around(func() (err error) { // a killed process can leave a part of a write
		n, err = f.File.Write(b[:len(b)/2])
		return err
	})
	if err != nil {
		return n, err
	}
	m, err := f.File.Write(b[len(b)/2:])
	return n + m, err
}

func (f *dyingFile) Commit() error { return f.p.around(f.File.Commit) }

func (f *dyingFile) Abort() {
	if f.p.alive() == nil {
		f.File.Abort()
	}
}

// TestResumeAfterEachStep kills a pack at each of its steps, and goes on. All results are equal byte by byte, and
// finished shards are not packed again.
func TestResumeAfterEachStep(t *testing.T) {
	effort.Slow(t)
	src := t.TempDir()
	write(t, src, samples(24, 11))
	for _, o := range []Options{{Format: Tar, ShardSize: 70 << 10, lanes: 1, readers: 2},
		{Format: MDS, ShardSize: 70 << 10, lanes: 1, readers: 2},
		{Format: TFRecord, ShardSize: 70 << 10, Shuffle: true, lanes: 1, readers: 2}} {
		whole := fresh(t)
		shards := pack(t, src, whole, o).Shards
		want := read(t, whole, true)
		resumed := map[int]bool{}
		for at := 0; ; at++ {
			out := fresh(t)
			dying := &dyingPlace{Place: NewFolder(out), at: at}
			_, err := Run(t.Context(), NewFolder(src), dying, o)
			if err == nil {
				if at < 40 {
					t.Errorf("a pack has only %d steps", at)
				}
				break
			}
			if !errors.Is(err, errDead) {
				t.Fatalf("step %d: %v", at, err)
			}
			r := pack(t, src, out, o)
			resumed[r.Resumed] = true
			if same(t, read(t, out, true), want); t.Failed() {
				t.Fatalf("killed at step %d", at)
			}
		}
		for n := range shards + 1 {
			if !resumed[n] {
				t.Errorf("%s: no run went on after %d of %d shards", o.Format, n, shards)
			}
		}
	}
}

// TestResumeWithLanes kills packs of several lanes again and again until they are complete.
func TestResumeWithLanes(t *testing.T) {
	src := t.TempDir()
	write(t, src, samples(60, 12))
	o := Options{Format: Tar, ShardSize: 60 << 10, lanes: 3}
	whole := fresh(t)
	pack(t, src, whole, o)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		out := fresh(t)
		for {
			_, err := Run(t.Context(), NewFolder(src), &dyingPlace{Place: NewFolder(out), at: 10 + rng.IntN(80)}, o)
			if err == nil {
				break
			}
			if !errors.Is(err, errDead) {
				t.Fatal(err)
			}
		}
		same(t, read(t, out, true), read(t, whole, true))
	}
}

// TestUnpackResumes kills an unpack at many of its steps.
func TestUnpackResumes(t *testing.T) {
	files := samples(24, 13)
	src := t.TempDir()
	write(t, src, files)
	for _, format := range []string{Tar, MDS, TFRecord} {
		out := fresh(t)
		pack(t, src, out, Options{Format: format, ShardSize: 100 << 10})
		in, err := OpenPack(t.Context(), NewFolder(out))
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; ; at += 3 {
			back := fresh(t)
			_, err := Unpack(t.Context(), in, &dyingPlace{Place: NewFolder(back), at: at}, UnpackOptions{})
			if err == nil {
				break
			}
			if !errors.Is(err, errDead) {
				t.Fatal(err)
			}
			if r := unpack(t, out, back); r.Files != int64(len(files)) || r.Samples != 24 {
				t.Fatalf("killed at step %d: %+v", at, r)
			}
			same(t, read(t, back, false), files)
		}
	}
}

// TestFullDisk packs to a file system without space. After more space is there, the pack goes on.
func TestFullDisk(t *testing.T) {
	src := t.TempDir()
	write(t, src, samples(200, 14)) // about 4 MB
	mount := filepath.Join(t.TempDir(), "small")
	if err := unix.Mkdir(mount, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	defer unix.Unmount(mount, 0)
	out := filepath.Join(mount, "out")
	o := Options{Format: Tar, ShardSize: 300 << 10, lanes: 1}
	_, err := Run(t.Context(), NewFolder(src), NewFolder(out), o)
	if !errors.Is(err, syscall.ENOSPC) || !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "shard-00000") {
		t.Fatalf("a full disk: %v", err)
	}
	for name := range read(t, out, true) {
		if strings.HasPrefix(name, tempPrefix) {
			t.Errorf("%s was left", name)
		}
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	r := pack(t, src, out, o)
	if r.Resumed == 0 || !r.Verified {
		t.Errorf("%+v", r)
	}
	whole := fresh(t)
	pack(t, src, whole, o)
	same(t, read(t, out, true), read(t, whole, true))
}
