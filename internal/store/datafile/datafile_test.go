// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// open opens files on fs and closes them at the end.
func open(t testing.TB, o Options) *Files {
	t.Helper()
	f, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// write makes a file durable, and returns what is known of it.
func write(t testing.TB, f *Files, id ID, data []byte) Written {
	t.Helper()
	w, err := f.Create(id, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.Fill(context.Background(), bytes.NewReader(data), int64(len(data)), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.Settle()
	return out
}

// read returns a range of a file.
func read(t testing.TB, f *Files, id ID, out Written, off, n int64) ([]byte, error) {
	t.Helper()
	r, err := f.OpenRead(id, out.Size, func() ([]uint64, error) { return out.Sums, nil })
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := r.Section(off, n)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return io.ReadAll(b)
}

// each runs a test on the real file system and in memory.
func each(t *testing.T, fn func(t *testing.T, o Options)) {
	t.Run("disk", func(t *testing.T) { fn(t, Options{FS: vfs.Default, Dir: t.TempDir()}) })
	t.Run("memory", func(t *testing.T) { fn(t, Options{FS: vfs.NewMem(), Dir: "store"}) })
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		for i, size := range []int{1, Block - 1, Block, Block + 1, 3*Block + 17} {
			data := noise(size, byte(i))
			out := write(t, f, ID(i), data)
			if sum := md5.Sum(data); !bytes.Equal(out.MD5, sum[:]) || out.CRC64 != checksum.Of(data) || out.Size != int64(size) {
				t.Errorf("%d bytes: %+v", size, out)
			}
			for k, s := range out.Sums {
				if want := checksum.Of(data[k*Block : min(size, (k+1)*Block)]); s != want {
					t.Errorf("%d bytes: block %d is %016x, expected %016x", size, k, s, want)
				}
			}
			if i%2 == 0 {
				if err := f.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			got, err := read(t, f, ID(i), out, 0, int64(size))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes: read %d, %v", size, len(got), err)
			}
		}
	})
}

// TestNames compares the names of files with those that package fmt makes.
func TestNames(t *testing.T) {
	f := &Files{fs: vfs.Default, tmp: "/store/tmp", data: "/store/data"}
	for _, n := range []uint64{0, 1, 15, 16, 4095, 4096, 1<<20 - 1, 1 << 20, 1<<24 + 77, 1<<28 - 1, 1 << 28, 1<<60 - 1,
		1 << 60, math.MaxUint64} {
		id, want := ID(n), fmt.Sprintf("%016x", n)
		dir := fmt.Sprintf("/store/data/%02x/%02x", n>>20, n>>12&0xff)
		if id.String() != want || f.tmpName(id) != "/store/tmp/"+want || f.home(id) != dir || f.dataName(id) != dir+"/"+want {
			t.Errorf("%d: %s, %s, %s, %s", n, id, f.tmpName(id), f.home(id), f.dataName(id))
		}
		if back, err := ParseID(want); err != nil || back != id {
			t.Errorf("%s is parsed as %d: %v", want, back, err)
		}
	}
}
