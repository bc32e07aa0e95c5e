// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
)

var (
	//go:embed crc64.cu
	crc64Source []byte
	//go:embed crc64.ptx
	crc64PTX string
)

// onCPU runs a block of the kernel's threads phase by phase.
const onCPU = `
u64 run(u64 block, const u8 *p, u64 n, u64 first, u64 size)
{
	static struct shared s;
	struct tile t = tile_of(block, p, n, first, size);
	for (u32 i = 0; i < THREADS; i++) first_table(&s, i);
	for (u32 i = 0; i < THREADS; i++) other_tables(&s, i);
	for (u32 i = 0; i < THREADS; i++) strip(&s, i, t);
	for (u32 half = THREADS / 2; half > 0; half /= 2)
		for (u32 i = 0; i < THREADS; i++) fold(&s, i, half);
	return finish(&s, t);
}
`

func TestTheKernelsArithmeticIsThatOfTheCPU(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("needs a C compiler: %v", err)
	}
	dir := t.TempDir()
	src, out := filepath.Join(dir, "crc64.c"), filepath.Join(dir, "crc64.so")
	must(t, os.WriteFile(src, append(bytes.Clone(crc64Source), onCPU...), 0o600))
	if text, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-fsanitize=undefined",
		"-fsanitize-undefined-trap-on-error", "-Wall", "-Wno-parentheses", "-Werror", "-o", out,
		src).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, text)
	}
	lib, err := dl.Open(out)
	must(t, err)
	run := lib.Lookup("run")
	rng := rand.New(rand.NewPCG(1, 64))
	mem := make([]byte, 3*device.SumTile)
	for i := range mem {
		mem[i] = byte(rng.Uint32())
	}
	check := func(at, n, first, size int) {
		t.Helper()
		p := mem[at : at+n]
		for i, lo := 0, 0; lo < n; i++ {
			hi := min(n, first+i*size)
			got := uint64(run.Call(i, unsafe.Pointer(&p[0]), n, first, size))
			if want := checksum.Of(p[lo:hi]); got != want {
				t.Fatalf("%d bytes at +%d, tile %d (bytes %d to %d): %016x, expected %016x", n, at, i, lo, hi, got, want)
			}
			lo = hi
		}
		if got := uint64(run.Call((n-first+size-1)/size+1, unsafe.Pointer(&p[0]), n, first, size)); got != 0 {
			t.Fatalf("a tile behind the end: %016x", got)
		}
	}
	for n := 1; n < 600; n++ {
		for at := range 16 {
			check(at, n, device.SumTile, device.SumTile)
		}
	}
	for at := range 17 {
		for _, n := range []int{device.SumTile, device.SumTile - 1, device.SumTile - 15, device.SumTile - 16} {
			check(at, n, device.SumTile, device.SumTile)
		}
	}
	for range 300 {
		at := rng.IntN(64)
		size := 4096 << rng.IntN(5)
		check(at, 1+rng.IntN(len(mem)-at), 1+rng.IntN(size), size)
	}
}

// What runs on GPUs is what was tested above.
func TestThePTXIsMadeOfTheSource(t *testing.T) {
	if sum := fmt.Sprintf("crc64.cu with the SHA-256 %x\n", sha256.Sum256(crc64Source)); !strings.Contains(crc64PTX, sum) {
		t.Errorf("crc64.ptx was not made of this %srun make kernels", sum)
	}
	for _, want := range []string{".version 6.0\n", ".target sm_50\n", ".visible .entry nebulaio_crc64(\n"} {
		if !strings.Contains(crc64PTX, want) {
			t.Errorf("the PTX lacks %q", want)
		}
	}
	for name, v := range map[string]int{"THREADS": 256, "STRIP": device.SumTile / 256} {
		if !strings.Contains(string(crc64Source), fmt.Sprintf("#define %s %d", name, v)) {
			t.Errorf("%s is not %d", name, v)
		}
	}
}
