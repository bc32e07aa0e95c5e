// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/test/effort"
)

// rich is a store with one of everything.
func rich(t *testing.T) (vfs.FS, *Store) {
	t.Helper()
	fs := vfs.NewMem()
	return fs, richIn(t, fs)
}

// richIn makes a store with one of everything.
func richIn(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s := openMem(t, fs)
	makeBucket(t, s, object.Bucket{Name: "b"})
	makeBucket(t, s, object.Bucket{Name: "v", Versioning: object.VersioningSuspended})
	putBytes(t, s, "b", "inline", content1(100, 1))
	putBytes(t, s, "b", "file", content1(100<<10, 2))
	putBytes(t, s, "b", "many sums", content1(9<<20, 3))
	putBytes(t, s, "v", "k", content1(10, 4))
	must(t, s.UpdateBucket(t.Context(), "v", func(b *object.Bucket) error {
		b.Versioning = object.VersioningEnabled
		return nil
	}))
	putBytes(t, s, "v", "k", content1(10, 5))
	_, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "v", Key: "k"}})
	must(t, err)
	_, err = s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "v", Key: "never"}})
	must(t, err)
	up, err := s.CreateUpload(t.Context(), "b", "open", nil)
	must(t, err)
	putPart(t, s, "b", "open", up, 2, content1(50<<10, 6))
	putPart(t, s, "b", "open", up, 1, content1(50<<10, 7))
	putPart(t, s, "b", "open", up, 1, content1(60<<10, 8)) // too large for its place
	done, err := s.CreateUpload(t.Context(), "b", "completed", nil)
	must(t, err)
	p := putPart(t, s, "b", "completed", done, 1, content1(50<<10, 9))
	_, err = s.CompleteUpload(t.Context(), object.Complete{Bucket: "b", Key: "completed", Upload: done,
		Parts: []object.CompletedPart{{Number: 1, ETag: p.ETag}}})
	must(t, err)
	must(t, s.PutRecord(t.Context(), "account", "me", []byte("x")))
	return s
}

