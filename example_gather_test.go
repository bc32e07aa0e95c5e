// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio"
)

// Pieces of memory become one durable file, and segments of the file are read back into memory. Here the device is
// host memory.
func ExampleSystem_Gather() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()

	path := filepath.Join(dir, "state.bin")
	written, err := sys.WritePieces(ctx, path, []nebulaio.Piece{{Bytes: []byte("head")}, {Bytes: []byte("a1b2c3d4")}},
		nebulaio.WriteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(written.Bytes, "bytes in", written.Pieces, "pieces")

	memory, err := sys.Alloc(ctx, "host", 6)
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Free()
	read, err := sys.Gather(ctx, []string{path}, []nebulaio.GatherSegment{
		{Offset: 2, Size: 2, Ptr: memory.Ptr() + 4, Label: "end of the head"},
		{Offset: 4, Size: 8, Width: 1, Stride: 2, Ptr: memory.Ptr(), Label: "letters"},
	}, nebulaio.GatherOptions{Device: "host", Verify: true})
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 6)
	if err := memory.Read(got, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d bytes of %d segments\n", got, read.Bytes, read.Segments)
	// Output:
	// 12 bytes in 2 pieces
	// abcdad: 6 bytes of 2 segments
}
