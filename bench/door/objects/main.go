// SPDX-License-Identifier: Apache-2.0

// Command objects measures reads of objects into device memory from Go. The first measurement is the time to read one
// small object, alternately through the door (the local GPUDirect socket) and over HTTP. The second measurement is
// the rate at which one call reads a batch of objects.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio"
)

func main() {
	endpoint := flag.String("endpoint", "", "endpoint of the server")
	device := flag.String("device", "auto", "device that receives the bytes")
	bucket := flag.String("bucket", "bench", "an existing bucket")
	n := flag.Int("n", 3000, "number of reads of a small object, through the door and over HTTP each; 0 skips them")
	size := flag.Int("size", 4096, "size in bytes of the small object")
	prefix := flag.String("prefix", "", "prefix of the objects to read in one call; empty skips the batch")
	flag.Parse()
	debug.SetGCPercent(400) // as the command line and the shared library do
	out := map[string]map[string]float64{"p50_seconds": {}, "p99_seconds": {}, "batch_seconds": {}}
	if err := run(*endpoint, *device, *bucket, *prefix, *n, *size, out); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		os.Exit(1)
	}
}

func run(endpoint, device, bucket, prefix string, n, size int, out map[string]map[string]float64) error {
	sys, err := nebulaio.NewSystem(nebulaio.Options{})
	if err != nil {
		return err
	}
	defer sys.Close()
	clients := map[string]*nebulaio.Client{}
	for way, door := range map[string]string{"door": "require", "http": "off"} {
		c, err := sys.NewClient(nebulaio.ClientOptions{Endpoint: endpoint, Device: device, Door: door})
		if err != nil {
			return err
		}
		defer c.Close()
		clients[way] = c
	}
	ctx := context.Background()
	if n > 0 {
		if err := small(ctx, sys, clients, device, bucket, n, size, out); err != nil {
			return err
		}
	}
	if prefix != "" {
		return batch(ctx, sys, clients["door"], device, bucket, prefix, out)
	}
	return nil
}

// read reads one object whole.
func read(ctx context.Context, c *nebulaio.Client, r nebulaio.ObjectRead) error {
	m, err := c.StartRead(ctx, r)
	if err != nil {
		return err
	}
	return m.Wait()
}

func small(ctx context.Context, sys *nebulaio.System, clients map[string]*nebulaio.Client, device, bucket string, n,
	size int, out map[string]map[string]float64) error {
	mem, err := sys.Alloc(ctx, device, int64(size))
	if err != nil {
		return err
	}
	defer mem.Free()
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i*7 + i>>8)
	}
	if err := mem.Write(want, 0); err != nil {
		return err
	}
	put, err := clients["http"].StartWrite(ctx, nebulaio.ObjectWrite{Bucket: bucket, Key: "small", Src: mem.Ptr(),
		Size: int64(size), Device: device})
	if err != nil {
		return err
	}
	if err := put.Wait(); err != nil {
		return err
	}
	took := map[string][]time.Duration{}
	const block = 100 // of one way, then of the other: each is measured awake
	for i := -block; i < n; i += block {
		for _, way := range []string{"door", "http"} {
			for range block {
				start := time.Now()
				if err := read(ctx, clients[way], nebulaio.ObjectRead{Bucket: bucket, Key: "small", Size: -1, Dst: mem.Ptr(),
					DstSize: int64(size), Device: device}); err != nil {
					return err
				}
				if d := time.Since(start); i >= 0 { // the first ones warm up
					took[way] = append(took[way], d)
				}
			}
		}
	}
	got := make([]byte, size)
	if err := mem.Read(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the bytes on %s are not those of the object", device)
	}
	for way, ds := range took {
		slices.Sort(ds)
		out["p50_seconds"]["nebulaio "+way] = ds[len(ds)/2].Seconds()
		out["p99_seconds"]["nebulaio "+way] = ds[len(ds)*99/100].Seconds()
	}
	return nil
}

// batch reads all objects under a prefix in one call, a few times, and returns the best time.
func batch(ctx context.Context, sys *nebulaio.System, c *nebulaio.Client, device, bucket, prefix string,
	out map[string]map[string]float64) error {
	var reads []nebulaio.ObjectRead
	var total int64
	for after, more := "", true; more; {
		page, err := c.List(ctx, nebulaio.ObjectList{Bucket: bucket, Prefix: prefix, After: after})
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			reads = append(reads, nebulaio.ObjectRead{Bucket: bucket, Key: o.Key, Size: -1, DstSize: o.Size, Device: device})
			total += o.Size
		}
		after, more = page.Next, page.Truncated
	}
	mem, err := sys.Alloc(ctx, device, total)
	if err != nil {
		return err
	}
	defer mem.Free()
	at := mem.Ptr()
	for i := range reads {
		reads[i].Dst = at
		at += nebulaio.Ptr(reads[i].DstSize)
	}
	best := time.Duration(1<<63 - 1)
	for range 4 { // the first one pins memory
		start := time.Now()
		m, err := c.StartReadMany(ctx, reads)
		if err != nil {
			return err
		}
		if err := m.Wait(); err != nil {
			return err
		}
		best = min(best, time.Since(start))
	}
	out["batch_seconds"]["nebulaio door"] = best.Seconds()
	return nil
}
