// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// manyReads puts n objects of all sizes into the store and one buffer for all.
func (r *rig) manyReads(n int, id string) (reads []Read, want []byte, mem *memory) {
	r.t.Helper()
	all := []int{0, 1, 4096, 16 << 10, 16<<10 + 1, 70000, 1<<20 + 3}
	for i := range n {
		data := content(uint64(i+7), all[i%len(all)])
		key := fmt.Sprintf("many/%04d", i)
		r.put(key, data)
		reads = append(reads, Read{Bucket: "b", Key: key, Size: -1, Device: id})
		want = append(want, data...)
	}
	mem = r.alloc(id, len(want))
	at := 0
	for i := range reads {
		size := all[i%len(all)]
		reads[i].Dst, reads[i].DstSize = mem.ptr()+device.Ptr(at), int64(size)
		at += size
	}
	return reads, want, mem
}

func TestReadsManyInOneJob(t *testing.T) {
	for _, id := range []string{"host", "cuda:0"} {
		t.Run(id, func(t *testing.T) {
			r := newRig(t, id != "host")
			c := r.client()
			reads, want, mem := r.manyReads(2*windowSize+10, id)
			m, err := c.StartReadMany(t.Context(), reads)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Wait(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(mem.get(len(want)), want) {
				t.Error("other bytes came")
			}
			rep := m.Report()
			if rep.Bytes != int64(len(want)) || len(rep.Objects) != len(reads) || rep.Verify == nil || rep.Via != ViaDoor ||
				rep.Size != int64(len(want)) {
				t.Errorf("report: %d of %d bytes, %d objects, %s", rep.Bytes, len(want), len(rep.Objects), rep.Via)
			}
			var routes int64
			for _, x := range rep.Routes {
				routes += x.Bytes
			}
			for i, o := range rep.Objects {
				if o.Bytes != reads[i].DstSize || o.Error != "" || o.Inline != (o.Size <= 16<<10) {
					t.Fatalf("object %d: %+v", i, o)
				}
			}
			if done, total := m.Progress(); done != total || total != int64(len(want)) || routes != total {
				t.Errorf("%d of %d bytes, %d by routes", done, total, routes)
			}
			r.trace()
		})
	}
}

func TestManyEndsWithTheOneThatFails(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	all, _, _ := r.manyReads(2*windowSize+1, "host")
	for _, bad := range []int{0, windowSize - 1, windowSize, 2 * windowSize} {
		reads := append([]Read(nil), all...)
		reads[bad].Key = "missing"
		m, err := c.StartReadMany(t.Context(), reads)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), "s3://b/missing") {
			t.Errorf("%d: %v", bad, err)
		}
		if o := m.Report().Objects[bad]; !strings.Contains(o.Error, "s3://b/missing") {
			t.Errorf("%d: %+v", bad, o)
		}
	}
	r.trace()
	if _, err := c.StartReadMany(t.Context(), nil); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
}

// TestWindowsOfABatch: every read is in one window, and unlike reads never share one. The first windows are small if
// their copies to a GPU overlap with later windows, and only then.
func TestWindowsOfABatch(t *testing.T) {
	r := newRig(t, true)
	c := r.client()
	for _, x := range []struct {
		id    string
		n     int
		sizes []int
	}{
		{"host", 8, []int{8}},
		{"host", 200, []int{32, 32, 32, 32, 22, 32, 18}},
		{"cuda:0", 8, []int{8}},
		{"cuda:0", 64, []int{32, 32}},
		{"cuda:0", 65, []int{4, 4, 4, 4, 16, 16, 16, 1}},
		{"cuda:0", 200, []int{4, 4, 4, 4, 16, 16, 16, 16, 32, 32, 6, 32, 18}},
	} {
		reads := make([]Read, x.n)
		for i := range reads {
			reads[i] = Read{Bucket: "b", Key: fmt.Sprint(i), Device: x.id, NoVerify: i >= 150}
		}
		windows, err := windowsOf(t.Context(), c, reads)
		if err != nil {
			t.Fatal(err)
		}
		at, sizes := 0, []int(nil)
		for i, w := range windows {
			sizes = append(sizes, len(w.reads))
			if w.first != at {
				t.Fatalf("%d reads to %s: window %d begins at %d, expected %d", x.n, x.id, i, w.first, at)
			}
			for k := range w.reads {
				if w.reads[k].Key != reads[at+k].Key || w.reads[k].NoVerify != w.reads[0].NoVerify {
					t.Errorf("%d reads to %s: read %d of window %d is %+v", x.n, x.id, k, i, w.reads[k])
				}
			}
			at += len(w.reads)
		}
		if at != x.n || !slices.Equal(sizes, x.sizes) {
			t.Errorf("%d reads to %s are in windows of %v, expected %v", x.n, x.id, sizes, x.sizes)
		}
	}
}