func putPart(t testing.TB, s *Store, bucket, key, id string, n int, b []byte) object.PartInfo {
	t.Helper()
	p, err := s.PutPart(context.Background(), object.PutPart{Bucket: bucket, Key: key, Upload: id, Number: n,
		Size: int64(len(b)), Body: bytes.NewReader(b)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func setKey(t *testing.T, s *Store, k, v []byte) { t.Helper(); must(t, s.db.Set(k, v, pebble.Sync)) }
func delKey(t *testing.T, s *Store, k []byte)    { t.Helper(); must(t, s.db.Delete(k, pebble.Sync)) }

// first is the first key of a kind and its value.
func first(t *testing.T, s *Store, kind byte) (key, value []byte) {
	t.Helper()
	err := s.each(kind, func(k, v []byte) error {
		key, value = bytes.Clone(k), bytes.Clone(v)
		return metadb.ErrStop
	})
	if !errors.Is(err, metadb.ErrStop) {
		t.Fatalf("no key of kind %c: %v", kind, err)
	}
	return key, value
}

func current(t *testing.T, s *Store, bucket, key string) *record.Version {
	t.Helper()
	v, err := s.current(s.buckets[bucket], key)
	must(t, err)
	return v
}

func TestCheckFindsWhatIsBrokenAndRepairsWhatFollows(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	id := func(s *Store, b string) uint64 { return s.buckets[b].id }
	cases := map[string]struct {
		spoil     func(t *testing.T, fs vfs.FS, s *Store)
		invariant string
		repaired  bool
	}{
		"nothing": {func(*testing.T, vfs.FS, *Store) {}, "", false},
		"version that is junk": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.ObjectKey(id(s, "b"), "junk"), []byte{1, 2})
		}, "record", false},
		"bucket that is gone": {func(t *testing.T, _ vfs.FS, s *Store) {
			k, v := first(t, s, record.KindObject)
			k[8] = 99
			setKey(t, s, k, v)
		}, "I5", false},
		"current below noncurrent": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.ObjectKey(id(s, "v"), "k"), (&record.Version{Seq: 1}).Encode())
		}, "I1", false},
		"newest is not current": {func(t *testing.T, _ vfs.FS, s *Store) {
			delKey(t, s, record.VersionKey(id(s, "v"), "k", current(t, s, "v", "k").Seq))
		}, "I2", false},
		"null not named": {func(t *testing.T, _ vfs.FS, s *Store) {
			k,
				_ := first(t, s, record.KindNull)
			delKey(t, s, k)
		}, "I3", true},
		"null named that is not": {func(t *testing.T, _ vfs.FS,
			s *Store) {
			setKey(t, s, record.NullKey(id(s, "v"), "x"), make([]byte, 8))
		}, "I3", true},
		"content missing": {func(t *testing.T, _ vfs.FS,
			s *Store) {
			delKey(t, s, record.DataKey(current(t, s, "b", "inline").Seq))
		}, "I4", false},
		"content short": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.DataKey(current(t, s, "b", "inline").Seq), []byte("x"))
		}, "I4", false},
		"content of nobody": {func(t *testing.T, _ vfs.FS, s *Store) { setKey(t, s, record.DataKey(4711), []byte("x")) },
			"I5", true},
		"sums missing": {func(t *testing.T, _ vfs.FS, s *Store) { k, _ := first(t, s, record.KindSums); delKey(t, s, k) },
			"I4", false},
		"sums of nobody": {func(t *testing.T, _ vfs.FS, s *Store) { setKey(t, s, record.SumsKey(4711, 0), []byte{1}) }, "I5",
			true},
		"parts missing": {func(t *testing.T, _ vfs.FS, s *Store) { k, _ := first(t, s, record.KindParts); delKey(t, s, k) },
			"I4", false},
		"parts of nobody": {func(t *testing.T, _ vfs.FS,
			s *Store) {
			setKey(t, s, record.PartsKey(4711), record.EncodeParts(nil))
		}, "I5", true},
		"index missing": {func(t *testing.T, _ vfs.FS, s *Store) { k, _ := first(t, s, record.KindFile); delKey(t, s, k) },
			"I4", true},
		"index of another": {func(t *testing.T, _ vfs.FS, s *Store) {
			k, _ := first(t, s, record.KindFile)
			setKey(t, s, k, (&record.Owner{Key: "x"}).Encode())
		}, "I4", true},
		"index of nobody": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.FileKey(3000), (&record.Owner{Key: "x"}).Encode())
		}, "I5", true},
		"removal of what is had": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.GoneKey(current(t, s, "b", "file").File), []byte{1})
		}, "I6", true},
		"part without upload": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.PartKey(4711, 1), (&record.Part{}).Encode())
		}, "I5", true},
		"part out of place": {func(t *testing.T, _ vfs.FS, s *Store) {
			k, v := first(t, s, record.KindPart)
			p, _ := record.DecodePart(v, false)
			p.File = 4000
			setKey(t, s, k, p.Encode())
		}, "I4", false},
		"mark too low": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.MetaKey("sequences"),
				make([]byte, 8))
		}, "I7", true},
		"counts wrong": {func(t *testing.T, _ vfs.FS, s *Store) {
			setKey(t, s, record.CountsKey(id(s, "b")), record.Counts{Objects: 1}.Encode())
		}, "I8", true},
		"kind of nobody": {func(t *testing.T, _ vfs.FS, s *Store) { setKey(t, s, []byte("zz"), []byte("x")) }, "record",
			false},
		"record that is junk": {func(t *testing.T, _ vfs.FS,
			s *Store) {
			setKey(t, s, record.Key("account", "x"), []byte{9})
		}, "record", false},
		"file missing": {func(t *testing.T, fs vfs.FS, s *Store) { must(t, fs.Remove(fileOf(t, s, "file"))) }, "I4", false},
		"file short": {func(t *testing.T, fs vfs.FS, s *Store) { writeFile(t, fs, fileOf(t, s, "file"), "x") }, "I4",
			false},
		"file long": {func(t *testing.T, fs vfs.FS, s *Store) {
			writeFile(t, fs, fileOf(t, s, "file"), strings.Repeat("x", 200<<10))
		}, "I4", false},
		"file of nobody": {func(t *testing.T, fs vfs.FS,
			s *Store) {
			writeFile(t, fs, s.files.Path(3000), "precious")
		}, "I6", true},
		"file that is no data file": {func(t *testing.T, fs vfs.FS,
			s *Store) {
			writeFile(t, fs, "store/data/README", "precious")
		}, "I6", true},
		"file of an upload's part": {func(t *testing.T, fs vfs.FS, s *Store) {
			_, v := first(t, s, record.KindPart)
			p, _ := record.DecodePart(v, false)
			must(t, fs.Remove(s.files.Path(datafile.ID(p.File))))
		}, "I4", false},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			c := cases[name]
			fs, s := rich(t)
			must(t, s.files.Flush())
			s.remover.wait()
			c.spoil(t, fs, s)
			closed(t, s)
			o := Options{Dir: "store", FS: fs}
			before := tree(t, fs, "store")
			r, err := Check(t.Context(), o, check.Options{})
			must(t, err)
			if !maps.Equal(before, tree(t, fs, "store")) {
				t.Error("a check without repair changed something")
			}
			if c.invariant == "" {
				if r.Found != 0 || r.Versions != 8 {
					t.Fatalf("%+v", r)
				}
				return
			}
			if !slices.ContainsFunc(r.Problems, func(p check.Problem) bool { return p.Invariant == c.invariant }) {
				t.Fatalf("found %+v, expected %s", r.Problems, c.invariant)
			}
			r, err = Check(t.Context(), o, check.Options{Repair: true})
			must(t, err)
			if (r.Repaired == r.Found) != c.repaired {
				t.Errorf("repaired %d of %d: %+v", r.Repaired, r.Found, r.Problems)
			}
			again, err := Check(t.Context(), o, check.Options{})
			must(t, err)
			if (again.Found == 0) != c.repaired {
				t.Errorf("after the repair: %+v", again.Problems)
			}
			for p, b := range before {
				if b != "precious" {
					continue
				}
				found := slices.Contains(slices.Collect(maps.Values(tree(t, fs, "store/quarantine"))), b)
				if !found {
					t.Errorf("%s is not in quarantine", p)
				}
			}
		})
	}
}

