// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

func verify(t testing.TB, dir string) *Verification {
	t.Helper()
	v, err := Verify(context.Background(), Target{Folder: NewLocal(dir)}, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// flip changes one bit of a file.
func flip(t testing.TB, path string, bit int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bit/8] ^= 1 << (bit % 8)
	// The file keeps its inode and its time, as one with damage on the disk does.
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// TestEveryFlippedBitIsFound flips bits in each file of a checkpoint in turn.
func TestEveryFlippedBitIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	save(t, dir, 1, 10)
	if v := verify(t, dir); v.Verdict != VerdictGood || v.Read != 40_001 ||
		len(v.Problems)+len(v.Unverified)+len(v.Notes) != 0 {
		t.Fatalf("%+v", v)
	}
	all := names(t, dir)
	if len(all) != 7 {
		t.Fatalf("%q", all)
	}
	for _, name := range all {
		path := filepath.Join(dir, name)
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(12) {
			bit := (st.Size()*8 - 1) * i / 11
			flip(t, path, bit)
			v := verify(t, dir)
			if v.Verdict != VerdictDamaged || !slices.ContainsFunc(v.Problems, func(p Problem) bool { return p.File == name }) {
				// A checksum that was changed together with its own checksum is not possible with one bit. So the data file
				// or its sidecar is named.
				t.Errorf("%s, bit %d: %s, %+v", name, bit, v.Verdict, v.Problems)
			}
			if _, _, data := dataID(name); data && bit/8 < 16384 {
				want := fmt.Sprintf("model.w%d", bit/8/4096)
				if p := v.Problems[0]; !slices.Equal(p.Tensors, []string{want}) || p.Offset != bit/8/4096*4096 || p.Size != 4096 {
					t.Errorf("%s, bit %d: %+v, expected tensor %s", name, bit, p, want)
				}
			}
			flip(t, path, bit)
		}
	}
	if v := verify(t, dir); v.Verdict != VerdictGood {
		t.Errorf("%+v", v)
	}
}

func TestVerifyNamesWhatIsWrong(t *testing.T) {
	own := func(name string) string { return name + "_" + idOf(1) + ".distcp" }
	for _, x := range []struct {
		name, verdict, kind, file, says string
		do                              func(t *testing.T, dir string)
	}{
		{"a missing file", VerdictIncomplete, ProblemMissing, own("__1_0"), "missing",
			func(t *testing.T, dir string) { gone(t, dir, own("__1_0")) }},
		{"a truncated file", VerdictDamaged, ProblemSize, own("__0_0"), "has 7 bytes, expected 20000",
			func(t *testing.T, dir string) { cut(t, dir, own("__0_0"), 7) }},
		{"another file", VerdictDamaged, ProblemDamaged, own("__0_0"), "this is another file",
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, own("__0_0")), content(77, 20_000)) }},
		{"checksums of another file", VerdictDamaged, ProblemDamaged, own("__1_0"), "differ",
			func(t *testing.T, dir string) {
				put(t, dir, "x", content(3, 20_001))
				if err := os.Rename(filepath.Join(dir, "x.crc64nvme"), filepath.Join(dir, own("__1_0")+".crc64nvme")); err != nil {
					t.Fatal(err)
				}
			}},
		{"damage without checksums of blocks", VerdictDamaged, ProblemDamaged, own("__0_0"), "no checksums of blocks",
			func(t *testing.T, dir string) {
				gone(t, dir, own("__0_0")+".crc64nvme")
				flip(t, filepath.Join(dir, own("__0_0")), 99)
			}},
		{"no .metadata", VerdictIncomplete, ProblemMissing, MetadataName, "has not finished",
			func(t *testing.T, dir string) { gone(t, dir, MetadataName) }},
		{"a file that is both replaced and summed", VerdictDamaged, ProblemDamaged, own("__0_0"), "checksum in the manifest",
			func(t *testing.T, dir string) { put(t, dir, own("__0_0"), content(78, 20_000)) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "c")
			save(t, dir, 1, 10)
			x.do(t, dir)
			v := verify(t, dir)
			if v.Verdict != x.verdict || len(v.Problems) == 0 || v.Problems[0].Kind != x.kind || v.Problems[0].File != x.file ||
				!strings.Contains(v.Problems[0].Message, x.says) {
				t.Errorf("%s: %+v", v.Verdict, v.Problems)
			}
		})
	}
	t.Run("no checksums of blocks", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "c")
		save(t, dir, 1, 10)
		gone(t, dir, own("__0_0")+".crc64nvme")
		write(t, filepath.Join(dir, "__0_0_"+idOf(7)+".distcp"), nil)
		if v := verify(t, dir); v.Verdict != VerdictGood ||
			!slices.Equal(v.Foreign, []string{"__0_0_" + idOf(7) + ".distcp"}) {
			t.Errorf("%+v", v)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if _, err := Verify(t.Context(), Target{Folder: NewLocal(t.TempDir())}, VerifyOptions{}); !errs.Is(err,
			errs.NotFound) {
			t.Error(err)
		}
	})
}

func TestVerifyStock(t *testing.T) {
	dir := t.TempDir()
	stock(t, dir)
	if v := verify(t, dir); v.Verdict != VerdictNoChecksums || !slices.Equal(v.Unverified, []string{"__0_0.distcp"}) ||
		v.Read != 0 {
		t.Errorf("%+v", v)
	}
	put(t, dir, "__0_0.distcp", content(9, 9644))
	if v := verify(t, dir); v.Verdict != VerdictGood || v.Read != 9644 {
		t.Errorf("%+v", v)
	}
	flip(t, filepath.Join(dir, "__0_0.distcp"), 8*9000)
	if v := verify(t, dir); v.Verdict != VerdictDamaged || !slices.Equal(v.Problems[0].Tensors, []string{"model.b"}) {
		t.Errorf("%+v", v)
	}
}

