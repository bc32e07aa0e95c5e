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

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// tensorSave writes what a save of two ranks to .safetensors files leaves. Without `done`, the save was killed before
// the manifest.
func tensorSave(t *testing.T, dir string, done bool) {
	t.Helper()
	id := idOf(5)
	mark := "checkpoint-" + id + ".partial"
	write(t, filepath.Join(dir, mark), []byte("{}"))
	var list []string
	for rank := range 2 {
		name := fmt.Sprintf("shard-%05d-model-00001-of-00001.safetensors", rank+1)
		b := tensors(5000 + rank)
		put(t, dir, name, b)
		list = append(list, fmt.Sprintf(`{"name":%q,"size":%d,"crc64nvme":%q}`, name, len(b), sumText(checksum.Of(b))))
	}
	if !done {
		return
	}
	write(t, filepath.Join(dir, ManifestName(id)), fmt.Appendf(nil, `{"version":1,"id":%q,"format":"safetensors",
"created":"2026-01-02T03:04:05Z","step":9,"world":2,"bytes":%d,"metadata":null,"files":[%s],"items":[]}`, id,
		len(tensors(5000))+len(tensors(5001)), strings.Join(list, ",")))
	gone(t, dir, mark)
}

// TestManifestOfTensors: with a manifest, a missing shard is found that the names alone do not show.
func TestManifestOfTensors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	tensorSave(t, dir, false)
	if found := all(t, dir); len(found) != 1 || found[0].Complete || !strings.Contains(found[0].Reason, "no manifest") {
		t.Errorf("killed before the manifest: %s", shown(found))
	}
	tensorSave(t, dir, true)
	found := all(t, dir)
	if len(found) != 1 || !found[0].Complete || found[0].Format != FormatSafetensors || found[0].World != 2 ||
		*found[0].Step != 9 || !found[0].Checksums {
		t.Errorf("%s", shown(found))
	}
	if v := verify(t, dir); v.Verdict != VerdictGood || v.Read != found[0].Bytes {
		t.Errorf("%+v", v)
	}
	name := "shard-00002-model-00001-of-00001.safetensors"
	flip(t, filepath.Join(dir, name), 8*9000)
	if v := verify(t, dir); v.Verdict != VerdictDamaged || v.Problems[0].File != name ||
		!slices.Equal(v.Problems[0].Tensors, []string{"b"}) {
		t.Errorf("%+v", v)
	}
	gone(t, dir, name)
	if found := all(t, dir); found[0].Complete || !strings.Contains(found[0].Reason, name+": the file is missing") {
		t.Errorf("%s", shown(found))
	}
}

// atomicFolder behaves as a prefix of a bucket: objects appear whole, and nothing can be renamed.
type atomicFolder struct{ stopping }

func (f atomicFolder) Folder(name string) Folder {
	return atomicFolder{stopping{f.stopping.Folder.Folder(name), f.left}}
}
func (f atomicFolder) Atomic() bool { return true }

func (f atomicFolder) Hide(_ context.Context, name string) (string, error) { return name, nil }

// TestPruneOfTensorsWithoutRename: a prune of .safetensors objects that stops at any step leaves all of them, or no
// checkpoint, and the next prune removes the rest.
func TestPruneOfTensorsWithoutRename(t *testing.T) {
	for steps := 0; ; steps++ {
		root := t.TempDir()
		tensorSave(t, filepath.Join(root, StepName(1)), true)
		save(t, filepath.Join(root, StepName(2)), 2, 2)
		left := steps
		_, err := Prune(t.Context(), atomicFolder{stopping{NewLocal(root), &left}}, PruneOptions{KeepLast: 1})
		for _, c := range all(t, root) {
			if c.Complete && verify(t, filepath.Join(root, c.Name)).Verdict != VerdictGood {
				t.Errorf("after %d steps %s is listed, and is not good", steps, c.Name)
			}
		}
		_ = os.Remove(filepath.Join(root, StepName(1))) // a bucket has no empty folders
		more := 1000
		if _, err := Prune(t.Context(), atomicFolder{stopping{NewLocal(root), &more}},
			PruneOptions{KeepLast: 1}); err != nil {
			t.Fatal(err)
		}
		if got := names(t, root); !slices.Equal(got, []string{StepName(2)}) {
			t.Errorf("after %d steps and another prune, %q is left", steps, got)
		}
		if err == nil {
			return
		}
	}
}

// TestRanksWithoutEachOther: if the ranks have metadata of their own, nobody can tell whether all are there. Such a
// checkpoint is not listed as complete and never pruned, but is verified.
func TestRanksWithoutEachOther(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, StepName(1))
	save(t, dir, 1, 1)
	b, err := os.ReadFile(filepath.Join(dir, ManifestName(idOf(1))))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, dir, ManifestName(idOf(1))+".crc64nvme")
	write(t, filepath.Join(dir, ManifestName(idOf(1))),
		[]byte(strings.Replace(string(b), `".metadata"`, `"__0.metadata"`, 1)))
	if err := os.Rename(filepath.Join(dir, MetadataName), filepath.Join(dir, "__0.metadata")); err != nil {
		t.Fatal(err)
	}
	if found := all(t, dir); len(found) != 1 || found[0].Complete || !strings.Contains(found[0].Reason, "how many ranks") {
		t.Errorf("%s", shown(found))
	}
	if v := verify(t, dir); v.Verdict != VerdictGood || v.Read != 40_001 || len(v.Notes) != 2 {
		t.Errorf("%+v", v)
	}
	save(t, filepath.Join(root, StepName(2)), 2, 2)
	if p := prune(t, root, PruneOptions{KeepLast: 1}); len(p.removed()) != 0 {
		t.Errorf("removed %q", p.removed())
	}
	flip(t, filepath.Join(dir, "__0.metadata"), 99)
	if v := verify(t, dir); v.Verdict != VerdictDamaged || v.Problems[0].File != "__0.metadata" {
		t.Errorf("%+v", v)
	}
}
