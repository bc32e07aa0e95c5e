// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func file(t *testing.T, data []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(p, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// entries fails the test unless the directory of p holds those names alone.
func entries(t *testing.T, p string, want ...string) {
	t.Helper()
	es, err := os.ReadDir(filepath.Dir(p))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range es {
		got = append(got, e.Name())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the directory holds %q, expected %q", got, want)
	}
}

// The check value is the one published for CRC-64/NVME.
func TestSumIsCRC64NVME(t *testing.T) {
	if got := Of([]byte("123456789")); got != 0xae8b14860a799888 {
		t.Fatalf("got %016x", got)
	}
}

func TestPiecesJoinInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	j := NewJoiner()
	for range 300 {
		b := noise(1+rng.IntN(20_000), byte(rng.Uint32()))
		var cuts []int
		for at := 0; at < len(b); at += 1 + rng.IntN(4000) {
			cuts = append(cuts, at)
		}
		var sum uint64
		for _, k := range rng.Perm(len(cuts)) {
			end := len(b)
			if k+1 < len(cuts) {
				end = cuts[k+1]
			}
			sum ^= j.After(Of(b[cuts[k]:end]), int64(len(b)-end))
		}
		if sum != Of(b) {
			t.Fatalf("%d pieces of %d bytes give %016x, the whole %016x", len(cuts), len(b), sum, Of(b))
		}
	}
}

func TestComputeWriteRead(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 3*readSize + 77} {
		for _, block := range []int64{MinBlock, DefaultBlock, 2 * readSize} {
			t.Run(fmt.Sprintf("%d in %d", size, block), func(t *testing.T) {
				data := noise(size, 3)
				p := file(t, data)
				last := int64(-1)
				s, err := Compute(context.Background(), p, block, func(done, total int64) {
					if done <= last || total != int64(size) {
						t.Errorf("progress went from %d to %d of %d", last, done, total)
					}
					last = done
				})
				if err != nil {
					t.Fatal(err)
				}
				if size > 0 && last != int64(size) {
					t.Errorf("progress ended at %d", last)
				}
				for i, sum := range s.Blocks {
					off, n := s.Extent(int64(i))
					if want := Of(data[off : off+n]); sum != want {
						t.Fatalf("block %d is %016x, expected %016x", i, sum, want)
					}
				}
				if _, err := s.Write(p); err != nil {
					t.Fatal(err)
				}
				entries(t, p, "m.safetensors", "m.safetensors.crc64nvme")
				got, err := Read(p, int64(size))
				if err != nil {
					t.Fatal(err)
				}
				if got.Size != s.Size || got.Block != s.Block || fmt.Sprint(got.Blocks) != fmt.Sprint(s.Blocks) {
					t.Errorf("read back %+v, wrote %+v", got, s)
				}
			})
		}
	}
}

func TestReadSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	data := noise(10_000, 4)
	s := &Sums{Size: 10_000, Block: 4096, Blocks: []uint64{Of(data[:4096]), Of(data[4096:8192]), Of(data[8192:])}}
	good := s.Encode()
	change := func(off int, v uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[off:], v)
		binary.LittleEndian.PutUint64(b[len(b)-8:], Of(b[:len(b)-8]))
		return b
	}
	damaged := bytes.Clone(good)
	damaged[50] ^= 4
	for name, c := range map[string]struct {
		content []byte
		size    int64
		kind    errs.Kind
		want    string
	}{
		"missing":       {nil, 10_000, errs.NotFound, "does not exist"},
		"stale":         {good, 9_000, errs.Corrupt, "is stale: it was made of 10000 bytes, the file has 9000"},
		"empty":         {[]byte{}, 10_000, errs.Corrupt, "has 0 bytes and is truncated"},
		"truncated":     {good[:len(good)-1], 10_000, errs.Corrupt, "has 71 bytes and is truncated; expected 72"},
		"trailing":      {append(bytes.Clone(good), 0), 10_000, errs.Corrupt, "something follows"},
		"magic":         {append([]byte("X"), good[1:]...), 10_000, errs.Corrupt, "no file of checksums"},
		"version":       {change(8, 2), 10_000, errs.Unsupported, "version 2, expected 1"},
		"size":          {change(16, 1<<63), 10_000, errs.Corrupt, "9223372036854775808 bytes"},
		"size for more": {change(16, 20_000), 10_000, errs.Corrupt, "has 3 blocks for 20000 bytes"},
		"block 0":       {change(24, 0), 10_000, errs.Corrupt, "block size 0"},
		"block 5000":    {change(24, 5000), 10_000, errs.Corrupt, "block size 5000"},
		"count":         {change(32, 1<<60), 10_000, errs.Corrupt, "1152921504606846976 blocks"},
		"damaged":       {damaged, 10_000, errs.Corrupt, "its own checksum is"},
	} {
		t.Run(name, func(t *testing.T) {
			p := file(t, data)
			if c.content != nil {
				if err := os.WriteFile(Path(p), c.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Read(p, c.size)
			if got != nil || !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if !strings.Contains(errs.FixOf(err), "--checksum") || !strings.Contains(err.Error(), p) {
				t.Errorf("no remedy or no name: %v", err)
			}
		})
	}
}

func TestAnyDamageToTheSidecarIsFound(t *testing.T) {
	good := (&Sums{Size: 9000, Block: 4096, Blocks: []uint64{1, 2, 3}}).Encode()
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if s, err := Parse("x", b); err == nil {
			t.Fatalf("bit %d flipped and nobody saw: %+v", bit, s)
		}
	}
}

