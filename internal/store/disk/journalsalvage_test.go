// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
)

// waiting makes a store with entries of two consumers, of which one has acknowledged its first entry, and returns the
// lines of both.
func waiting(t *testing.T, fs vfs.FS) (first, second []string) {
	t.Helper()
	s := journalStore(t, disk.Options{Dir: "store", FS: fs})
	journalled(t, s, "b", object.VersioningEnabled, object.JournalRule{Consumer: "first"},
		object.JournalRule{Consumer: "second"})
	for i := range 5 {
		must[object.Info](t)(putText(t.Context(), s, "b", fmt.Sprintf("k%d", i), "text"))
	}
	entries := must[[]object.JournalEntry](t)(s.ReadJournal(t.Context(), "first", 0, 1))
	if err := s.AckJournal(t.Context(), "first", entries[0].Seq); err != nil {
		t.Fatal(err)
	}
	first, second = linesOf(t, s, "first"), linesOf(t, s, "second")
	if len(first) != 4 || len(second) != 5 {
		t.Fatalf("%q, %q", first, second)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return first, second
}

// TestSalvageSavesTheJournal salvages a store with waiting entries. The new store goes on with them, and gives later
// changes higher numbers.
func TestSalvageSavesTheJournal(t *testing.T) {
	fs := vfs.NewMem()
	first, second := waiting(t, fs)
	r, err := saved(t.Context(), disk.Options{Dir: "store", FS: fs}, salvage.Options{To: "new"})
	if err != nil || r.Journal != 9 || r.Lost != 0 {
		t.Fatalf("%d entries, %d lost: %v", r.Journal, r.Lost, err)
	}
	s := journalStore(t, disk.Options{Dir: "new", FS: fs})
	defer s.Close()
	wantLines(t, linesOf(t, s, "first"), first...)
	must[object.Info](t)(putText(t.Context(), s, "b", "later", "text"))
	wantLines(t, linesOf(t, s, "second"), append(second, "put b/later 4")...)
}

// TestSalvageOfACutLog cuts the log of the metadata. No saved entry is without its version.
func TestSalvageOfACutLog(t *testing.T) {
	whole := vfs.NewMem()
	first, _ := waiting(t, whole)
	name, size := logOf(t, whole, "store/meta")
	some := 0 // cuts that left some of the entries
	for cut := size - 1; cut > 0; cut -= max(1, size/40) {
		fs := vfs.NewMem()
		waiting(t, fs)
		shorten(t, fs, name, cut)
		r, err := saved(t.Context(), disk.Options{Dir: "store", FS: fs}, salvage.Options{To: "new"})
		if err != nil {
			continue // nothing was readable
		}
		s := journalStore(t, disk.Options{Dir: "new", FS: fs})
		if r.Journal > 0 && r.Journal < 9 {
			some++
		}
		for _, consumer := range []string{"first", "second"} {
			lines := linesOf(t, s, consumer)
			if int64(len(lines)) > r.Objects {
				t.Errorf("cut at %d: %q for %d versions", cut, lines, r.Objects)
			}
			for _, line := range lines {
				if consumer == "first" && !strings.Contains(strings.Join(first, "\n")+"\nput b/k0 4", line) {
					t.Errorf("cut at %d: unknown entry %q", cut, line)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if some < 5 {
		t.Errorf("%d cuts left some of the entries", some)
	}
}

// logOf returns the name and size of the largest log in a directory.
func logOf(t *testing.T, fs vfs.FS, dir string) (name string, size int64) {
	t.Helper()
	for _, n := range must[[]string](t)(fs.List(dir)) {
		if info := must[vfs.FileInfo](t)(fs.Stat(fs.PathJoin(dir, n))); strings.HasSuffix(n, ".log") && info.Size() > size {
			name, size = fs.PathJoin(dir, n), info.Size()
		}
	}
	if size == 0 {
		t.Fatal("the store has no log")
	}
	return name, size
}

// shorten keeps the first n bytes of a file.
func shorten(t *testing.T, fs vfs.FS, name string, n int64) {
	t.Helper()
	f := must[vfs.File](t)(fs.Open(name))
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	w := must[vfs.File](t)(fs.Create(name, vfs.WriteCategoryUnspecified))
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
