// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// damageOptions make a store with many small tables, blob files and logs.
func damageOptions(fs vfs.FS) disk.Options {
	return disk.Options{Dir: "store", FS: fs, Inline: 2000, MemTable: 96 << 10, Reserve: -1}
}

// damaged is a store as it was left, and what was acknowledged to be in it.
type damaged struct {
	fs      *vfs.MemFS
	want    map[string][]byte // by key
	deleted map[string]bool
	records map[string]string
}

const damageBucket = "bucket"

// makeDamaged fills a store and leaves it: closed, or as kill -9 would.
func makeDamaged(t *testing.T, clean bool) *damaged {
	t.Helper()
	ctx := t.Context()
	mem := vfs.NewCrashableMem()
	fs := &stepFS{FS: mem}
	s, err := disk.Open(ctx, damageOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	d := &damaged{want: map[string][]byte{}, deleted: map[string]bool{}, records: map[string]string{}}
	if err := s.CreateBucket(ctx, object.Bucket{Name: damageBucket}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 700 {
		key := fmt.Sprintf("dir%02d/key%04d", i%17, r.IntN(500))
		switch {
		case i%9 == 8 && d.want[key] != nil:
			if _, err := s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: damageBucket, Key: key}}); err != nil {
				t.Fatal(err)
			}
			delete(d.want, key)
			d.deleted[key] = true
		case i%50 == 49:
			name := fmt.Sprint("account", i)
			if err := s.PutRecord(ctx, "kind", name, []byte(name)); err != nil {
				t.Fatal(err)
			}
			d.records[name] = name
		default:
			n := []int{0, 60, 300, 1500, 5000}[r.IntN(5)]
			b := storetest.Bytes(uint64(i), n)
			if _, err := s.Put(ctx, object.Put{Bucket: damageBucket, Key: key, Size: int64(n),
				Body: bytes.NewReader(b)}); err != nil {
				t.Fatal(err)
			}
			d.want[key] = b
			delete(d.deleted, key)
		}
	}
	if !clean {
		d.fs = fs.crash(mem, 100, r)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if clean {
		d.fs = fs.crash(mem, 100, r)
	}
	return d
}

