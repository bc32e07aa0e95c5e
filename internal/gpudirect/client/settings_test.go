// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// TestGreetingBoundsTheEngine: a server that asks for less than the engine takes
// by itself is heard, what the caller chose is kept, and a generous one changes nothing.
func TestGreetingBoundsTheEngine(t *testing.T) {
	for _, c := range []struct {
		name         string
		own          transfer.Options
		pool         int64
		depth, wants int
	}{
		{"less than usual", transfer.Options{}, 32 << 20, 3, 3},
		{"more than usual", transfer.Options{}, 1 << 30, 64, 16},
		{"chosen by the caller", transfer.Options{PoolSize: 64 << 20, QueueDepth: 5}, 8 << 20, 3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true, func(r *rig) {
				r.settings.BufferPoolSize, r.settings.QueueDepth = c.pool, c.depth
			})
			e, err := transfer.New(c.own)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			cl := r.client(func(o *Options) { o.Engine = e })
			defer cl.Close()
			r.put("o", content(1, 3<<20))
			_, rep, err := r.read(cl, Read{Key: "o", Size: -1, Device: "cuda:0", Route: report.RouteDirect}, 3<<20)
			if err != nil {
				t.Fatal(err)
			}
			if rep.Engine.QueueDepth != c.wants || c.own.PoolSize == 0 && rep.Engine.StagingSize > c.pool {
				t.Errorf("depth %d, staging %d; expected %d and at most %d", rep.Engine.QueueDepth, rep.Engine.StagingSize, c.wants,
					c.pool)
			}
		})
	}
}

// TestNothingRunsBesideTheCaller: where the server's settings say so, a move that was started has ended.
func TestNothingRunsBesideTheCaller(t *testing.T) {
	r := newRig(t, false, func(r *rig) { r.settings.Async = false })
	c := r.client()
	data := content(2, 5<<20)
	r.put("o", data)
	if _, _, err := r.read(c, Read{Key: "o", Size: -1, Device: "host"}, len(data)); err != nil {
		t.Fatal(err)
	}
	at := device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	m, err := c.StartRead(t.Context(), Read{Bucket: "b", Key: "o", Size: -1, Dst: at, DstSize: int64(len(data)),
		Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.StartWrite(t.Context(), Write{Bucket: "b", Key: "p", Src: at, Size: int64(len(data)), Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Move{m, w} {
		select {
		case <-m.Done():
		default:
			t.Errorf("a %s runs beside the caller", m.report.Op)
		}
	}
}
