// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestPagesCostWhatIsOnThem counts the steps of iterators, which do not depend on the machine.
func TestPagesCostWhatIsOnThem(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	makeBucket(t, s, object.Bucket{Name: "b", Versioning: object.VersioningEnabled})
	for i := range 3000 {
		putBytes(t, s, "b", fmt.Sprintf("one/%02d/k%05d", i%20, i), nil)
	}
	for range 500 {
		putBytes(t, s, "b", "two", nil)
	}
	var last string
	pages := 0
	for l := (object.List{Bucket: "b", Prefix: "two", Versions: true, Limit: 10}); ; pages++ {
		before := s.steps.Load()
		p, err := s.List(t.Context(), l)
		must(t, err)
		if n := s.steps.Load() - before; n > 16 {
			t.Fatalf("page %d of versions took %d steps", pages, n)
		}
		last = p.NextVersion
		if !p.Truncated {
			break
		}
		l.After, l.AfterVersion = p.Next, last
	}
	if pages != 49 {
		t.Errorf("%d pages, expected 50", pages+1)
	}
	for name, c := range map[string]struct {
		l      object.List
		steps  int64
		listed int
	}{
		"one prefix over all":    {object.List{Bucket: "b", Prefix: "o", Delimiter: "/"}, 2, 1},
		"twenty prefixes":        {object.List{Bucket: "b", Prefix: "one/", Delimiter: "/"}, 21, 20},
		"a page of keys":         {object.List{Bucket: "b", Limit: 10}, 11, 10},
		"a page further on":      {object.List{Bucket: "b", Limit: 10, After: "one/10/"}, 11, 10},
		"prefixes and versions":  {object.List{Bucket: "b", Prefix: "one/", Delimiter: "/", Versions: true}, 42, 20},
		"behind all of a prefix": {object.List{Bucket: "b", Delimiter: "/", After: "one/"}, 3, 1},
	} {
		before := s.steps.Load()
		p, err := s.List(t.Context(), c.l)
		must(t, err)
		if n := s.steps.Load() - before; n > c.steps {
			t.Errorf("%s: %d steps, expected at most %d", name, n, c.steps)
		}
		if n := len(p.Objects) + len(p.Prefixes); n != c.listed {
			t.Errorf("%s: %d listed, expected %d", name, n, c.listed)
		}
	}
	closed(t, s)
}

// TestCompletingEqualPartsTouchesNoContent counts what is done to data files.
func TestCompletingEqualPartsTouchesNoContent(t *testing.T) {
	var mu sync.Mutex
	var ops []string
	counted := &faults{}
	s := openMem(t, errorfs.Wrap(vfs.NewMem(), counted))
	makeBucket(t, s, object.Bucket{Name: "b", ETag: object.ETagCRC64})
	for name, c := range map[string]struct {
		sizes []int
		named []int
		moved bool
	}{
		"equal":                 {[]int{300 << 10, 300 << 10, 300 << 10}, []int{1, 2, 3}, false},
		"short last":            {[]int{1<<20 + 5, 1<<20 + 5, 7}, []int{1, 2, 3}, false},
		"one":                   {[]int{100}, []int{1}, false},
		"one left out":          {[]int{300 << 10, 300 << 10, 300 << 10}, []int{1, 3}, true},
		"the last one left out": {[]int{300 << 10, 300 << 10}, []int{1}, true},
		"growing":               {[]int{300 << 10, 400 << 10}, []int{1, 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := s.CreateUpload(t.Context(), "b", name, nil)
			must(t, err)
			var whole []byte
			complete := object.Complete{Bucket: "b", Key: name, Upload: id}
			parts := map[int][]byte{}
			for i, n := range c.sizes {
				parts[i+1] = content1(n, i)
				putPart(t, s, "b", name, id, i+1, parts[i+1])
			}
			for _, n := range c.named {
				complete.Parts = append(complete.Parts, object.CompletedPart{Number: n})
				whole = append(whole, parts[n]...)
			}
			must(t, s.files.Flush())
			ops = nil
			counted.set(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileRead, errorfs.OpFileReadAt:
					if len(op.Path) > 11 && (op.Path[:10] == "store/data" || op.Path[:9] == "store/tmp") {
						mu.Lock()
						ops = append(ops, fmt.Sprint(op.Kind, " ", op.Path))
						mu.Unlock()
					}
				}
				return nil
			})
			_, err = s.CompleteUpload(t.Context(), complete)
			counted.set(nil)
			must(t, err)
			mu.Lock()
			defer mu.Unlock()
			if (len(ops) > 0) != c.moved {
				t.Errorf("%v, expected some: %v", ops, c.moved)
			}
			if got := readAll(t, s, object.Ref{Bucket: "b", Key: name}); string(got) != string(whole) {
				t.Error("the content is another one")
			}
		})
	}
	closed(t, s)
}
