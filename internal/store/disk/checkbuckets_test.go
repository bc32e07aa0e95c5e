// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/test/effort"
)

// A bucket whose record cannot be read is rebuilt with its objects, and the old record can be put back.
func TestDamagedBucketIsRebuilt(t *testing.T) {
	effort.SingleThreaded(t)
	for name, c := range map[string]struct {
		spoil func(v []byte) []byte
		kept  bool // the settings are kept too
	}{
		"cut":         {func(v []byte) []byte { return v[:3] }, false},
		"without one": {func([]byte) []byte { return nil }, false},
		"flipped":     {func(v []byte) []byte { v[1] |= 0x80; return v }, false},
		"too long":    {func(v []byte) []byte { return append(v, 7) }, false},
		"version":     {func(v []byte) []byte { v[0] = 155; return v }, true},
		"no version":  {func(v []byte) []byte { v[0] = 0; return v }, true},
	} {
		t.Run(name, func(t *testing.T) {
			fs, s := rich(t)
			must(t, s.files.Flush())
			s.remover.wait()
			must(t, s.UpdateBucket(t.Context(), "b", func(b *object.Bucket) error {
				b.Settings = map[string][]byte{"policy": []byte("mine")}
				return nil
			}))
			old, err := metadb.Get(s.db, record.BucketKey("b"))
			must(t, err)
			closed(t, s)
			withMeta(t, fs, func(db *pebble.DB) {
				must(t, db.Set(record.BucketKey("b"), c.spoil(bytes.Clone(old)),
					pebble.Sync))
			})
			records, on := dump(t, fs), files(t, fs)
			o := Options{Dir: "store", FS: fs}
			if _, err := Open(t.Context(), o); err == nil {
				t.Fatal("a store with a damaged bucket opens")
			}
			report, err := Check(t.Context(), o, check.Options{Repair: true})
			must(t, err)
			if report.Found != 1 || report.Repaired != 1 || report.Problems[0].What != `bucket "b"` {
				t.Fatalf("%+v", report.Problems)
			}
			wantAllThere(t, fs, records, on)
			s = openMem(t, fs)
			b, err := s.Bucket(t.Context(), "b")
			must(t, err)
			if kept := string(b.Settings["policy"]) == "mine"; kept != c.kept || !kept && b.Owner != "" {
				t.Errorf("the bucket is %+v", b)
			}
			if got := readAll(t, s, object.Ref{Bucket: "b", Key: "file"}); !bytes.Equal(got, content1(100<<10, 2)) {
				t.Error("an object has changed")
			}
			closed(t, s)
			wantNoProblem(t, o)
		})
	}
}

// Two damaged buckets of which nothing tells the number: their objects get buckets of their own, and none is lost.
func TestTwoDamagedBucketsKeepTheirObjects(t *testing.T) {
	fs, s := rich(t)
	must(t, s.files.Flush())
	s.remover.wait()
	ids := []uint64{s.buckets["b"].id, s.buckets["v"].id}
	closed(t, s)
	withMeta(t, fs, func(db *pebble.DB) {
		for _, name := range []string{"b", "v"} {
			must(t, db.Set(record.BucketKey(name), []byte{}, pebble.Sync))
		}
	})
	records, on := dump(t, fs), files(t, fs)
	o := Options{Dir: "store", FS: fs}
	report, err := Check(t.Context(), o, check.Options{Repair: true})
	must(t, err)
	if report.Repaired != report.Found || report.Found != 4 {
		t.Errorf("%+v", report.Problems)
	}
	wantAllThere(t, fs, records, on)
	s = openMem(t, fs)
	if got := readAll(t, s, object.Ref{Bucket: s.bucketName(ids[0]), Key: "inline"}); !bytes.Equal(got, content1(100, 1)) {
		t.Error("an object has changed")
	}
	if b, err := s.Bucket(t.Context(), s.bucketName(ids[1])); err != nil || b.Versioning != object.VersioningEnabled {
		t.Errorf("%+v, %v", b, err)
	}
	closed(t, s)
	wantNoProblem(t, o)
}

func wantNoProblem(t *testing.T, o Options) {
	t.Helper()
	if r, err := Check(t.Context(), o, check.Options{Content: true}); err != nil || r.Found != 0 {
		t.Errorf("%+v, %v", r.Problems, err)
	}
}

// Damaged records about the store itself are put right from FORMAT and EPOCH, and never where the metadata may be
// another's.
func TestIdentityIsPutRight(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	other := layout.NewUUID()
	for name, c := range map[string]struct {
		key   string
		spoil func(v []byte) []byte
		stays bool
	}{
		"uuid cut":       {"uuid", func(v []byte) []byte { return v[:20] }, false},
		"uuid too long":  {"uuid", func(v []byte) []byte { return append(v, 'x') }, false},
		"uuid gone":      {"uuid", func([]byte) []byte { return nil }, false},
		"uuid flipped":   {"uuid", func(v []byte) []byte { v[3] = v[3]&^1 | '1'&^v[3]&1; return v }, false},
		"other uuid":     {"uuid", func([]byte) []byte { return []byte(other) }, true},
		"epoch cut":      {"epoch", func(v []byte) []byte { return v[:3] }, false},
		"epoch gone":     {"epoch", func([]byte) []byte { return nil }, false},
		"epoch too low":  {"epoch", func([]byte) []byte { return make([]byte, 8) }, false},
		"closed gone":    {"closed", func([]byte) []byte { return nil }, false},
		"closed cut":     {"closed", func(v []byte) []byte { return v[:1] }, false},
		"closed another": {"closed", func([]byte) []byte { return binary.BigEndian.AppendUint64(nil, 4711) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			fs, s := rich(t)
			must(t, s.files.Flush())
			s.remover.wait()
			closed(t, s)
			all := keep(t, fs)
			withMeta(t, fs, func(db *pebble.DB) {
				v, err := metadb.Get(db, record.MetaKey(c.key))
				must(t, err)
				if v = c.spoil(v); v == nil {
					must(t, db.Delete(record.MetaKey(c.key), pebble.Sync))
					return
				}
				must(t, db.Set(record.MetaKey(c.key), v, pebble.Sync))
			})
			records, on := dump(t, fs), files(t, fs)
			o := Options{Dir: "store", FS: fs}
			if _, err := Open(t.Context(), o); err == nil {
				t.Fatal("the store opens")
			}
			report, err := Check(t.Context(), o, check.Options{Repair: true})
			if c.stays {
				if err == nil || !maps.Equal(records, dump(t, fs)) {
					t.Errorf("metadata of another store was taken over: %+v, %v", report.Problems, err)
				}
				return
			}
			must(t, err)
			if report.Found != 1 || report.Repaired != 1 || !slices.ContainsFunc(report.Problems, func(p check.Problem) bool {
				return strings.Contains(p.What, "of the metadata")
			}) {
				t.Errorf("%+v", report.Problems)
			}
			wantAllThere(t, fs, records, on)
			wantReadable(t, fs, all, dump(t, fs), files(t, fs))
			wantNoProblem(t, o)
		})
	}
}
