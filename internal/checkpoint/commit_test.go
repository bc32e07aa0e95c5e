// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// content returns n bytes that depend on the seed.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b)
	return b
}

// idOf returns the id of the save with a number.
func idOf(n uint64) string { return fmt.Sprintf("%016x", n) }

// dataFile is one data file of a test, with the items that it holds.
type dataFile struct {
	name string
	size int
}

// put writes a file and its checksums.
func put(t testing.TB, dir, name string, b []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	sums, err := checksum.Compute(t.Context(), path, 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sums.Write(path); err != nil {
		t.Fatal(err)
	}
}

// draftOf writes the data files of save n and returns its manifest.
func draftOf(t testing.TB, dir string, n uint64, step int64) []byte {
	t.Helper()
	m := map[string]any{"id": idOf(n), "step": step, "world": 2}
	var list, parts []any
	for rank := range 2 {
		f := dataFile{fmt.Sprintf("__%d_0_%s.distcp", rank, idOf(n)), 20_000 + rank}
		put(t, dir, f.name, content(n+uint64(rank)<<8, f.size))
		list = append(list, map[string]any{"name": f.name, "size": f.size})
		for i := range 4 {
			parts = append(parts, map[string]any{"tensor": fmt.Sprintf("model.w%d", i), "file": rank, "offset": 4096 * i,
				"size": 4096, "dtype": "U8", "shape": []int{4096}, "at": []int{4096 * rank}})
		}
	}
	m["files"], m["items"] = list, parts
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// save writes and commits save n to a directory.
func save(t testing.TB, dir string, n uint64, step int64) *Committed {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := Commit(t.Context(), NewLocal(dir), CommitRequest{Draft: draftOf(t, dir, n, step), Metadata: content(n, 500),
		Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// names lists a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

func TestCommitReplacesAnOlderCheckpoint(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1, 10)
	for _, name := range []string{"notes.txt", "__0_0.distcp", "__0_1.distcp.crc64nvme"} {
		put := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644)
		if put != nil {
			t.Fatal(put)
		}
	}
	c := save(t, dir, 2, 20)
	want := []string{".metadata", "__0_0_" + idOf(2) + ".distcp", "__0_0_" + idOf(2) + ".distcp.crc64nvme",
		"__1_0_" + idOf(2) + ".distcp", "__1_0_" + idOf(2) + ".distcp.crc64nvme", ManifestName(idOf(2)),
		ManifestName(idOf(2)) + ".crc64nvme", "notes.txt"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the directory has %q, expected %q", got, want)
	}
	if len(c.Removed) != 8 || len(c.Notes) != 0 {
		t.Errorf("removed %q, notes %q", c.Removed, c.Notes)
	}
	b, err := os.ReadFile(filepath.Join(dir, c.Name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseManifest(c.Name, b)
	if err != nil {
		t.Fatal(err)
	}
	whole := content(2, 20_000)
	if m.Files[0].CRC64 != sumText(checksum.Of(whole)) || m.Bytes != 40_001 || *m.Step != 20 || m.World != 2 ||
		m.Metadata.CRC64 != sumText(checksum.Of(content(2, 500))) || len(m.Items) != 8 {
		t.Errorf("%+v", m)
	}
}

// TestCommitRefuses: a checkpoint with a missing or short file, and a manifest that is not right, are refused, and the
// older checkpoint stays as it is.
func TestCommitRefuses(t *testing.T) {
	for _, x := range []struct {
		name string
		kind errs.Kind
		says string
		do   func(dir string, draft []byte) []byte
	}{
		{"a missing file of a rank", errs.NotFound, "__1_0_", func(dir string, draft []byte) []byte {
			os.Remove(filepath.Join(dir, "__1_0_"+idOf(2)+".distcp"))
			return draft
		}},
		{"a truncated file", errs.Corrupt, "has 100 bytes, expected 20000", func(dir string, draft []byte) []byte {
			os.Truncate(filepath.Join(dir, "__0_0_"+idOf(2)+".distcp"), 100)
			return draft
		}},
		{"checksums of another file", errs.Corrupt, "stale", func(dir string, draft []byte) []byte {
			other := filepath.Join(dir, "other")
			os.WriteFile(other, []byte("short"), 0o644)
			s, _ := checksum.Compute(t.Context(), other, 4096, nil)
			os.WriteFile(filepath.Join(dir, "__0_0_"+idOf(2)+".distcp.crc64nvme"), s.Encode(), 0o644)
			os.Remove(other)
			return draft
		}},
		{"the id of another save", errs.Invalid, "expected __RANK_NUMBER_" + idOf(3), func(_ string, draft []byte) []byte {
			return bytes.Replace(draft, []byte(`"id":"`+idOf(2)), []byte(`"id":"`+idOf(3)), 1)
		}},
		{"a name with a slash", errs.Invalid, "slash", func(_ string, draft []byte) []byte {
			return bytes.Replace(draft, []byte(`"name":"__0`), []byte(`"name":"../__0`), 1)
		}},
		{"no id", errs.Invalid, "16 hex digits", func(string, []byte) []byte { return []byte(`{"world":1}`) }},
		{"no JSON", errs.Invalid, "manifest", func(string, []byte) []byte { return []byte(`{`) }},
		{"a link in place of a file", errs.NotFound, "__0_0_", func(dir string, draft []byte) []byte {
			path := filepath.Join(dir, "__0_0_"+idOf(2)+".distcp")
			os.Remove(path)
			os.Symlink("/etc/passwd", path)
			return draft
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			save(t, dir, 1, 10)
			before, _ := os.ReadFile(filepath.Join(dir, MetadataName))
			draft := x.do(dir, draftOf(t, dir, 2, 20))
			_, err := Commit(t.Context(), NewLocal(dir), CommitRequest{Draft: draft, Metadata: content(2, 500), Now: time.Now()})
			if !errs.Is(err, x.kind) || !strings.Contains(err.Error(), x.says) {
				t.Errorf("%v: %v, expected %v that says %q", errs.KindOf(err), err, x.kind, x.says)
			}
			after, _ := os.ReadFile(filepath.Join(dir, MetadataName))
			if !bytes.Equal(before, after) {
				t.Error("the old .metadata is gone")
			}
			if _, err := os.Stat(filepath.Join(dir, ManifestName(idOf(2)))); err == nil {
				t.Error("a manifest is left")
			}
		})
	}
	if _, err := Commit(t.Context(), NewLocal(filepath.Join(t.TempDir(), "none")), CommitRequest{
		Draft: []byte(`{"id":"` + idOf(1) + `","world":1}`), Metadata: []byte("m"), Now: time.Now()}); !errs.Is(err,
		errs.NotFound) {
		t.Errorf("a missing directory: %v", err)
	}
	if _, err := Commit(t.Context(), NewLocal(t.TempDir()), CommitRequest{
		Draft: []byte(`{"id":"` + idOf(1) + `","world":1}`)}); !errs.Is(err, errs.Invalid) {
		t.Errorf("no metadata: %v", err)
	}
}
