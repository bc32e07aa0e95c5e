// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/object"
)

// witness takes what a loss of power would leave before every step that changes something, together with what was
// promised until then.
type witness struct {
	t    *testing.T
	mem  *vfs.MemFS
	rng  *rand.Rand
	seen int

	mu       sync.Mutex
	promised map[ID]Written // committed by the caller
	removing map[ID]bool    // on the caller's list of what is to be removed
}

func newWitness(t *testing.T) (*witness, Options) {
	w := &witness{t: t, mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(5, 5)), promised: map[ID]Written{},
		removing: map[ID]bool{}}
	return w, Options{FS: errorfs.Wrap(linker{w.mem, &w.mu}, errorfs.InjectorFunc(w.before)), Dir: "store"}
}

// linker keeps Link and CrashClone apart: MemFS takes one lock twice in Link, and hangs where CrashClone comes in
// between.
type linker struct {
	vfs.FS
	mu *sync.Mutex
}

func (l linker) Link(oldname, newname string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.FS.Link(oldname, newname)
}

func (w *witness) before(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check(op)
	return nil
}

// promise is the caller's commit.
func (w *witness) promise(id ID, out Written) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.promised[id] = out
	w.check(errorfs.Op{})
}

// check cuts the power now and looks whether all that was promised is there, twice: power may be cut during recovery.
func (w *witness) check(op errorfs.Op) {
	w.seen++
	for _, percent := range []int{0, 50, 100} {
		fs := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.rng})
		for range 2 {
			f, err := Open(Options{FS: fs, Dir: "store"})
			if err != nil {
				w.t.Errorf("before %v: %v", op, err)
				return
			}
			known := func(id ID) bool { _, ok := w.promised[id]; return ok || w.removing[id] }
			r, err := f.Recover(known)
			if err != nil || len(r.Left) > 0 {
				w.t.Errorf("before %v at %d %%: recovery: %+v, %v", op, percent, r, err)
			}
			for id, out := range w.promised {
				if out.Size == 0 {
					continue // an upload without a part has no file
				}
				if found, err := f.Scrub(context.Background(), id, out.Size, out.Sums, nil); err != nil || len(found) > 0 {
					w.t.Errorf("before %v at %d %%: %v is lost: %v, %v", op, percent, id, found, err)
				}
			}
			if max, ok, err := f.MaxID(); err != nil || ok && !known(max) && len(w.removing) == 0 && max&0xfff != 0 {
				w.t.Errorf("before %v at %d %%: the highest is %v, %v", op, percent, max, err)
			}
			for _, name := range names(w.t, f) {
				if strings.HasPrefix(name, "tmp/") {
					w.t.Errorf("before %v at %d %%: recovery left %s", op, percent, name)
				}
			}
			if err := f.Close(); err != nil {
				w.t.Errorf("before %v: %v", op, err)
			}
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.rng})
		}
	}
}

