// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

func TestPiecesHaveToCoverTheFile(t *testing.T) {
	whole := Piece{0, Block, 1}
	for name, pieces := range map[string][]Piece{
		"gap at the beginning": {{1, 5, 1}},
		"gap":                  {whole, {Block + 1, 5, 1}},
		"overlap":              {whole, {Block - 1, 1, 1}},
		"twice":                {whole, whole},
		"empty":                {{0, 0, 1}},
		"negative":             {{0, -1, 1}},
		"before":               {{-5, 5, 1}},
		"over a boundary":      {{0, Block + 1, 1}},
		"over a boundary, too": {{0, 5, 1}, {5, Block, 1}},
		"beyond everything":    {{1 << 62, 1 << 62, 1}},
	} {
		if _, _, _, err := JoinPieces(pieces); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sums, sum, size, err := JoinPieces(nil); err != nil || len(sums) != 0 || sum != 0 || size != 0 {
		t.Errorf("nothing: %v %v %v %v", sums, sum, size, err)
	}
}

// FuzzJoinPieces cuts content anywhere, and also takes pieces that nobody cut.
func FuzzJoinPieces(f *testing.F) {
	f.Add([]byte("some content"), []byte{1, 2, 3})
	f.Add(make([]byte, 3000), []byte{255, 255})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		g := &grid{join: checksum.NewJoiner()}
		var pieces []Piece
		rest := data
		for _, c := range cuts {
			n := min(int(c)+1, len(rest), int(g.left()))
			part := &grid{join: g.join, off: g.off}
			part.add(rest[:n])
			pieces = append(pieces, part.pieces...)
			g.add(rest[:n])
			rest = rest[n:]
		}
		sums, whole, size, err := JoinPieces(pieces)
		if done := data[:len(data)-len(rest)]; err != nil || size != int64(len(done)) || whole != g.whole || len(done) > 0 &&
			sums[0] != checksum.Of(done[:min(len(done), Block)]) {
			t.Fatalf("%d pieces of %d bytes: %v, %d bytes, %016x, %v", len(pieces), len(data), sums, size, whole, err)
		}
		for b := data; len(b) >= 24; b = b[24:] {
			pieces = append(pieces, Piece{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])),
				binary.LittleEndian.Uint64(b[16:])})
		}
		if sums, _, size, err := JoinPieces(pieces); err == nil && int64(len(sums)) != blocks(size) {
			t.Fatalf("%d sums for %d bytes", len(sums), size)
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("0000000000000001")
	f.Add("00000000000000AB")
	f.Add("+000000000000001")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseID(s); err == nil && id.String() != s {
			t.Fatalf("%q was read as %v", s, id)
		}
	})
}

