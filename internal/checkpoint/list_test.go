// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// all lists a directory, with checkpoints that are not complete.
func all(t testing.TB, dir string) []Checkpoint {
	t.Helper()
	found, err := List(context.Background(), Target{Folder: NewLocal(dir)}, true)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shown describes a listing in one line for each checkpoint.
func shown(found []Checkpoint) string {
	var b strings.Builder
	for _, c := range found {
		step := "-"
		if c.Step != nil {
			step = fmt.Sprint(*c.Step)
		}
		fmt.Fprintf(&b, "%s step %s %s complete %v files %d bytes %d world %d checksums %v", c.Name, step, c.Format,
			c.Complete, c.Files, c.Bytes, c.World, c.Checksums)
		if c.Reason != "" {
			fmt.Fprintf(&b, " (%s)", c.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// stock puts a checkpoint that PyTorch wrote into a directory.
func stock(t testing.TB, dir string) {
	t.Helper()
	b, err := os.ReadFile("testdata/stock.metadata")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, MetadataName), b)
	write(t, filepath.Join(dir, "__0_0.distcp"), content(9, 9644)) // as large as .metadata says
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// tensors returns the content of a .safetensors file with two tensors of n bytes.
func tensors(n int) []byte {
	header := fmt.Sprintf(
		`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]},"b":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}`,
		n, n, n, n, 2*n)
	b := append([]byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}, header...)
	return append(b, content(5, 2*n)...)
}

func TestList(t *testing.T) {
	root := t.TempDir()
	save(t, filepath.Join(root, StepName(20)), 2, 20)
	save(t, filepath.Join(root, StepName(3)), 1, 3)
	save(t, filepath.Join(root, "best"), 3, 7)
	stock(t, filepath.Join(root, "step-0000000005"))
	hf := filepath.Join(root, "step-6")
	write(t, filepath.Join(hf, "model-00001-of-00002.safetensors"), tensors(100))
	write(t, filepath.Join(hf, "model-00002-of-00002.safetensors"), tensors(50))
	if err := os.MkdirAll(filepath.Join(root, StepName(30)), 0o755); err != nil {
		t.Fatal(err)
	}
	running := filepath.Join(root, StepName(21))
	write(t, filepath.Join(running, "__0_0_"+idOf(8)+".distcp"), content(1, 100))
	write(t, filepath.Join(root, "logs", "a.txt"), nil)
	write(t, filepath.Join(root, ".step-1."+idOf(1)+prunedSuffix, "__0_0.distcp"), nil)
	if err := os.Symlink(StepName(20), filepath.Join(root, "latest")); err != nil {
		t.Fatal(err)
	}
	want := `step-0000000003 step 3 nebulaio complete true files 2 bytes 40001 world 2 checksums true
step-0000000005 step 5 torch complete true files 1 bytes 9644 world 1 checksums false
step-6 step 6 safetensors complete true files 2 bytes 542 world 0 checksums false
best step 7 nebulaio complete true files 2 bytes 40001 world 2 checksums true
step-0000000020 step 20 nebulaio complete true files 2 bytes 40001 world 2 checksums true
step-0000000021 step 21 nebulaio complete false files 1 bytes 100 world 0 checksums false (.metadata: there is no .metadata: the save has not finished, or was killed)
step-0000000030 step 30  complete false files 0 bytes 0 world 0 checksums false (the directory is empty)
`
	if got := shown(all(t, root)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	complete, err := List(t.Context(), Target{Folder: NewLocal(root)}, false)
	if err != nil || len(complete) != 5 || slices.ContainsFunc(complete, func(c Checkpoint) bool { return !c.Complete }) {
		t.Errorf("%v, %v", complete, err)
	}
	one := all(t, filepath.Join(root, StepName(20)))
	if len(one) != 1 || one[0].Name != "." || *one[0].Step != 20 || !one[0].Complete {
		t.Errorf("one: %+v", one)
	}
	if _, err := List(t.Context(), Target{Folder: NewLocal(filepath.Join(root, "none"))}, true); !errs.Is(err,
		errs.NotFound) {
		t.Errorf("a missing directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := List(ctx, Target{Folder: NewLocal(root)}, true); !errs.Is(err, errs.Cancelled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestPartialIsNotComplete: a checkpoint that lacks anything is never listed as complete, and the reason names it.
func TestPartialIsNotComplete(t *testing.T) {
	own := func(name string) string { return name + "_" + idOf(1) + ".distcp" }
	for _, x := range []struct {
		name, says string
		do         func(t *testing.T, dir string)
	}{
		{"a missing rank file", own("__1_0") + ": the file is missing",
			func(t *testing.T, dir string) { gone(t, dir, own("__1_0")) }},
		{"a truncated file", "has 5 bytes, expected 20000", func(t *testing.T, dir string) { cut(t, dir, own("__0_0"), 5) }},
		{"no .metadata", "there is no .metadata", func(t *testing.T, dir string) { gone(t, dir, MetadataName) }},
		{"no manifest", "read pickle", func(t *testing.T, dir string) { gone(t, dir, ManifestName(idOf(1))) }},
		{"empty .metadata", "belongs to no manifest",
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, MetadataName), nil) }},
		{"metadata of another run", "__0_0.distcp: the file is missing", func(t *testing.T, dir string) {
			b, err := os.ReadFile("testdata/stock.metadata")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, MetadataName), b)
		}},
		{"a truncated manifest", "the file is truncated",
			func(t *testing.T, dir string) { cut(t, dir, ManifestName(idOf(1)), 40) }},
		{"a manifest with another id", "it has the id", func(t *testing.T, dir string) {
			b, _ := os.ReadFile(filepath.Join(dir, ManifestName(idOf(1))))
			gone(t, dir, ManifestName(idOf(1)))
			write(t, filepath.Join(dir, ManifestName(idOf(2))), b)
		}},
		{"a manifest of a newer version", "version", func(t *testing.T, dir string) {
			b, _ := os.ReadFile(filepath.Join(dir, ManifestName(idOf(1))))
			write(t, filepath.Join(dir, ManifestName(idOf(1))),
				[]byte(strings.Replace(string(b), `"version":1`, `"version":2`, 1)))
		}},
		{"a link out of the directory", "link", func(t *testing.T, dir string) {
			gone(t, dir, own("__1_0"))
			outside := filepath.Join(t.TempDir(), "x")
			write(t, outside, content(1+1<<8, 20_001))
			if err := os.Symlink(outside, filepath.Join(dir, own("__1_0"))); err != nil {
				t.Fatal(err)
			}
		}},
		{"a directory in place of a file", "not a regular file", func(t *testing.T, dir string) {
			gone(t, dir, own("__1_0"))
			if err := os.Mkdir(filepath.Join(dir, own("__1_0")), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "c")
			save(t, dir, 1, 10)
			x.do(t, dir)
			found := all(t, dir)
			if len(found) != 1 || found[0].Complete || !strings.Contains(found[0].Reason, x.says) {
				t.Errorf("%s, expected a reason with %q", shown(found), x.says)
			}
			if complete, err := List(t.Context(), Target{Folder: NewLocal(dir)}, false); err != nil || len(complete) != 0 {
				t.Errorf("listed as complete: %v, %v", complete, err)
			}
		})
	}
}

func gone(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, dir, name string, size int64) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
		t.Fatal(err)
	}
}

