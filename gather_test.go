// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
)

// pinned returns memory of n bytes with its address, which stays the same until the test ends.
func pinned(t *testing.T, b []byte) nebulaio.Ptr {
	t.Helper()
	if len(b) == 0 {
		return 0
	}
	var pin runtime.Pinner
	pin.Pin(&b[0])
	t.Cleanup(pin.Unpin)
	return nebulaio.Ptr(uintptr(unsafe.Pointer(&b[0])))
}

// randomBytes returns n bytes that the seed decides.
func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func TestPiecesAreOneFile(t *testing.T) {
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff, WriteBlockSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	head, body := randomBytes(1, 5000), randomBytes(2, 3<<20)
	path := filepath.Join(t.TempDir(), "a.bin")
	pieces := []nebulaio.Piece{{Bytes: head}, {Device: "host"}, {Device: "host", Ptr: pinned(t, body), Size: int64(len(body))}}
	want := append(bytes.Clone(head), body...)
	for _, plain := range []bool{false, true} {
		r, err := sys.WritePieces(t.Context(), path, pieces, nebulaio.WriteOptions{NoChecksums: plain})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the file has %d bytes, expected %d: %v", len(got), len(want), err)
		}
		if sum := fmt.Sprintf("%016x", checksum.Of(want)); r.CRC64NVME != sum || r.Pieces != 3 || r.Via != "file" {
			t.Errorf("crc64nvme %s, expected %s; %d pieces via %q", r.CRC64NVME, sum, r.Pieces, r.Via)
		}
		if _, err := checksum.Read(path, int64(len(want))); (err == nil) == plain {
			t.Errorf("without checksums %v: %v", plain, err)
		}
	}
}