func TestComputeStopsAndLeavesNothing(t *testing.T) {
	p := file(t, noise(4*readSize, 5))
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Compute(ctx, p, 0, func(int64, int64) { cancel() })
	if !errs.Is(err, errs.Cancelled) || !strings.Contains(err.Error(), p) {
		t.Fatalf("got %v", err)
	}
	entries(t, p, "m.safetensors")
}

func TestComputeRefuses(t *testing.T) {
	p := file(t, noise(3*4096, 6))
	if _, err := Compute(context.Background(), p, 5000, nil); !errs.Is(err, errs.Invalid) {
		t.Errorf("block 5000: %v", err)
	}
	if _, err := Compute(context.Background(), filepath.Dir(p), 0, nil); !errs.Is(err, errs.Invalid) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Compute(context.Background(), p+".no", 0, nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
	_, err := Compute(context.Background(), p, MinBlock, func(int64, int64) {
		if err := os.Truncate(p, 1); err != nil {
			t.Error(err)
		}
	})
	if !errs.Is(err, errs.IO) {
		t.Errorf("a file that is truncated meanwhile: %v", err)
	}
}

func TestWriteThatFailsLeavesTheOldSums(t *testing.T) {
	p := file(t, nil)
	if err := os.MkdirAll(filepath.Join(Path(p), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Sums{Block: 4096}).Write(p); err == nil {
		t.Fatal("a directory was replaced")
	}
	entries(t, p, "m.safetensors", "m.safetensors.crc64nvme")
}

func FuzzParse(f *testing.F) {
	f.Add((&Sums{Size: 9000, Block: 4096, Blocks: []uint64{1, 2, 3}}).Encode())
	f.Add((&Sums{Block: DefaultBlock}).Encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Almost nothing that is made up has the right sum: give it one, so
		// that what lies behind that check is reached too.
		if len(b) >= headSize+tailSize && b[len(b)-1]&1 == 0 {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint64(b[len(b)-tailSize:], Of(b[:len(b)-tailSize]))
		}
		s, err := Parse("x", b)
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported {
				t.Fatalf("kind %v: %v", k, err)
			}
			return
		}
		if !bytes.Equal(s.Encode(), b) {
			t.Fatal("what was parsed is not what was there")
		}
		for i := range s.Blocks {
			if off, n := s.Extent(int64(i)); n <= 0 || n > s.Block || off+n > s.Size {
				t.Fatalf("block %d is [%d, +%d) of %d", i, off, n, s.Size)
			}
		}
	})
}

func TestWholeIsTheSumOfTheFile(t *testing.T) {
	for _, size := range []int{0, 1, MinBlock, MinBlock + 1, 5*MinBlock - 1} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * i)
		}
		s := &Sums{Size: int64(size), Block: MinBlock}
		for i := range blocksOf(s.Size, s.Block) {
			off, n := s.Extent(i)
			s.Blocks = append(s.Blocks, Of(data[off:off+n]))
		}
		if got := s.Whole(); got != Of(data) {
			t.Errorf("%d bytes: %016x, expected %016x", size, got, Of(data))
		}
	}
}
