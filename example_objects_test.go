// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio"
)

// Create makes a file of device memory, and Open reads it back. With "s3://bucket/key" in place of the path the same
// program makes and reads an object.
func ExampleCreate() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	url := filepath.Join(dir, "made")

	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	mem, err := sys.Alloc(ctx, "host", 10)
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Free()
	if err := mem.Write([]byte("ten bytes."), 0); err != nil {
		log.Fatal(err)
	}

	w, err := nebulaio.Create(ctx, url, mem.Size(), nebulaio.CreateOptions{System: sys})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing after Commit
	if err := w.WriteFrom(ctx, mem.Ptr(), mem.Size(), 0, nebulaio.PieceOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := w.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(url)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", text)
	// Output: ten bytes.
}

// A part of a file, or of an object, is read into device memory.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "text")
	if err := os.WriteFile(path, []byte("ten bytes."), 0o600); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	mem, err := sys.Alloc(ctx, "host", 5)
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Free()

	object, err := nebulaio.Open(ctx, path, nebulaio.OpenOptions{System: sys})
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	n, err := object.Read(ctx, mem.Ptr(), mem.Size(), 4)
	if err != nil {
		log.Fatal(err)
	}
	text := make([]byte, n)
	if err := mem.Read(text, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d bytes: %s\n", n, object.Size(), text)
	// Output: 5 of 10 bytes: bytes
}

// A client reads objects of one server. Its door is used if the server is on this host, else HTTP.
func ExampleSystem_NewClient() {
	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	c, err := sys.NewClient(nebulaio.ClientOptions{Endpoint: "http://localhost:9000", AccessKey: "name",
		SecretKey: "secret"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	info, err := c.Stat(ctx, "models", "weights.bin", "")
	if err != nil {
		log.Fatal(err)
	}
	mem, err := sys.Alloc(ctx, "auto", info.Size)
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Free()
	move, err := c.StartRead(ctx, nebulaio.ObjectRead{Bucket: info.Bucket, Key: info.Key, Size: -1, Dst: mem.Ptr(),
		DstSize: mem.Size(), Device: mem.Device().ID})
	if err != nil {
		log.Fatal(err)
	}
	if err := move.Wait(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(move.Report().Via, move.Report().Routes)
}

// An error has a kind, which a sentinel stands for, and says what to do. Go's own errors match too.
func ExampleError() {
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	_, err = sys.Load(context.Background(), "no-such-model.safetensors", nebulaio.LoadOptions{})

	fmt.Println(errors.Is(err, nebulaio.ErrNotFound), errors.Is(err, fs.ErrNotExist))
	var e *nebulaio.Error
	if errors.As(err, &e) {
		fmt.Println("kind:", e.Kind)
		fmt.Println("operation:", e.Op)
		fmt.Println("subject:", e.Name)
		fmt.Println("fix:", e.Fix)
	}
	// Output:
	// true true
	// kind: not found
	// operation: resolve model
	// subject: no-such-model.safetensors
	// fix: correct the path: a .safetensors file, an index or a model directory of this machine
}
