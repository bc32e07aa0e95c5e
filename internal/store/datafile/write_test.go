// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// names lists all files of f by their paths below its directory.
func names(t testing.TB, f *Files) []string {
	t.Helper()
	var all []string
	err := f.Walk(context.Background(), func(x Found) error {
		rel, err := filepath.Rel(f.opts.Dir, x.Path)
		all = append(all, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// settled fails the test unless condition comes true.
func settled(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for begin := time.Now(); !condition(); runtime.Gosched() {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%s", what)
		}
	}
}

// descriptors is how many the process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

// endless is a body that never ends and is cut off by whoever reads it.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// idle is a body that gives nothing and says nothing.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestABodyHasToBeWhatWasAnnounced(t *testing.T) {
	broken := errors.New("the line is cut")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		body io.Reader
		size int64
		want error
	}{
		"short":       {nil, bytes.NewReader(noise(Block, 1)), Block + 1, object.ErrIncompleteBody},
		"empty":       {nil, bytes.NewReader(nil), 1, object.ErrIncompleteBody},
		"long":        {nil, bytes.NewReader(noise(Block+1, 1)), Block, object.ErrIncompleteBody},
		"endless":     {nil, endless{}, 3 * Block, object.ErrIncompleteBody},
		"broken":      {nil, io.MultiReader(bytes.NewReader(noise(Block, 1)), iotest.ErrReader(broken)), 2 * Block, broken},
		"at the end":  {nil, io.MultiReader(bytes.NewReader(noise(Block, 1)), iotest.ErrReader(broken)), Block, broken},
		"idle":        {nil, idle{}, 1, io.ErrNoProgress},
		"idle end":    {nil, io.MultiReader(bytes.NewReader(noise(1, 1)), idle{}), 1, io.ErrNoProgress},
		"cancelled":   {cancelled, bytes.NewReader(noise(9, 1)), 9, context.Canceled},
		"too large":   {nil, endless{}, MaxSize + 1, object.ErrTooLarge},
		"unknown, it": {nil, iotest.ErrReader(broken), -1, broken},
	} {
		for _, md5 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, md5), func(t *testing.T) {
				f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
				w, err := f.Create(1, min(c.size, MaxSize))
				if err != nil {
					t.Fatal(err)
				}
				if c.ctx == nil {
					c.ctx = context.Background()
				}
				if out, err := w.Fill(c.ctx, c.body, c.size, md5); !errors.Is(err, c.want) || out.Size != 0 {
					t.Errorf("got %v, %+v", err, out)
				}
				if left := names(t, f); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
				if err := w.Abort(); err != nil {
					t.Errorf("a second end: %v", err)
				}
				if err := w.Sync(context.Background()); !errs.Is(err, errs.Closed) {
					t.Errorf("a sync of what is gone: %v", err)
				}
				if _, err := w.Fill(context.Background(), bytes.NewReader(nil), 0, false); !errs.Is(err, errs.Closed) {
					t.Errorf("a second content: %v", err)
				}
			})
		}
	}
}

// A body's own end is read, because that is where readers compare digests and trailers; how it is cut does not matter.
func TestABodyMayComeInAnyPieces(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	data := noise(Block+333, 2)
	for i, wrap := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.DataErrReader, iotest.OneByteReader,
	} {
		for k, size := range []int64{int64(len(data)), -1} {
			id := ID(10*i + k)
			w, err := f.Create(id, size)
			if err != nil {
				t.Fatal(err)
			}
			out, err := w.Fill(context.Background(), wrap(bytes.NewReader(data)), size, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Sync(context.Background()); err != nil {
				t.Fatal(err)
			}
			sum := md5.Sum(data)
			got, err := read(t, f, id, out, 0, out.Size)
			if err != nil || !bytes.Equal(got, data) || !bytes.Equal(out.MD5, sum[:]) {
				t.Errorf("reader %d, size %d: %d bytes, %v, %x", i, size, len(got), err, out.MD5)
			}
		}
	}
}

// Every step of a write fails in turn. Nothing is left behind, and the error says what the caller can act on.
func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	data := noise(2*Block, 3)
	for cause, want := range map[error]error{unix.ENOSPC: object.ErrNoSpace, unix.EDQUOT: object.ErrNoSpace,
		unix.EROFS: object.ErrReadOnly, unix.EACCES: object.ErrReadOnly, unix.EIO: unix.EIO} {
		steps := 0
		for step := 0; ; step++ {
			n := -1
			inject := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpStat || op.Kind == errorfs.OpRemove {
					return nil
				}
				if n++; n == step {
					return cause
				}
				return nil
			})}
			f := open(t, Options{FS: errorfs.Wrap(vfs.NewMem(), &inject), Dir: "store"})
			inject.On()
			w, err := f.Create(1, int64(len(data)))
			if err == nil {
				_, err = w.Fill(context.Background(), bytes.NewReader(data), int64(len(data)), step%2 == 0)
			}
			if err == nil {
				err = w.Sync(context.Background())
			}
			inject.Off()
			if err == nil {
				steps = step
				break
			}
			if !errors.Is(err, want) || !errors.Is(err, cause) {
				t.Errorf("%v at step %d: %v", cause, step, err)
			}
			if left := names(t, f); len(left) > 0 {
				t.Errorf("%v at step %d left %q", cause, step, left)
			}
		}
		if steps < 10 { // create, preallocate, eight pieces, sync, close, sync of the directory
			t.Errorf("only %d steps were tried", steps)
		}
	}
}

