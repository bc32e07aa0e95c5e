// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// FuzzOpen opens a folder of three files with any names and any content. Whatever they are, Open returns our own kind
// of error or samples that lie in their files, and needs no more memory than the files can explain.
func FuzzOpen(f *testing.F) {
	tar, index, dali := archive(f, "d/a.tar", "1", "2")
	shards := mdsShards(f, "d/")
	bin, idx := tokens(f, "aabb", "ccddee")
	row := format.Tensor{Name: "x", DType: format.U8, Shape: []int64{4, 2}}
	none := format.Tensor{Name: "x", DType: format.U8, Shape: []int64{1 << 27, 0}}
	add := func(source, a string, ac []byte, b string, bc []byte, c string, cc []byte) {
		f.Add(source, a, ac, b, bc, c, cc, uint8(0), 0, int64(0), true, true)
		f.Add(source, a, ac, b, bc, c, cc, uint8(3), 2, int64(3), false, false)
	}
	add("d", "d/a.tar", tar, "d/a.tar.nbx", index, "d/a.tar.crc64nvme", sums(tar))
	add("d", "d/a.tar", tar, "d/a.idx", dali, "d/b.tar", tar[:1500])
	add("d", "d/index.json", shards["d/index.json"], "d/shard.00000.mds", shards["d/shard.00000.mds"], "d/x", nil)
	add("d/m", "d/m.bin", bin, "d/m.idx", idx, "d/README", nil)
	add("d", "d/a.tfrecord", records(f, "one", "two"), "d/b.tfrecord", records(f), "d/c.tfrecord", records(f, "x")[:9])
	add("*.npy", "a.npy", array(f, "abc", "def"), "b.npy", array(f, "x"), "c.npy", nil)
	add("x.safetensors", "x.safetensors", tensors(f, row), "y.safetensors", tensors(f, none), "z", nil)
	add("y.safetensors", "x.safetensors", tensors(f, row), "y.safetensors", tensors(f, none), "z", nil)
	add("{a,b}-{0..9}*", "a-1.txt", nil, "b-2.jpg", nil, "b-2.cls", []byte("1"))
	long := regexp.MustCompile(`\.\.[0-9]{4}`)
	f.Fuzz(func(t *testing.T, source, an string, a []byte, bn string, b []byte, cn string, c []byte, as uint8, block int,
		most int64, verify, skip bool) {
		if len(source) > 100 || len(an)+len(bn)+len(cn) > 300 || strings.Count(source, "{") > 2 || long.MatchString(source) {
			return // a million names take seconds
		}
		m := memory{an: a, bn: b, cn: c}
		all := open.Formats()
		o := open.Options{Format: all[int(as)%len(all)], Block: block, MaxSample: most, Verify: verify, SkipBad: skip}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, err := open.Open(t.Context(), m, []string{source}, o)
		runtime.ReadMemStats(&after)
		// Names with braces stand for up to a million names; 1 MiB is the piece of a window.
		if used := after.TotalAlloc - before.TotalAlloc; used > 400<<20+1000*uint64(len(a)+len(b)+len(c)) {
			t.Fatalf("%d bytes of memory for %d bytes", used, len(a)+len(b)+len(c))
		}
		if err != nil {
			if ours := (*errs.Error)(nil); !errors.As(err, &ours) || d != nil {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if d.Set.Len() == 0 || len(d.Columns) != len(d.Set.Columns()) {
			t.Fatalf("%d samples, %d of %d columns are described", d.Set.Len(), len(d.Columns), len(d.Set.Columns()))
		}
		for n := range min(d.Set.Len(), 1000) {
			for c := range d.Set.Columns() {
				file, e, ok := d.Set.Part(n, c)
				if !ok {
					continue
				}
				name, size := d.Set.File(file)
				if content, there := m[name]; !there || size != int64(len(content)) || e.Offset < 0 || e.Size < 0 ||
					e.Offset+e.Size > size || most > 0 && e.Size > most {
					t.Fatalf("sample %d: %+v of %q with %d bytes", n, e, name, size)
				}
			}
			_, _ = d.Set.Key(n), d.Set.Name(n)
		}
		d.Set.Fingerprint()
	})
}
