// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// Without a manifest the values in blob files are found by their checksums: salvage saves every object.
func TestSalvageWithoutAManifest(t *testing.T) {
	effort.SingleThreaded(t)
	for stop, clean := range stops {
		t.Run(stop, func(t *testing.T) {
			d := makeDamaged(t, clean)
			names, _ := metaFiles(t, d.fs)
			blobs := 0
			for _, n := range names {
				if strings.HasSuffix(n, ".blob") {
					blobs++
				}
				if strings.Contains(n, "MANIFEST") || strings.HasPrefix(n, "marker.manifest") {
					if err := d.fs.Remove("store/meta/" + n); err != nil {
						t.Fatal(err)
					}
				}
			}
			if blobs < 2 {
				t.Fatalf("%d blob files, expected several", blobs)
			}
			if saved := d.saved(t, d.fs); saved != len(d.want) {
				t.Errorf("saved %d of %d objects", saved, len(d.want))
			}
		})
	}
}

// saved salvages a store and counts the objects that are there as they were. All others must be named as lost.
func (d *damaged) saved(t *testing.T, fs vfs.FS) (n int) {
	t.Helper()
	r, err := saved(t.Context(), damageOptions(fs), salvage.Options{To: "new"})
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]bool{}
	for _, l := range r.Losses {
		lost[l.Key] = true
	}
	o := damageOptions(fs)
	o.Dir = "new"
	wantClean(t, o)
	s, err := disk.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for key, want := range d.want {
		_, got, err := storetest.Read(t.Context(), s, object.Ref{Bucket: damageBucket, Key: key})
		switch {
		case err == nil && bytes.Equal(got, want):
			n++
		case err == nil:
			t.Errorf("%s has other content", key)
		case !lost[key]:
			t.Errorf("%s is missing and not named: %v", key, err)
		}
	}
	t.Logf("%d of %d; %q", n, len(d.want), r.Warnings)
	return n
}

// Values that nothing proves are lost and named, also if a file has one of the same length at the same place.
func TestSalvageGuessesNoValues(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem()
	s, err := disk.Open(ctx, damageOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	// Records of others have no checksum, and nothing here proves the file that they are in.
	for i := range 400 {
		if err := s.PutRecord(ctx, "kind", fmt.Sprintf("name%03d", i), storetest.Bytes(uint64(i), 1500)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := metaFiles(t, mem)
	for _, n := range names {
		if strings.Contains(n, "MANIFEST") {
			if err := mem.Remove("store/meta/" + n); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := saved(ctx, damageOptions(mem), salvage.Options{To: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Records+r.Lost != 400 || r.Lost == 0 {
		t.Errorf("%d saved, %d lost, expected 400 together", r.Records, r.Lost)
	}
	o := damageOptions(mem)
	o.Dir = "new"
	n, err := disk.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	for i := range 400 {
		if b, err := n.Record(ctx, "kind", fmt.Sprintf("name%03d", i)); err == nil &&
			!bytes.Equal(b, storetest.Bytes(uint64(i), 1500)) {
			t.Fatalf("record %d has the value of another one", i)
		}
	}
}

// A table whose index is damaged is read block by block, and nothing of it is lost.
func TestSalvageOfATableWithoutItsIndex(t *testing.T) {
	effort.SingleThreaded(t)
	whole := makeDamaged(t, true)
	names, sizes := metaFiles(t, whole.fs)
	r, err := disk.Check(t.Context(), damageOptions(whole.clone()), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	inUse := map[string]bool{} // there may be tables that were given up
	for _, f := range r.Metadata {
		inUse[f.Name] = true
	}
	tables := 0
	for i, n := range names {
		if !strings.HasSuffix(n, ".sst") || !inUse[n] || tables == 4 {
			continue
		}
		tables++
		layout := layoutOf(t, whole.fs, "store/meta/"+n)
		for what, off := range map[string]int64{"index": int64(layout.Index[0].Offset) + 9, "footer": sizes[i] - 3} {
			for _, also := range []bool{false, true} { // a block of keys is damaged too
				if also && len(layout.Data) < 3 {
					continue
				}
				t.Run(fmt.Sprint(n, " ", what, also), func(t *testing.T) {
					d := *whole
					d.fs = whole.clone()
					flip(t, d.fs, "store/meta/"+n, off, 3)
					if also {
						flip(t, d.fs, "store/meta/"+n, int64(layout.Data[1].Offset)+7, 3)
					}
					r, err := disk.Check(t.Context(), damageOptions(d.fs), check.Options{})
					if err != nil || r.Found == 0 {
						t.Errorf("check: %+v, %v", r.Problems, err)
					}
					saved := d.saved(t, d.fs)
					if !also && saved != len(d.want) || also && saved < len(d.want)*8/10 {
						t.Errorf("saved %d of %d objects", saved, len(d.want))
					}
				})
			}
		}
	}
	if tables == 0 {
		t.Error("there is no table")
	}
}

func layoutOf(t *testing.T, fs vfs.FS, path string) *sstable.Layout {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := sstable.NewReader(context.Background(), readable, disk.TableOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	layout, err := reader.Layout()
	if err != nil {
		t.Fatal(err)
	}
	return layout
}