// A body that fails at once, or after some pieces, ends its hashing with it, whichever way that was done.
func TestBodiesThatFailEndTheirHashing(t *testing.T) {
	before := runtime.NumGoroutine()
	f, err := Open(Options{FS: vfs.Default, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the line is cut")
	for i := range 200 {
		w, err := f.Create(ID(i), -1)
		if err != nil {
			t.Fatal(err)
		}
		body := io.MultiReader(bytes.NewReader(noise(i%5*largePiece, 1)), iotest.ErrReader(broken))
		if _, err := w.Fill(context.Background(), body, 10*largePiece, true); err != broken {
			t.Fatalf("got %v", err)
		}
	}
	if n := f.hashes.active.Load(); n != 0 {
		t.Errorf("%d bodies are still being hashed", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	settled(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestFilesAreNoLongerThanTheirContent(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	write(t, f, 1, noise(preallocateFrom+5, 1))
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(f.Path(1))
	if err != nil || info.Size() != preallocateFrom+5 {
		t.Errorf("got %v, %v", info, err)
	}
}

// Many bodies at once take the path of hashes side by side, and more than have a lane do not.
func TestManyBodiesAtOnce(t *testing.T) {
	before := runtime.NumGoroutine()
	f, err := Open(Options{FS: vfs.NewMem(), Dir: "store"})
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	var all sync.WaitGroup
	for i := range mostLanes + 10 {
		all.Go(func() {
			data := noise(largePiece+1+i*1000, byte(i))
			w, err := f.Create(ID(i), -1)
			if err != nil {
				t.Error(err)
				return
			}
			// The first byte waits for all to be there.
			first := true
			body := readerFunc(func(p []byte) (int, error) {
				if first {
					first = false
					<-gate
				}
				n := copy(p, data)
				data = data[n:]
				if n == 0 {
					return 0, io.EOF
				}
				return n, nil
			})
			whole := bytes.Clone(data)
			out, err := w.Fill(context.Background(), body, int64(len(data)), true)
			if err != nil {
				t.Error(err)
				return
			}
			if sum := md5.Sum(whole); !bytes.Equal(sum[:], out.MD5) {
				t.Errorf("body %d: MD5 %x, expected %x", i, out.MD5, sum)
			}
			if err := w.Abort(); err != nil {
				t.Error(err)
			}
		})
	}
	settled(t, "not all bodies began", func() bool { return f.hashes.active.Load() == mostLanes+10 })
	close(gate)
	all.Wait()
	if f.hashes.made != mostLanes || len(f.hashes.free) != mostLanes {
		t.Errorf("%d lanes were made and %d are free, expected %d", f.hashes.made, len(f.hashes.free), mostLanes)
	}
	// Who comes lately gets a used lane, and its own sum.
	data := noise(3*largePiece, 9)
	if sum, out := md5.Sum(data), write(t, f, 1000, data); !bytes.Equal(out.MD5, sum[:]) {
		t.Errorf("MD5 %x, expected %x", out.MD5, sum)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	settled(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before })
	if f.buffers.users.Load() != 0 || f.hashes.active.Load() != 0 {
		t.Error("the counts of bodies did not return to 0")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A thousand writers that have stopped hold little memory.
func TestSlowWritersHoldSmallBuffers(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	gate := make(chan struct{})
	var all sync.WaitGroup
	const n = 1000
	for i := range n {
		all.Go(func() {
			w, err := f.Create(ID(i), -1)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = w.Fill(context.Background(), readerFunc(func([]byte) (int, error) {
				<-gate
				return 0,
					io.ErrUnexpectedEOF
			}), 5<<30, false)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		})
	}
	settled(t, "not all began", func() bool { return f.buffers.users.Load() == n })
	if p := f.buffers.piece(); len(p.b) != smallPiece {
		t.Errorf("one more gets %d bytes", len(p.b))
	}
	close(gate)
	all.Wait()
	if left := names(t, f); len(left) > 0 {
		t.Errorf("left behind: %d", len(left))
	}
}

func TestRegionsInAnyOrderMakeOneFile(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		rng := rand.New(rand.NewPCG(3, 4))
		for round := range ID(3) {
			part := 100_000 + rng.Int64N(3*Block/2)
			count := 2 + rng.IntN(3)
			data := noise(int(part)*(count-1)+1+rng.IntN(int(part)), byte(round))
			s, err := f.OpenShared(round)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var pieces []Piece
			var all sync.WaitGroup
			for _, k := range rng.Perm(count) {
				all.Go(func() {
					p := data[int64(k)*part : min(int64(k+1)*part, int64(len(data)))]
					out, err := s.FillAt(context.Background(), bytes.NewReader(p), int64(k)*part, int64(len(p)), true)
					if err == nil {
						err = s.Sync(context.Background())
					}
					if err != nil {
						t.Error(err)
						return
					}
					sum := md5.Sum(p)
					if _, crc, size, err := sumsOf(out.Pieces, int64(k)*part); err != nil || size != out.Size || crc != out.CRC64 ||
						!bytes.Equal(out.MD5, sum[:]) {
						t.Errorf("part %d: %+v, %v", k, out, err)
					}
					mu.Lock()
					pieces = append(pieces, out.Pieces...)
					mu.Unlock()
				})
			}
			all.Wait()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); !errs.Is(err, errs.Closed) {
				t.Errorf("closed twice: %v", err)
			}
			sums, whole, size, err := JoinPieces(pieces)
			if err != nil {
				t.Fatal(err)
			}
			want := write(t, f, 100+round, data)
			if whole != want.CRC64 || size != want.Size || fmt.Sprint(sums) != fmt.Sprint(want.Sums) {
				t.Errorf("joined to %016x of %d bytes, expected %016x of %d", whole, size, want.CRC64, want.Size)
			}
			got, err := read(t, f, round, Written{Size: size, Sums: sums}, 0, size)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
		}
	})
}

// sumsOf joins the pieces of a region as if it began at the grid, to compare its sum.
func sumsOf(pieces []Piece, off int64) (int, uint64, int64, error) {
	g := &grid{join: checksum.NewJoiner()}
	for _, p := range pieces {
		if p.Off != off+g.off {
			return 0, 0, 0, fmt.Errorf("a piece begins at %d, expected %d", p.Off, off+g.off)
		}
		g.whole = g.join.After(g.whole, p.N) ^ p.CRC64
		g.off += p.N
	}
	return len(pieces), g.whole, g.off, nil
}

// A file that is opened for writing while it moves to its place stays the same file.
func TestAFileThatMovesIsOpenedOnce(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		for id := range ID(30) {
			var pieces []Piece
			var mover sync.WaitGroup
			for k := range int64(6) {
				s, err := f.OpenShared(id)
				if err != nil {
					t.Fatal(err)
				}
				out, err := s.FillAt(context.Background(), bytes.NewReader([]byte{byte(k)}), k, 1, false)
				if err == nil {
					err = s.Sync(context.Background())
				}
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, out.Pieces...)
				mover.Go(func() {
					if err := f.Flush(); err != nil {
						t.Error(err)
					}
				})
			}
			mover.Wait()
			sums, _, size, err := JoinPieces(pieces)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(t, f, id, Written{Size: size, Sums: sums}, 0, size)
			if err != nil || !bytes.Equal(got, []byte{0, 1, 2, 3, 4, 5}) {
				t.Fatalf("got %v, %v", got, err)
			}
		}
	})
}

// The kernel tells of a lost write once: who asks later is not told that all is well.
func TestAfterALostWriteNothingIsAcknowledged(t *testing.T) {
	lost := false
	f := open(t, Options{Dir: "store", FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && !lost {
			lost = true
			return unix.EIO
		}
		return nil
	}))})
	s, err := f.OpenShared(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		if _, err := s.FillAt(context.Background(), bytes.NewReader([]byte("x")), 0, 1, false); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(context.Background()); !errors.Is(err, unix.EIO) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOffsetsUpToTheLargestObject(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: VerifyNever})
	s, err := f.OpenShared(7)
	if err != nil {
		t.Fatal(err)
	}
	tail := noise(1000, 7)
	out, err := s.FillAt(context.Background(), bytes.NewReader(tail), MaxSize-1000, 1000, true)
	if errors.Is(err, unix.EFBIG) {
		t.Skip("the file system has no files of this size")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.FillAt(context.Background(), bytes.NewReader(tail), MaxSize-999, 1000, false); !errors.Is(err,
		object.ErrTooLarge) {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := s.FillAt(context.Background(), endless{}, MaxSize-10, -1, false); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("endless beyond the end: %v", err)
	}
	if _, err := s.FillAt(context.Background(), bytes.NewReader(tail), -1, 1000, false); !errors.Is(err,
		object.ErrTooLarge) {
		t.Errorf("before the beginning: %v", err)
	}
	if _, err := s.FillAt(context.Background(), bytes.NewReader(tail), MaxSize-1000, 1000, false); err != nil {
		t.Errorf("written again: %v", err)
	}
	if err := errors.Join(s.Sync(context.Background()), s.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := read(t, f, 7, Written{Size: MaxSize}, MaxSize-1000, 1000)
	if err != nil || !bytes.Equal(got, tail) || out.Size != 1000 || out.Pieces[0].Off != MaxSize-1000 {
		t.Errorf("read %d bytes, %v, %+v", len(got), err, out)
	}
}