// TestHandlesAreClosedTogether: handles that are closed one after the other go to the server in one message.
func TestHandlesAreClosedTogether(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	r.put("big", content(5, 100000))
	items := make([]wire.OpenItem, windowSize)
	for i := range items {
		items[i] = wire.OpenItem{Bucket: "b", Key: "big", N: -1}
	}
	to, err := c.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, least := to.door, uint32(windowSize)
	d.post.gather.Store(int64(200 * time.Millisecond)) // a busy machine may delay the loop that closes
	for range 3 {                                      // once a second, all that waits is sent
		all, fails, err := d.open(t.Context(), want{op: "read", bits: wire.WantBuffered}, items)
		if err = errors.Join(append(fails, err)...); err != nil {
			t.Fatal(err)
		}
		on := all[0].h.c
		before := on.requests()
		for _, o := range all {
			o.drop()
			for began := time.Now(); time.Since(began) < 10*time.Microsecond; {
				runtime.Gosched() // the goroutine that sends could run here
			}
		}
		for len(d.post.waiting(on)) > 0 || on.requests() == before {
			runtime.Gosched()
		}
		least = min(least, on.requests()-before)
	}
	if least > 1 {
		t.Errorf("%d handles were closed by %d messages or more, expected 1", windowSize, least)
	}
	r.trace()
}

// requests returns the number of requests that the connection has carried.
func (c *conn) requests() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// waiting returns the closed handles that wait to be sent over a connection.
func (p *post) waiting(c *conn) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handles[c]
}

// TestWindowsFitTheDescriptors: the windows of all batches use at most half of a usual limit of open files, even if all
// objects are large and have a third descriptor.
func TestWindowsFitTheDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint64{1024, 1200, 2048, 1 << 20} {
		if limit > old.Max {
			continue
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		if n := descriptorsEach * windowSize * windowsAtOnce(); uint64(n) > limit/2 || windowsAtOnce() <= windowsOpening {
			t.Errorf("with a limit of %d, %d windows use %d descriptors", limit, windowsAtOnce(), n)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	r := newRig(t, true)
	c := r.client()
	data := content(5, 2<<20+1)
	r.put("big", data)
	small := content(6, 4096)
	r.put("small", small)
	together(12, func(i int) {
		for k := range 5 {
			id := fmt.Sprintf("cuda:%d", i%2)
			if i%3 == 0 {
				if got, _, err := r.read(c, Read{Key: "big", Size: -1, Device: id}, len(data)); err != nil ||
					!bytes.Equal(got, data) {
					t.Errorf("%d: %v", i, err)
				}
				continue
			}
			if got, _, err := r.read(c, Read{Key: "small", Size: -1, Device: id}, 4096); err != nil || !bytes.Equal(got, small) {
				t.Errorf("%d: %v", i, err)
			}
			if i%3 == 1 {
				if _, err := r.write(c, Write{Key: fmt.Sprintf("w%d-%d", i, k), Device: id}, data[:100000+i]); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		}
	})
	r.trace()
}