// Sources of any cut, from files on any grid, give the content and the sums that writing it would have given.
func TestCopiesAreWhatTheyCopy(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		rng := rand.New(rand.NewPCG(8, 8))
		var datas [][]byte
		var readers []*Reader
		for i := range 3 {
			data := noise(Block+rng.IntN(2*Block), byte(i))
			datas = append(datas, data)
			readers = append(readers, reader(t, f, ID(i), write(t, f, ID(i), data)))
			defer readers[i].Close()
		}
		for round := range 10 {
			var sources []Source
			var want []byte
			for range 1 + rng.IntN(3) {
				k := rng.IntN(3)
				off := rng.Int64N(readers[k].Size())
				n := rng.Int64N(readers[k].Size() - off + 1)
				switch rng.IntN(3) {
				case 0: // all of it
					off, n = 0, readers[k].Size()
				case 1: // whole blocks
					off = off / Block * Block
					n = (readers[k].Size() - off) / Block * Block
				}
				sources = append(sources, Source{readers[k], off, n})
				want = append(want, datas[k][off:off+n]...)
			}
			id := ID(100 + round)
			w, err := f.Create(id, int64(len(want)))
			if err != nil {
				t.Fatal(err)
			}
			out, err := w.Copy(context.Background(), sources, round%3 == 0)
			if err == nil {
				err = w.Sync(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
			made := write(t, f, 1000+id, want)
			if fmt.Sprint(out.Sums) != fmt.Sprint(made.Sums) || out.CRC64 != made.CRC64 || out.Size != made.Size ||
				round%3 == 0 && !bytes.Equal(out.MD5, made.MD5) {
				t.Errorf("round %d: %+v, expected %+v", round, out, made)
			}
			if got, err := read(t, f, id, out, 0, out.Size); err != nil || !bytes.Equal(got, want) {
				t.Errorf("round %d: %d bytes, %v", round, len(got), err)
			}
			if err := w.Abort(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCopiesDoNotHideDamage: damage never gets a sum that is right, and is never copied, whatever the policy.
func TestCopiesDoNotHideDamage(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: VerifyNever})
	data := noise(3*Block, 1)
	out := write(t, f, 1, data)
	flip(t, f, 1, Block+5)
	r := reader(t, f, 1, out)
	defer r.Close()
	for id, c := range map[ID]struct {
		sources []Source
		md5     bool
	}{
		10: {[]Source{{r, 1, 3*Block - 1}}, false},
		11: {[]Source{{r, 0, 3 * Block}}, true},
		12: {[]Source{{r, 0, 10}, {r, Block + 4, 2}}, false},
		13: {[]Source{{r, 0, 3 * Block}}, false}, // whole blocks, which the kernel copies
		14: {[]Source{{r, Block, 2 * Block}}, false},
	} {
		w, err := f.Create(id, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Copy(context.Background(), c.sources, c.md5); !errors.Is(err, object.ErrDamaged) {
			t.Errorf("%v: %v", id, err)
		}
	}
	// Blocks that are whole are copied, whatever lies beside them.
	w, err := f.Create(15, Block)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Copy(context.Background(), []Source{{r, 2 * Block, Block}}, false); err != nil {
		t.Error(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, f); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// TestCopiesReadNoBlockTwice: a block that was compared since its file was opened is copied without being read again.
func TestCopiesReadNoBlockTwice(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir(), Verify: VerifyFirst})
	out := write(t, f, 1, noise(3*Block, 1))
	r := reader(t, f, 1, out)
	defer r.Close()
	copyTo := func(id ID) error {
		w, err := f.Create(id, 3*Block)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		_, err = w.Copy(context.Background(), []Source{{r, 0, 3 * Block}}, false)
		return err
	}
	if err := copyTo(2); err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		if !r.e.compared(i) {
			t.Errorf("block %d was copied and not compared", i)
		}
	}
	// Were it read again, this would be found.
	file, err := os.OpenFile(f.tmpName(1), os.O_RDWR, 0)
	if err != nil {
		if file, err = os.OpenFile(f.dataName(1), os.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.WriteAt([]byte{1, 2, 3}, Block); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := copyTo(3); err != nil {
		t.Errorf("a block was read again: %v", err)
	}
}

func TestCopiesThatCannotBeMade(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	r := reader(t, f, 1, write(t, f, 1, noise(3*Block, 1)))
	defer r.Close()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for id, c := range map[ID]struct {
		ctx  context.Context
		s    Source
		want error
	}{
		2: {context.Background(), Source{r, 0, 3*Block + 1}, object.ErrInvalidRange},
		3: {context.Background(), Source{r, -1, 1}, object.ErrInvalidRange},
		4: {cancelled, Source{r, 0, 3 * Block}, context.Canceled},
	} {
		w, err := f.Create(id, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Copy(c.ctx, []Source{c.s}, false); !errors.Is(err, c.want) {
			t.Errorf("%v: %v", id, err)
		}
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, f); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// One sync serves all who ask before it begins, and nobody is served by one that began before.
func TestSyncsAreShared(t *testing.T) {
	var began atomic.Int64
	begun, gate := make(chan struct{}), make(chan struct{})
	g := newGroup(func() error {
		n := began.Add(1)
		begun <- struct{}{}
		<-gate
		if n == 2 {
			return io.ErrClosedPipe
		}
		return nil
	}, nil)
	var all sync.WaitGroup
	errs := make([]error, 50)
	all.Go(func() { errs[0] = g.wait() })
	<-begun
	for i := 1; i < 50; i++ {
		all.Go(func() { errs[i] = g.wait() })
	}
	settled(t, "not all asked", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.next != nil &&
			g.next.asked == 49
	})
	gate <- struct{}{}
	<-begun
	gate <- struct{}{}
	all.Wait()
	if began.Load() != 2 || errs[0] != nil {
		t.Errorf("%d syncs, the first gave %v", began.Load(), errs[0])
	}
	for i, err := range errs[1:] {
		if err != io.ErrClosedPipe {
			t.Errorf("%d got %v", i+1, err)
		}
	}
}