// Whenever the power goes, what was committed after Sync is there, wherever it was on its way.
func TestNothingThatWasAcknowledgedIsLost(t *testing.T) {
	w, o := newWitness(t)
	f, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	w.before(errorfs.Op{Kind: errorfs.OpCreate}) // an empty store
	ids := []ID{1, 2, 4095, 4096, 4097, 1<<20 + 1, 1<<28 + 1}
	for k, id := range ids {
		data := noise(1+k*20_000, byte(k))
		x, err := f.Create(id, int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		out, err := x.Fill(context.Background(), bytes.NewReader(data), int64(len(data)), false)
		if err == nil {
			err = x.Sync(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		w.promise(id, out)
		x.Settle()
		if k%3 == 2 {
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		// One that is never committed.
		y, err := f.Create(id+1<<40, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := y.Fill(context.Background(), bytes.NewReader(data), -1, false); err != nil {
			t.Fatal(err)
		}
		if k%2 == 0 {
			if err := y.Sync(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// An upload: its record is durable before its file.
	w.promise(50, Written{})
	s, err := f.OpenShared(50)
	if err != nil {
		t.Fatal(err)
	}
	var pieces []Piece
	for part := range int64(3) {
		out, err := s.FillAt(context.Background(), bytes.NewReader(noise(9000, byte(part))), part*9000, 9000, false)
		if err == nil {
			err = s.Sync(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, out.Pieces...)
		sums, whole, size, err := JoinPieces(pieces)
		if err != nil {
			t.Fatal(err)
		}
		w.promise(50, Written{Size: size, CRC64: whole, Sums: sums})
		if part == 1 {
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A copy, and its source removed.
	src := reader(t, f, 4096, w.promised[4096])
	x, err := f.Create(60, src.Size())
	if err != nil {
		t.Fatal(err)
	}
	out, err := x.Copy(context.Background(), []Source{{src, 0, src.Size()}}, false)
	if err == nil {
		err = x.Sync(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	src.Close()
	w.promise(60, out)
	x.Settle()
	w.mu.Lock()
	delete(w.promised, 4096)
	w.removing[4096] = true
	w.mu.Unlock()
	if held, err := f.Remove(4096); err != nil || len(held) > 0 {
		t.Fatal(held, err)
	}
	w.mu.Lock()
	for percent := range 101 {
		fs := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.rng})
		if _, err := fs.Stat(f.Path(4096)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d %%: what was removed is back: %v", percent, err)
		}
	}
	w.mu.Unlock()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.before(errorfs.Op{Kind: errorfs.OpCreate})
	if w.seen < 60 {
		t.Errorf("power was cut only %d times", w.seen)
	}
}

// The order of steps is what the promise rests on.
func TestOrderOfSteps(t *testing.T) {
	var mu sync.Mutex
	var trace []string
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		what := map[errorfs.OpKind]string{
			errorfs.OpCreate: "create", errorfs.OpLink: "link", errorfs.OpRemove: "remove", errorfs.OpMkdirAll: "mkdir",
			errorfs.OpFileWrite: "write", errorfs.OpFileWriteAt: "write at", errorfs.OpFileSync: "sync",
			errorfs.OpFileSyncData: "sync data", errorfs.OpFilePreallocate: "preallocate",
		}[op.Kind]
		if what != "" {
			trace = append(trace, what+" "+op.Path)
		}
		return nil
	}))
	f := open(t, Options{FS: fs, Dir: "store"})
	step := func(name string, want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(trace, want) {
			t.Errorf("%s:\n%s\nexpected:\n%s", name, strings.Join(trace, "\n"), strings.Join(want, "\n"))
		}
		trace = nil
	}
	step("open", "mkdir store/tmp", "mkdir store/data", "sync store", "sync .")
	const tmp, home, name = "store/tmp/0000000000123456", "store/data/01/23", "store/data/01/23/0000000000123456"
	w, err := f.Create(0x123456, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	step("create", "create "+tmp, "preallocate "+tmp)
	if _, err := w.Fill(context.Background(), bytes.NewReader(noise(2<<20, 1)), 2<<20, true); err != nil {
		t.Fatal(err)
	}
	step("fill", slices.Repeat([]string{"write " + tmp}, (2<<20)/largePiece)...)
	if err := w.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	step("sync", "sync data "+tmp, "sync store/tmp")
	w.Settle()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	step("settle", "mkdir "+home, "sync store/data/01", "sync store/data", "link "+tmp, "sync "+home, "remove "+tmp)
	if _, err := f.Remove(0x123456); err != nil {
		t.Fatal(err)
	}
	// errorfs does not say that the name in tmp/ was missing
	step("remove", "remove "+name, "sync store/tmp", "sync "+home)
}

// Every step of settling fails in turn: the file is readable all the time, and settled in the end.
func TestSettlingThatFailsIsTriedAgain(t *testing.T) {
	data := noise(5000, 1)
	for step := 0; ; step++ {
		n, told := -1, 0
		inject := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
			if n++; n == step {
				return unix.ENOSPC
			}
			return nil
		})}
		f := open(t, Options{FS: errorfs.Wrap(vfs.NewMem(), &inject), Dir: "store", Failed: func(id ID, err error) {
			if told++; id != 1 || !errors.Is(err, object.ErrNoSpace) {
				t.Errorf("told of %v: %v", id, err)
			}
		}})
		out := write(t, f, 1, data)
		f.settler.work.Lock() // this test settles by itself
		inject.On()
		_, err := f.settler.settle(f.settler.take(true))
		inject.Off()
		f.settler.work.Unlock()
		if got, err := read(t, f, 1, out, 0, out.Size); err != nil || !bytes.Equal(got, data) {
			t.Errorf("step %d: %d bytes, %v", step, len(got), err)
		}
		if err == nil {
			if step < 6 || told != 0 {
				t.Errorf("only %d steps were tried", step)
			}
			return
		}
		if !errors.Is(err, object.ErrNoSpace) || told != 1 {
			t.Errorf("step %d: told %d times, %v", step, told, err)
		}
		if err := f.Flush(); err != nil {
			t.Errorf("step %d, again: %v", step, err)
		}
		if got := names(t, f); !slices.Equal(got, []string{"data/00/00/0000000000000001"}) || len(f.settler.moving) > 0 {
			t.Errorf("step %d: %q", step, got)
		}
	}
}

func TestRecoverTouchesNothingThatItDoesNotUnderstand(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		fs := o.FS
		f := open(t, o)
		make := func(path, content string) {
			t.Helper()
			if err := fs.MkdirAll(fs.PathDir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			x, err := fs.Create(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
		}
		make(f.tmpName(1), "known, not settled")
		make(f.tmpName(2), "known, settled by half")
		if err := fs.MkdirAll(f.home(2), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := fs.Link(f.tmpName(2), f.dataName(2)); err != nil {
			t.Fatal(err)
		}
		make(f.tmpName(3), "unknown")
		make(f.tmpName(4), "unknown and in its place")
		make(f.dataName(4), "unknown and in its place")
		make(f.dataName(5), "known and in its place")
		if o.FS == vfs.Default { // in memory there are no inodes to tell files apart
			make(f.tmpName(5), "another")
		} else {
			make(fs.PathJoin(f.tmp, "0000000000000005.old"), "not ours")
		}
		make(fs.PathJoin(f.tmp, "notes.txt"), "not ours")
		make(fs.PathJoin(f.tmp, "000000000000000A"), "not ours")
		make(f.dataName(6), "unknown, but nobody asked")
		r, err := f.Recover(func(id ID) bool { return id == 1 || id == 2 || id == 5 })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.Left)
		left := []string{f.tmpName(4), f.dataName(4), fs.PathJoin(f.tmp, "notes.txt"), fs.PathJoin(f.tmp, "000000000000000A")}
		five := "tmp/0000000000000005.old"
		if o.FS == vfs.Default {
			five = "tmp/0000000000000005"
			left = append(left, f.dataName(5))
		}
		left = append(left, fs.PathJoin(o.Dir, five))
		slices.Sort(left)
		if fmt.Sprint(r.Settled, r.Removed) != fmt.Sprint([]ID{1, 2}, []ID{3}) || !slices.Equal(r.Left, left) {
			t.Errorf("got %+v", r)
		}
		want := []string{
			"tmp/0000000000000004", five, "tmp/000000000000000A", "tmp/notes.txt",
			"data/00/00/0000000000000001", "data/00/00/0000000000000002", "data/00/00/0000000000000004",
			"data/00/00/0000000000000005", "data/00/00/0000000000000006",
		}
		if got := names(t, f); !slices.Equal(got, want) {
			t.Errorf("there are %q", got)
		}
		odd := map[string]bool{}
		if err := f.Walk(context.Background(), func(x Found) error {
			if x.Odd {
				odd[fs.PathBase(x.Path)] = true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(odd, map[string]bool{"notes.txt": true, "000000000000000A": true}) && o.FS == vfs.Default {
			t.Errorf("odd: %v", odd)
		}
	})
}

func TestTheHighestNumber(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		if id, ok, err := f.MaxID(); ok || err != nil {
			t.Errorf("of nothing: %v, %v", id, err)
		}
		for _, id := range []ID{5, 3, 4096, 1<<20 + 70_000, 1<<28 + 12, 1 << 28} {
			write(t, f, id, []byte("x"))
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
			want := max(id, map[ID]ID{3: 5, 1 << 28: 1<<28 + 12}[id])
			if got, ok, err := f.MaxID(); got != want || !ok || err != nil {
				t.Errorf("got %v, %v, expected %v", got, err, want)
			}
		}
		// What was reached once is remembered by the directory.
		if _, err := f.Remove(1<<28, 1<<28+12); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := f.MaxID(); got != 1<<28 || !ok || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestHeldFilesKeepTheirNames(t *testing.T) {
	var released []ID
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Released: func(id ID) { released = append(released, id) }})
	for id := range ID(3) {
		write(t, f, id, []byte("x"))
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	first, second, other := f.Hold(1), f.Hold(1), f.Hold(2)
	held, err := f.Remove(0, 1, 77)
	if err != nil || !slices.Equal(held, []ID{1}) {
		t.Errorf("held: %v, %v", held, err)
	}
	if _, err := os.Stat(f.Path(1)); err != nil {
		t.Error(err)
	}
	first()
	first()
	if len(released) > 0 {
		t.Error("released too early")
	}
	second()
	other()
	if !slices.Equal(released, []ID{1}) {
		t.Errorf("released: %v", released)
	}
	if held, err := f.Remove(1, 2); err != nil || len(held) > 0 {
		t.Errorf("held: %v, %v", held, err)
	}
	if left := names(t, f); len(left) > 0 || len(f.holds.of) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Files that are removed while they settle and while they are read end for good, and give their descriptors back.
func TestRemovingRacesWithEverything(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		before := descriptors(t)
		var all sync.WaitGroup
		for k := range 4 {
			all.Go(func() {
				for i := range 60 {
					id := ID(k*1000 + i)
					out := write(t, f, id, noise(3000, byte(i)))
					var some sync.WaitGroup
					some.Go(func() {
						if err := f.Flush(); err != nil {
							t.Error(err)
						}
					})
					some.Go(func() {
						got, err := read(t, f, id, out, 0, out.Size)
						var d *Damage
						if err == nil && !bytes.Equal(got, noise(3000, byte(i))) || err != nil &&
							!(errors.As(err, &d) && d.What == "missing") {
							t.Errorf("%d bytes, %v", len(got), err)
						}
					})
					some.Go(func() {
						if _, err := f.Remove(id); err != nil {
							t.Error(err)
						}
					})
					some.Wait()
				}
			})
		}
		all.Wait()
		if left := names(t, f); len(left) > 0 || len(f.settler.moving) > 0 {
			t.Errorf("left: %q, %d moving", left, len(f.settler.moving))
		}
		if err := f.Flush(); err != nil { // no directory is open any more
			t.Fatal(err)
		}
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors, there were %d", n, before)
		}
	})
}
