// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// A region is read by its own pieces before the file around it is whole.
func TestARegionIsReadByItsPieces(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	s, err := f.OpenShared(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const off = Block + Block/2
	data := noise(2*Block+7, 1)
	out, err := s.FillAt(context.Background(), bytes.NewReader(data), off, int64(len(data)), false)
	if err == nil {
		err = s.Sync(context.Background())
	}
	if err == nil {
		err = f.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var sums []uint64
	for _, p := range out.Pieces {
		sums = append(sums, p.CRC64)
	}
	pieces, ok := Cut(off, int64(len(data)), sums)
	if !ok || len(pieces) != len(out.Pieces) {
		t.Fatalf("cut into %v", pieces)
	}
	for i, p := range pieces {
		if p != out.Pieces[i] {
			t.Errorf("piece %d is %v, expected %v", i, p, out.Pieces[i])
		}
	}
	for _, wrong := range [][]uint64{sums[1:], append(sums, 1), nil} {
		if _, ok := Cut(off, int64(len(data)), wrong); ok {
			t.Errorf("%d sums fit", len(wrong))
		}
	}
	for _, c := range [][2]int64{{-1, 1}, {1, -1}, {MaxSize, 1}, {1 << 62, 1 << 62}} {
		if _, ok := Cut(c[0], c[1], []uint64{1}); ok {
			t.Errorf("%v can be cut", c)
		}
	}
	r, err := f.OpenPieces(1, pieces)
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(r, data); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n, err := f.Length(1); err != nil || n != off+int64(len(data)) {
		t.Errorf("length %d, %v", n, err)
	}
	flip(t, f, 1, 2*Block+5)
	r, err = f.OpenPieces(1, pieces)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	var d *Damage
	if !errors.As(err, &d) || d.Off != 2*Block || d.What != "checksum" || !bytes.Equal(got, data[:Block/2]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := os.Truncate(f.Path(1), 2*Block); err != nil {
		t.Fatal(err)
	}
	short, err := f.OpenPieces(1, pieces[1:])
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if _, err := short.Read(make([]byte, 1)); !errors.As(err, &d) || d.What != "short" {
		t.Errorf("short: %v", err)
	}
	if _, err := f.OpenPieces(2, pieces); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("missing: %v", err)
	}
	if _, err := f.Length(2); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("missing: %v", err)
	}
	if _, err := f.OpenPieces(1, []Piece{{0, Block + 1, 1}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("not within a block: %v", err)
	}
}

func TestStatsCountWhatIsOpenAndOnItsWay(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	f.settler.work.Lock()
	reader(t, f, 1, write(t, f, 1, []byte("x"))).Close()
	if st := f.Stats(); st != (Stats{Open: 1, Settling: 1}) {
		t.Errorf("got %+v", st)
	}
	f.settler.work.Unlock()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if st := f.Stats(); st != (Stats{Open: 1}) {
		t.Errorf("got %+v", st)
	}
}
