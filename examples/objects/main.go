// SPDX-License-Identifier: Apache-2.0

// Command objects shows the Go library with objects: it writes device memory to
// an object, reads it back into device memory, and prints which way the bytes took.
//
//	go run ./examples/objects s3://my-bucket/data.bin
//
// The server and the keys come from the environment: NEBULAIO_ENDPOINT,
// NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, or those of the AWS tools.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/nebulaio/nebulaio"
)

const size = 64 << 20

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: objects s3://BUCKET/KEY")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) (err error) {
	sys, err := nebulaio.NewSystem(nebulaio.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	mem, err := sys.Alloc(ctx, "auto", size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mem.Free()) }()
	data := bytes.Repeat([]byte("straight to the GPU and back. "), size/30+1)[:size]
	if err := mem.Write(data, 0); err != nil {
		return err
	}

	options := nebulaio.OpenOptions{System: sys, Device: mem.Device().ID}
	w, err := nebulaio.Create(ctx, url, size, nebulaio.CreateOptions{System: sys, Device: mem.Device().ID})
	if err != nil {
		return err
	}
	if err := w.WriteFrom(ctx, mem.Ptr(), size, 0, nebulaio.PieceOptions{}); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := w.Commit(ctx); err != nil {
		return err
	}
	tell(w.Report())

	if err := mem.Write(make([]byte, size), 0); err != nil {
		return err
	}
	object, err := nebulaio.Open(ctx, url, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if _, err := object.Read(ctx, mem.Ptr(), size, 0); err != nil {
		return err
	}
	tell(object.Report())
	back := make([]byte, size)
	if err := mem.Read(back, 0); err != nil {
		return err
	}
	if !bytes.Equal(back, data) {
		return errors.New("other bytes came back")
	}
	fmt.Println("what came back is what was written")
	return nil
}

func tell(r nebulaio.ObjectReport) {
	fmt.Printf("%s by way of %s, %s: %.2f GB in %.3f s, %.1f GB/s, limited by: %s\n", r.Op, r.Via, r.Device.ID,
		float64(r.Bytes)/1e9, r.Seconds, r.GBps, r.Limiting)
	for _, route := range r.Routes {
		fmt.Printf("  %-10s %.2f GB\n", route.Route, float64(route.Bytes)/1e9)
	}
	for _, no := range r.Refusals {
		fmt.Printf("  %s was not taken: %s (fix: %s)\n", no.What, no.Reason, no.Fix)
	}
}