// torchFile returns a file like those of torch.save, with records of n bytes.
func torchFile(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range []string{"archive/data.pkl", "archive/data/0", "archive/data/1"} {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(content(4, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestVerifySingleFiles(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.pt", torchFile(t, 20_000))
	put(t, dir, "b.safetensors", tensors(20_000))
	one := func(name string) *Verification {
		t.Helper()
		v, err := Verify(t.Context(), Target{Folder: NewLocal(dir), File: name}, VerifyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, tensor := range map[string]string{"a.pt": "archive/data/1", "b.safetensors": "b"} {
		if v := one(name); v.Verdict != VerdictGood {
			t.Errorf("%s: %+v", name, v)
		}
		flip(t, filepath.Join(dir, name), 8*(int64(len(tensor))/14*25_000+30_000))
		if v := one(name); v.Verdict != VerdictDamaged || !slices.Equal(v.Problems[0].Tensors, []string{tensor}) {
			t.Errorf("%s: %s %+v", name, v.Verdict, v.Problems)
		}
	}
	write(t, filepath.Join(dir, "c.pt"), torchFile(t, 100))
	if v := one("c.pt"); v.Verdict != VerdictNoChecksums || v.Format != FormatTorchFile {
		t.Errorf("%+v", v)
	}
	write(t, filepath.Join(dir, "d.pt"), torchFile(t, 100)[:250])
	if v := one("d.pt"); v.Verdict != VerdictDamaged || v.Problems[0].Kind != ProblemStructure {
		t.Errorf("%+v", v)
	}
	if _, err := Verify(t.Context(), Target{Folder: NewLocal(dir), File: "e.pt"}, VerifyOptions{}); !errs.Is(err,
		errs.NotFound) {
		t.Error(err)
	}
	// A folder lists the files of torch.save that have checksums.
	root := t.TempDir()
	put(t, root, "step-7.pt", torchFile(t, 100))
	write(t, filepath.Join(root, "other.pt"), torchFile(t, 100))
	if found := all(t, root); len(found) != 1 || found[0].Name != "step-7.pt" || *found[0].Step != 7 ||
		!found[0].Complete ||
		!found[0].Checksums {
		t.Errorf("%s", shown(found))
	}
}

// TestVerifyLargeFiles reads files of many pieces, from the page cache and past it.
func TestVerifyLargeFiles(t *testing.T) {
	const size = 3*pieceSize + 12_345
	dir := t.TempDir()
	name := "__0_0_" + idOf(1) + ".distcp"
	write(t, filepath.Join(dir, name), content(1, size))
	sums, err := checksum.Compute(t.Context(), filepath.Join(dir, name), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sums.Write(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	draft := fmt.Sprintf(
		`{"id":%q,"world":1,"files":[{"name":%q,"size":%d}],"items":[{"tensor":"all","size":%d,"dtype":"U8"}]}`,
		idOf(1), name, size, size)
	if _, err := Commit(t.Context(), NewLocal(dir),
		CommitRequest{Draft: []byte(draft), Metadata: []byte("m")}); err != nil {
		t.Fatal(err)
	}
	for _, cold := range []bool{false, true} {
		if cold {
			f, err := vfs.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.DropCache(); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		var last, total int64
		v, err := Verify(t.Context(), Target{Folder: NewLocal(dir)}, VerifyOptions{Progress: func(done, all int64) {
			if done < last {
				t.Errorf("progress went from %d to %d", last, done)
			}
			last, total = done, all
		}})
		if err != nil || v.Verdict != VerdictGood || v.Read != size || last != size || total != size {
			t.Errorf("cold %v: %+v, %v, progress %d of %d", cold, v, err, last, total)
		}
	}
	flip(t, filepath.Join(dir, name), 8*(2*pieceSize+5))
	if v := verify(t, dir); v.Verdict != VerdictDamaged || v.Problems[0].Offset != 2*pieceSize ||
		v.Problems[0].Size != 1<<20 {
		t.Errorf("%+v", v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, Target{Folder: NewLocal(dir)}, VerifyOptions{}); !errs.Is(err, errs.Cancelled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestVerifyManyFiles: small files are read at the same time, and the problems are in the order of the manifest.
func TestVerifyManyFiles(t *testing.T) {
	const count = 60
	dir := t.TempDir()
	var list []string
	var want []string
	var bytes int64
	for i := range count {
		name := fmt.Sprintf("__%d_0_%s.distcp", i, idOf(1))
		write(t, filepath.Join(dir, name), content(uint64(i), 3000+i))
		list = append(list, fmt.Sprintf(`{"name":%q,"size":%d,"crc64nvme":%q}`, name, 3000+i,
			sumText(checksum.Of(content(uint64(i), 3000+i)))))
		bytes += int64(3000 + i)
		if i%7 == 0 {
			want = append(want, name)
		}
	}
	draft := fmt.Sprintf(`{"id":%q,"world":%d,"files":[%s]}`, idOf(1), count, strings.Join(list, ","))
	if _, err := Commit(t.Context(), NewLocal(dir),
		CommitRequest{Draft: []byte(draft), Metadata: []byte("m")}); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, dir); v.Verdict != VerdictGood || v.Read != bytes || v.World != count {
		t.Errorf("%+v", v)
	}
	for _, name := range want {
		flip(t, filepath.Join(dir, name), 77)
	}
	v := verify(t, dir)
	var got []string
	for _, p := range v.Problems {
		got = append(got, p.File)
	}
	if v.Verdict != VerdictDamaged || !slices.Equal(got, want) || v.Read != bytes {
		t.Errorf("%s, damaged %q, expected %q", v.Verdict, got, want)
	}
}