func fileOf(t *testing.T, s *Store, key string) string {
	t.Helper()
	return s.files.Path(datafile.ID(current(t, s, "b", key).File))
}

func TestScrubNamesEachDamageAndNothingElse(t *testing.T) {
	fs, s := rich(t)
	must(t, s.files.Flush())
	r, err := s.Scrub(t.Context(), ScrubOptions{})
	if err != nil || r.Damaged != 0 || r.Objects != 6 || r.Files != 3 {
		t.Fatalf("a whole store: %+v, %v", r, err)
	}
	flip := func(name string, at int) {
		b := []byte(tree(t, fs, "store")[name])
		b[at] ^= 1
		writeFile(t, fs, name, string(b))
	}
	flip(fileOf(t, s, "many sums"), 3<<20+5)
	must(t, fs.Remove(fileOf(t, s, "file")))
	inline := content1(100, 1)
	inline[50] ^= 1
	setKey(t, s, record.DataKey(current(t, s, "b", "inline").Seq), inline)
	_, v := first(t, s, record.KindPart)
	p, err := record.DecodePart(v, true)
	must(t, err)
	flip(s.files.Path(datafile.ID(p.File)), 7)
	var told []string
	s.opts.Events.Damage = func(d object.Damage) { told = append(told, fmt.Sprint(d.Key, " ", d.What, " ", d.Off)) }
	r, err = s.Scrub(t.Context(), ScrubOptions{})
	must(t, err)
	slices.Sort(told)
	want := []string{"file missing 0", "inline checksum 0", "many sums checksum 3145728", "open checksum 0"}
	if !slices.Equal(told, want) || r.Damaged != 4 {
		t.Errorf("told %q, expected %q; %+v", told, want, r)
	}
	if st, _ := s.Stats(); st.Damage != 4 {
		t.Errorf("counted %d", st.Damage)
	}
	for _, key := range []string{"file", "inline"} {
		if _, err := s.Open(t.Context(), object.Ref{Bucket: "b", Key: key}); !errors.Is(err, object.ErrDamaged) {
			t.Errorf("opening %s: %v", key, err)
		}
	}
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "completed"}); !bytes.Equal(got, content1(50<<10, 9)) {
		t.Error("another object suffers")
	}
	closed(t, s)
}