// TestStockWithLeftovers: what a killed save of ours leaves beside a checkpoint of PyTorch does not harm it.
func TestStockWithLeftovers(t *testing.T) {
	dir := t.TempDir()
	stock(t, dir)
	draft := draftOf(t, dir, 4, 1)
	m, err := parseDraft(dir, CommitRequest{Draft: draft, Metadata: []byte("new"), Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ManifestName(m.ID)), text)
	if found := all(t, dir); len(found) != 1 || !found[0].Complete || found[0].Format != FormatTorch {
		t.Errorf("%s", shown(found))
	}
	cut(t, dir, "__0_0.distcp", 9643)
	if found := all(t, dir); found[0].Complete ||
		!strings.Contains(found[0].Reason, "9643 bytes, expected at least 9644") {
		t.Errorf("%s", shown(found))
	}
}

func TestSafetensorsFolders(t *testing.T) {
	for _, x := range []struct {
		name, says string
		files      map[string][]byte
	}{
		{"one file", "", map[string][]byte{"model.safetensors": tensors(10)}},
		{"an index", "", map[string][]byte{"a.safetensors": tensors(10),
			"model.safetensors.index.json": []byte(`{"weight_map":{"a":"a.safetensors","b":"a.safetensors"}}`)}},
		{"a missing shard of the index", "b.safetensors: the file is missing", map[string][]byte{"a.safetensors": tensors(10),
			"model.safetensors.index.json": []byte(`{"weight_map":{"a":"a.safetensors","b":"b.safetensors"}}`)}},
		{"a missing number", "model-00002-of-00003.safetensors: the file is missing", map[string][]byte{
			"model-00001-of-00003.safetensors": tensors(10), "model-00003-of-00003.safetensors": tensors(10)}},
		{"a truncated file", "model.safetensors", map[string][]byte{"model.safetensors": tensors(10)[:150]}},
		{"a broken index", "index", map[string][]byte{"a.safetensors": tensors(10),
			"model.safetensors.index.json": []byte(`{`)}},
	} {
		dir := t.TempDir()
		for name, b := range x.files {
			write(t, filepath.Join(dir, name), b)
		}
		found := all(t, dir)
		if len(found) != 1 || found[0].Format != FormatSafetensors || found[0].Complete != (x.says == "") ||
			!strings.Contains(found[0].Reason, x.says) {
			t.Errorf("%s: %s", x.name, shown(found))
		}
	}
}

// shut is a root with one folder that may not be read.
type shut struct {
	*local
	name string
}

func (s shut) Folder(name string) Folder {
	if name == s.name {
		return denied{s.local.Folder(name).(*local)}
	}
	return s.local.Folder(name)
}

// denied is a folder that may not be read.
type denied struct{ *local }

func (d denied) Entries(context.Context) ([]Entry, error) {
	return nil, errs.New(errs.Permission, "list", d.Shown(""), "permission denied")
}

// TestClosedFolders: a folder that may not be read does not hide the others, and is never pruned.
func TestClosedFolders(t *testing.T) {
	root := t.TempDir()
	for step := int64(1); step <= 3; step++ {
		save(t, filepath.Join(root, StepName(step)), uint64(step), step)
	}
	f := shut{NewLocal(root).(*local), StepName(1)}
	found, err := List(t.Context(), Target{Folder: f}, true)
	if err != nil || len(found) != 3 || found[0].Complete || !strings.Contains(found[0].Reason, "permission denied") {
		t.Errorf("%s, %v", shown(found), err)
	}
	p, err := Prune(t.Context(), f, PruneOptions{KeepLast: 1})
	if err != nil || !slices.Equal(p.removed(), []string{StepName(2)}) {
		t.Errorf("%+v, %v", p, err)
	}
}
