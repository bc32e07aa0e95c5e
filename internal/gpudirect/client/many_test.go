// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
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
