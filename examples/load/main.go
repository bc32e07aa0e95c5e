// SPDX-License-Identifier: Apache-2.0

// Command load shows the Go library: it loads a model on the best device there
// is and prints where its tensors lie and which path the bytes took.
//
//	go run ./examples/load model.safetensors
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/nebulaio/nebulaio"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: load MODEL.safetensors|MODEL_DIR")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	sys, err := nebulaio.NewSystem(nebulaio.Options{})
	if err != nil {
		return err
	}
	defer sys.Close()
	if s := sys.Survey(); s.NoGPU != "" {
		fmt.Printf("no GPU (%s): loading into host memory\n", s.NoGPU)
	}
	m, err := sys.Load(ctx, path, nebulaio.LoadOptions{})
	if err != nil {
		return err
	}
	defer m.Free()
	for _, name := range m.Names()[:min(3, len(m.Names()))] {
		t, _ := m.Tensor(name)
		fmt.Printf("%s %s %v at 0x%x on %s\n", t.Name, t.DType, t.Shape, uint64(t.Ptr), m.Report().Device.ID)
	}
	r := m.Report()
	fmt.Printf("%d tensors, %.2f GB in %.3f s: %.1f GB/s, limited by: %s\n", r.Tensors, float64(r.Bytes)/1e9, r.Seconds,
		r.GBps, r.Limiting)
	for _, route := range r.Routes {
		fmt.Printf("  %-10s %.2f GB\n", route.Route, float64(route.Bytes)/1e9)
	}
	for _, no := range r.Refusals {
		fmt.Printf("  %s was not taken: %s (fix: %s)\n", no.What, no.Reason, no.Fix)
	}
	return nil
}
