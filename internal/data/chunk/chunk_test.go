// SPDX-License-Identifier: Apache-2.0

package chunk_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// pack returns a file with samples whose parts have these sizes, and where its samples start.
func pack(fixed []int64, samples [][]uint32) []byte {
	var body []byte
	ends := []int{0}
	for _, sizes := range samples {
		for j, size := range sizes {
			if fixed[j] == 0 {
				body = binary.LittleEndian.AppendUint32(body, size)
			}
		}
		for _, size := range sizes {
			body = append(body, make([]byte, size)...)
		}
		ends = append(ends, len(body))
	}
	data := binary.LittleEndian.AppendUint32(nil, uint32(len(samples)))
	for _, end := range ends {
		data = binary.LittleEndian.AppendUint32(data, uint32(chunk.Start(len(samples))+int64(end)))
	}
	return append(data, body...)
}

func file(data []byte) chunk.File {
	return chunk.File{R: bytes.NewReader(data), Size: int64(len(data)), Name: "x", Op: "read chunk"}
}

// Samples of random sizes come back. Some tables of offsets are longer than one read.
func TestSizesComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, count := range []int{0, 1, 2, 100, 1000, 270_000} {
		fixed := []int64{0, 3, 0}
		var want [][]uint32
		for range count {
			want = append(want, []uint32{uint32(rng.IntN(3)), 3, 0})
		}
		data := pack(fixed, want)
		offsets, err := file(data).Offsets()
		if err != nil || len(offsets) != count+1 || chunk.Room(offsets, fixed) != count {
			t.Fatalf("%d samples: %d offsets, room for %d: %v", count, len(offsets), chunk.Room(offsets, fixed), err)
		}
		var got [][]uint32
		next := chunk.Start(count)
		err = file(data).Samples(offsets, fixed, func(at int64, sizes []uint32) error {
			if at != next+8 {
				t.Fatalf("sample %d is at %d, expected %d", len(got), at, next+8)
			}
			next = at + int64(sizes[0]+sizes[1]+sizes[2])
			got = append(got, slices.Clone(sizes))
			return nil
		})
		if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%d samples: the sizes differ: %v", count, err)
		}
	}
}

func TestRoomIsBoundedByTheFile(t *testing.T) {
	offsets := []uint32{100, 110, 120}
	for _, c := range []struct {
		fixed []int64
		want  int
	}{
		{[]int64{10}, 2}, {[]int64{11}, 0}, {[]int64{0, 6}, 2}, {[]int64{0, 7}, 0}, {[]int64{1 << 32, 1 << 32}, 0}, {nil, 2},
	} {
		if got := chunk.Room(offsets, c.fixed); got != c.want {
			t.Errorf("%v: room for %d, expected %d", c.fixed, got, c.want)
		}
	}
}

// A file that is shorter than its size, and an error of the caller, come back.
func TestErrorsComeBack(t *testing.T) {
	data := pack([]int64{0}, [][]uint32{{5}, {6}})
	f := file(data)
	f.Size += 10
	f.R = bytes.NewReader(data[:len(data)-8])
	offsets, err := f.Offsets()
	if err != nil {
		t.Fatal(err)
	}
	err = f.Samples(offsets, []int64{0}, func(int64, []uint32) error { return nil })
	if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "read 11 bytes at offset 16, expected 19") {
		t.Errorf("%v", err)
	}
	if err := file(data).Samples(offsets, []int64{0},
		func(int64, []uint32) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Errorf("%v", err)
	}
	if err := file(data).Samples(offsets, []int64{-1}, nil); !errs.Is(err, errs.Corrupt) {
		t.Errorf("%v", err)
	}
}
