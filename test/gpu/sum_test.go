// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// TestTheCardSumsAsTheCPUDoes compares checksums of ranges of any length at any address, split into tiles in any way.
// One range is as long as the engine's largest.
func TestTheCardSumsAsTheCPUDoes(t *testing.T) {
	const room = 4 << 20
	d := card(t)
	q := devicetest.Queue(t, d)
	began := time.Now()
	sum, err := q.(device.Summer).NewSum(2000)
	if err != nil {
		t.Fatal(err)
	}
	defer sum.Close()
	t.Logf("ready to sum after %v", time.Since(began))
	mark := devicetest.Mark(t, q)
	r, err := hostmem.Map(room)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Unmap()
	mem := r.Bytes()[:room]
	rng := rand.New(rand.NewPCG(6, 4))
	for i := range mem {
		mem[i] = byte(rng.Uint32())
	}
	b, err := d.Alloc(room + 64)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	check := func(at, n, first, size int64) {
		t.Helper()
		p := b.Ptr() + device.Ptr(at)
		if err := errors.Join(q.CopyIn(p, mem[:n]), mark.Record(), sum.Start(mark, p, n, first, size),
			sum.Wait()); err != nil {
			t.Fatal(err)
		}
		tiles, left := sum.Tiles(), mem[:n]
		for i, k := 0, first; len(left) > 0; i, k = i+1, size {
			k = min(k, int64(len(left)))
			if want := checksum.Of(left[:k]); tiles[i] != want {
				t.Fatalf("%d bytes at +%d in tiles of %d and %d: tile %d is %016x, expected %016x", n, at, first, size, i, tiles[i],
					want)
			}
			left = left[k:]
		}
	}
	for n := int64(1); n < 700; n++ {
		check(n%16, n, device.SumTile, device.SumTile)
	}
	for at := range int64(17) {
		for _, n := range []int64{device.SumTile, device.SumTile - 1, device.SumTile + 1, device.SumTile - 16} {
			check(at, n, device.SumTile, device.SumTile)
		}
	}
	for range 1000 {
		size := int64(4096) << rng.IntN(5)
		check(rng.Int64N(64), 1+rng.Int64N(room), 1+rng.Int64N(size), size)
	}
	check(0, room, device.SumTile, device.SumTile)
}

// TestHowFastTheCardSums prints the time of a checksum of one chunk, and the rate of several at once. It asserts
// nothing.
func TestHowFastTheCardSums(t *testing.T) {
	const chunk, rounds = 4 << 20, 200
	d := card(t)
	q := devicetest.Queue(t, d)
	b, err := d.Alloc(8 * chunk)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	mark := devicetest.Mark(t, q)
	var sums []device.Sum
	for range 8 {
		s, err := q.(device.Summer).NewSum(chunk / device.SumTile)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sums = append(sums, s)
	}
	begin := func(i int) error {
		return sums[i].Start(mark, b.Ptr()+device.Ptr(i*chunk), chunk, device.SumTile, device.SumTile)
	}
	if err := errors.Join(begin(0), sums[0].Wait()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range rounds {
		if err := errors.Join(begin(0), sums[0].Wait()); err != nil {
			t.Fatal(err)
		}
	}
	one := time.Since(start) / rounds
	start = time.Now()
	for range rounds {
		for i := range sums {
			if err := errors.Join(sums[i].Wait(), begin(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range sums {
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("4 MiB take %v from start to end seen (%.0f GB/s); eight at once come to %.0f GB/s",
		one, chunk/one.Seconds()/1e9, rounds*8*chunk/time.Since(start).Seconds()/1e9)
}