func (d *damaged) clone() *vfs.MemFS {
	return d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// wantWhole opens the store and expects everything in it that was acknowledged.
func (d *damaged) wantWhole(t *testing.T, o disk.Options) {
	t.Helper()
	s, err := disk.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if silent, said, first := d.missing(t.Context(), s); silent+said > 0 {
		t.Errorf("%d and %d are missing: %s", silent, said, first)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// missing counts what a store does not give back as it was acknowledged: silent is what is simply not there or
// different, said is what it refuses with an error that says that the metadata is damaged.
func (d *damaged) missing(ctx context.Context, s object.Store) (silent, said int, first string) {
	note := func(key string, err error) {
		if errs.Is(err, errs.Corrupt) {
			said++
			return
		}
		silent++
		if first == "" {
			first = fmt.Sprintf("%s: %v", key, err)
		}
	}
	for key, want := range d.want {
		_, got, err := storetest.Read(ctx, s, object.Ref{Bucket: damageBucket, Key: key})
		if err == nil && !bytes.Equal(got, want) {
			err = errors.New("other content")
		}
		if err != nil {
			note(key, err)
		}
	}
	for key := range d.deleted {
		if _, err := s.Stat(ctx, object.Ref{Bucket: damageBucket, Key: key}); !errors.Is(err, object.ErrNoSuchKey) &&
			!errors.Is(err, object.ErrNoSuchBucket) {
			if err == nil {
				err = errors.New("it was deleted and is there again")
			}
			note(key, err)
		}
	}
	for name, want := range d.records {
		if got, err := s.Record(ctx, "kind", name); err != nil || string(got) != want {
			note("record "+name, err)
		}
	}
	return silent, said, first
}

// tally is what a run of trials found.
type tally struct {
	trials, refused, checked, unharmed     int
	shortSaved, lostObjects, savedDoubtful int
}

// judgeDamage judges one damaged store: nothing acknowledged is missing, or the damage is noticed, and salvage saves
// the rest.
func (d *damaged) judge(t *testing.T, fs *vfs.MemFS, name string, sum *tally) {
	t.Helper()
	ctx := t.Context()
	sum.trials++
	copied := func() *vfs.MemFS {
		return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	}
	report, err := disk.Check(ctx, damageOptions(copied()), check.Options{})
	if err != nil && !errs.Is(err, errs.Corrupt) {
		t.Errorf("%s: check: kind %v: %v", name, errs.KindOf(err), err)
	}
	checked := err != nil || report.Found > 0
	s, err := disk.Open(ctx, damageOptions(copied()))
	silent, said, first := 0, 0, ""
	if err == nil {
		silent, said, first = d.missing(ctx, s)
		_ = s.Close()
	} else if !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" {
		t.Errorf("%s: open: kind %v, fix %q: %v", name, errs.KindOf(err), errs.FixOf(err), err)
	}
	switch {
	case err != nil:
		sum.refused++
	case silent > 0:
		t.Errorf("%s: %d of what was acknowledged are missing without a word (check: %v): %s", name, silent, checked, first)
	case said > 0 && !checked:
		t.Errorf("%s: %d cannot be read, and check says nothing", name, said)
	case checked:
		sum.checked++
	default:
		sum.unharmed++
	}
	d.salvage(t, copied(), name, sum, err != nil || checked)
}

// salvage saves a damaged store and compares: all that it gives back is right, and what is missing is reported.
func (d *damaged) salvage(t *testing.T, fs *vfs.MemFS, name string, sum *tally, damage bool) {
	t.Helper()
	ctx := t.Context()
	before := tree(t, fs, "store")
	report, err := saved(ctx, damageOptions(fs), salvage.Options{To: "new"})
	if err != nil {
		t.Errorf("%s: salvage: %v", name, err)
		return
	}
	if after := tree(t, fs, "store"); after != before {
		t.Errorf("%s: salvage changed the old store", name)
	}
	o := damageOptions(fs)
	o.Dir = "new"
	if r, err := disk.Check(ctx, o, check.Options{}); err != nil || r.Found > 0 {
		t.Errorf("%s: check of what was saved: %v, %+v", name, err, r.Problems)
		return
	}
	s, err := disk.Open(ctx, o)
	if err != nil {
		t.Errorf("%s: open what was saved: %v", name, err)
		return
	}
	defer func() { _ = s.Close() }()
	doubtful := map[string]bool{}
	for _, x := range report.Saved {
		if x.Doubtful {
			doubtful[x.Key] = true
		}
	}
	lost := 0
	for key, want := range d.want {
		_, got, err := storetest.Read(ctx, s, object.Ref{Bucket: damageBucket, Key: key})
		switch {
		case err != nil:
			lost++
		case !bytes.Equal(got, want) && !doubtful[key]:
			t.Errorf("%s: salvage gave %s other content, and no doubt", name, key)
		case !bytes.Equal(got, want):
			lost++
		}
	}
	for key := range d.deleted {
		if _, err := s.Stat(ctx, object.Ref{Bucket: damageBucket, Key: key}); err == nil && !doubtful[key] {
			t.Errorf("%s: salvage brought back %s, which was deleted, and says nothing", name, key)
		}
	}
	if lost > 0 && (!damage || report.Lost == 0 && len(report.Warnings) == 0) {
		t.Errorf("%s: salvage lost %d objects, and says %+v", name, lost, report)
	}
	if lost > 0 {
		sum.shortSaved++
		sum.lostObjects += lost
		t.Logf("%s: salvage saved %d of %d", name, len(d.want)-lost, len(d.want))
	}
	sum.savedDoubtful += len(doubtful)
}

// tree is the names and contents of a directory.
func tree(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	var out strings.Builder
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, n := range names {
		path := fs.PathJoin(dir, n)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			out.WriteString(tree(t, fs, path))
			continue
		}
		fmt.Fprintf(&out, "%s %d %x\n", path, info.Size(), hashOf(string(readAll(t, fs, path))))
	}
	return out.String()
}

func readAll(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

// metaFiles are the files of the metadata and their sizes.
func metaFiles(t *testing.T, fs vfs.FS) (names []string, sizes []int64) {
	t.Helper()
	all, err := fs.List("store/meta")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	for _, n := range all {
		info, err := fs.Stat("store/meta/" + n)
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() && n != "LOCK" {
			names, sizes = append(names, n), append(sizes, info.Size())
		}
	}
	return names, sizes
}

// flip turns one bit of a file over.
func flip(t *testing.T, fs vfs.FS, path string, off int64, bit uint) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << bit
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// syncMeta makes the names in the metadata's directory durable, so that clones have them.
func syncMeta(t *testing.T, fs vfs.FS) {
	t.Helper()
	d, err := fs.OpenDir("store/meta")
	if err == nil {
		err = d.Sync()
	}
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

var stops = map[string]bool{"clean": true, "unclean": false}

// TestEachFlipIsNoticed turns over one bit of the metadata at a time, of a store that was closed and of one that was
// killed: nothing that was acknowledged is missing, or the damage is noticed; and salvage saves what is readable.
func TestEachFlipIsNoticed(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	flips := effort.Rounds{Test: 6, CI: 16, Long: 500}.Of(t)
	for stop, clean := range stops {
		t.Run(stop, func(t *testing.T) {
			d := makeDamaged(t, clean)
			names, sizes := metaFiles(t, d.fs)
			r := rand.New(rand.NewPCG(uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1)), 5))
			var sum tally
			for i := range flips {
				// A third of the flips goes to files by their size, the rest to all files alike: logs and manifests are small.
				k := r.IntN(len(names))
				if i%3 == 0 {
					var total int64
					for _, n := range sizes {
						total += n
					}
					at := r.Int64N(total)
					for k = 0; at >= sizes[k]; k++ {
						at -= sizes[k]
					}
				}
				if sizes[k] == 0 {
					continue
				}
				fs, off, bit := d.clone(), r.Int64N(sizes[k]), uint(r.IntN(8))
				flip(t, fs, "store/meta/"+names[k], off, bit)
				d.judge(t, fs, fmt.Sprintf("bit %d of byte %d of %s", bit, off, names[k]), &sum)
			}
			t.Logf("%d objects, %d flips: %+v", len(d.want), flips, sum)
		})
	}
}

// TestEachMissingFileIsNoticed is TestEachFlipIsNoticed with one file at a time gone.
func TestEachMissingFileIsNoticed(t *testing.T) {
	effort.SingleThreaded(t)
	for stop, clean := range stops {
		t.Run(stop, func(t *testing.T) {
			d := makeDamaged(t, clean)
			names, _ := metaFiles(t, d.fs)
			var sum tally
			for _, n := range names {
				fs := d.clone()
				if err := fs.Remove("store/meta/" + n); err != nil {
					t.Fatal(err)
				}
				syncMeta(t, fs)
				d.judge(t, fs, n+" is gone", &sum)
			}
			t.Logf("%d objects, %d files: %+v", len(d.want), len(names), sum)
		})
	}
}
