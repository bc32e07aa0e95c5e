// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestBadFilesAreNamed packs a folder with files that are no samples.
func TestBadFilesAreNamed(t *testing.T) {
	good := map[string][]byte{"a.jpg": {1}, "a.cls": {2}, "Ü/b.JPG": {3}, "Ü/b.cls": {4}}
	for name, make := range map[string]func(dir string) error{
		"README":      func(dir string) error { return os.WriteFile(filepath.Join(dir, "README"), []byte{1}, 0o666) },
		".hidden":     func(dir string) error { return os.WriteFile(filepath.Join(dir, ".hidden"), []byte{1}, 0o666) },
		"__x__":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "__x__"), []byte{1}, 0o666) },
		"c.__key__":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "c.__key__"), []byte{1}, 0o666) },
		"bad\xff.jpg": func(dir string) error { return os.WriteFile(filepath.Join(dir, "bad\xff.jpg"), []byte{1}, 0o666) },
		"new\nline.jpg": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "new\nline.jpg"), []byte{1},
				0o666)
		},
		"link.jpg": func(dir string) error { return os.Symlink("nowhere", filepath.Join(dir, "link.jpg")) },
		"round":    func(dir string) error { return os.Symlink(dir, filepath.Join(dir, "round")) },
	} {
		src, out, back := t.TempDir(), fresh(t), fresh(t)
		write(t, src, good)
		if err := make(src); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), NewFolder(src), NewFolder(out), Options{Format: Tar})
		if name == "new\nline.jpg" && err == nil {
			continue // webdataset reads such names
		}
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "--skip-bad") {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if r := pack(t, src, out, Options{Format: Tar, SkipBad: true}); r.BadCount != 1 || r.Bad[0].Name != name ||
			r.Samples != 2 {
			t.Errorf("%q: %+v", name, r)
		}
		unpack(t, out, back)
		same(t, read(t, back, false), map[string][]byte{"a.jpg": {1}, "a.cls": {2}, "Ü/b.jpg": {3}, "Ü/b.cls": {4}})
	}
}

// TestUnreadableFilesAreSkipped leaves out samples whose files cannot be read, also after they were begun.
func TestUnreadableFilesAreSkipped(t *testing.T) {
	src := t.TempDir()
	files := samples(30, 21)
	files["large/x.bin"] = make([]byte, largePart+5)
	write(t, src, files)
	for _, format := range []string{Tar, MDS, TFRecord} {
		out, back := fresh(t), fresh(t)
		failing := &failingPlace{Place: NewFolder(src), fail: map[string]bool{"d1/e.f/0001.txt": true, "large/x.bin": true}}
		_, err := Run(t.Context(), failing, NewFolder(out), Options{Format: format, ShardSize: 100 << 10})
		if err == nil {
			t.Fatal("a file that cannot be read was packed")
		}
		r, err := Run(t.Context(), failing, NewFolder(out), Options{Format: format, ShardSize: 100 << 10, SkipBad: true})
		if err != nil || r.BadCount != 2 || r.Samples != 29 {
			t.Fatalf("%s: %+v, %v", format, r, err)
		}
		want := map[string][]byte{}
		for name, content := range files {
			if !strings.HasPrefix(name, "d1/e.f/0001.") && name != "large/x.bin" {
				want[name] = content
			}
		}
		unpack(t, out, back)
		same(t, read(t, back, false), want)
	}
}

// failingPlace cannot read some files. Of large ones, it can read the beginning.
type failingPlace struct {
	Place
	fail map[string]bool
}

func (p *failingPlace) NewReader() Reader { return &failingReader{p.Place.NewReader(), p} }

type failingReader struct {
	Reader
	p *failingPlace
}

func (r *failingReader) Read(ctx context.Context, e Entry, dst []byte) error {
	if r.p.fail[e.Name] {
		return errs.New(errs.IO, "read", e.Name, "a bad sector")
	}
	return r.Reader.Read(ctx, e, dst)
}

func (r *failingReader) ReadAt(ctx context.Context, e Entry, dst []byte, off int64) (int, error) {
	if r.p.fail[e.Name] && off > 1<<20 {
		return 0, errs.New(errs.IO, "read", e.Name, "a bad sector")
	}
	return r.Reader.ReadAt(ctx, e, dst, off)
}

func TestSamplesThatDifferAreRefused(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, map[string][]byte{"a.jpg": {1}, "a.JPG": {2}, "b.jpg": {1}, "b.cls": {1}, "c.cls": {1}})
	_, err := Run(t.Context(), NewFolder(src), NewFolder(out), Options{Format: Tar})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "two parts .jpg") {
		t.Errorf("two parts: %v", err)
	}
	r := pack(t, src, out, Options{Format: MDS, SkipBad: true})
	if r.Samples != 1 || r.BadCount != 2 || !strings.Contains(r.Bad[1].Reason, "has no part .jpg") {
		t.Errorf("%+v", r)
	}
	_, err = Run(t.Context(), NewFolder(t.TempDir()), NewFolder(fresh(t)), Options{Format: Tar})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "no samples") {
		t.Errorf("an empty folder: %v", err)
	}
	_, err = Run(t.Context(), NewFolder(filepath.Join(src, "nothing")), NewFolder(fresh(t)), Options{Format: Tar})
	if !errs.Is(err, errs.NotFound) {
		t.Errorf("no folder: %v", err)
	}
	for _, inside := range []string{src, filepath.Join(src, "pack"), src + "/x/../pack"} {
		_, err = Run(t.Context(), NewFolder(src), NewFolder(inside), Options{Format: Tar, SkipBad: true})
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "inside of its source") {
			t.Errorf("%s: %v", inside, err)
		}
	}
	_, err = Run(t.Context(), NewFolder(src), NewFolder(src+"-other"), Options{Format: Tar, SkipBad: true})
	if err != nil {
		t.Errorf("a folder beside the source: %v", err)
	}
	os.RemoveAll(src + "-other")
	_, err = Run(t.Context(), NewFolder(src), NewFolder(fresh(t)), Options{Format: MDS, SkipBad: true,
		Encodings: map[string]string{"cls": "int64"}})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "all") {
		t.Errorf("values of a wrong size: %v", err)
	}
}

// TestTooManyExtensions packs files whose names have dots in their keys.
func TestTooManyExtensions(t *testing.T) {
	src := fresh(t)
	files := map[string][]byte{}
	for i := range 1100 {
		files[fmt.Sprintf("image.%d.jpg", i)] = nil
	}
	write(t, src, files)
	_, err := Run(t.Context(), NewFolder(src), NewFolder(fresh(t)), Options{Format: MDS})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "1100 extensions") || errs.FixOf(err) == "" {
		t.Error(err)
	}
}

// TestAFolderAndABucketAreApart compares names of different kinds.
func TestAFolderAndABucketAreApart(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := apart(NewFolder("."), NewBucket(nil, "box", "x")); err != nil {
		t.Error(err)
	}
	if err := apart(NewBucket(nil, "box", "x"), NewBucket(nil, "box", "x/y")); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
	if err := apart(NewBucket(nil, "box", "x"), NewBucket(nil, "box", "xy")); err != nil {
		t.Error(err)
	}
}

// TestTwoPacksAtOnceAreRefused locks the destination.
func TestTwoPacksAtOnceAreRefused(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, samples(3, 1))
	unlock, err := NewFolder(out).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	_, err = Run(t.Context(), NewFolder(src), NewFolder(out), Options{Format: Tar})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "another process") {
		t.Error(err)
	}
}

// memory is a file of a pack in memory.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// TestHostileKeysWriteNothingElsewhere unpacks samples whose keys lead elsewhere or are equal.
func TestHostileKeysWriteNothingElsewhere(t *testing.T) {
	for _, keys := range [][]string{{"/etc/x"}, {"../x"}, {"a/../../x"}, {"a/../x"}, {"a//b"}, {"a/./b"}, {"nul\x00"},
		{".nebulaio-pack"}, {"same", "same"}, {"a", "a.jpg/b"}, {strings.Repeat("n", 300)}, {"./a"}} {
		data := []byte("0123456789")
		table := sample.NewTable("p.tar", int64(len(data)), []string{"jpg"}, 0)
		for i, key := range keys {
			if err := table.Add(key, sample.Extent{Offset: int64(i), Size: 2}); err != nil {
				t.Fatal(err)
			}
		}
		set, err := dataset.New([]*sample.Table{table})
		if err != nil {
			t.Fatal(err)
		}
		in := &Packed{Set: set, Tables: []*sample.Table{table},
			Open: func(context.Context, string) (Opened, error) { return memory{bytes.NewReader(data)}, nil }}
		top := t.TempDir()
		out := filepath.Join(top, "deep", "out")
		if _, err = Unpack(t.Context(), in, NewFolder(out), UnpackOptions{}); err == nil {
			t.Errorf("%q was unpacked", keys)
		}
		for name := range read(t, top, false) {
			if !strings.HasPrefix(name, "deep/out/") {
				t.Errorf("%q wrote %s", keys, name)
			}
		}
	}
}

// TestLinksInTheDestinationAreNotFollowed plants a link between two runs.
func TestLinksInTheDestinationAreNotFollowed(t *testing.T) {
	src, out, back, elsewhere := t.TempDir(), fresh(t), fresh(t), t.TempDir()
	write(t, src, map[string][]byte{"d/a.jpg": {1}})
	pack(t, src, out, Options{Format: Tar})
	in, err := OpenPack(t.Context(), NewFolder(out))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(t.Context(), in, &dyingPlace{Place: NewFolder(back), at: 8}, UnpackOptions{}); err == nil {
		t.Fatal("it was not interrupted")
	}
	if err := os.Symlink(elsewhere, filepath.Join(back, "d")); err != nil {
		t.Fatal(err)
	}
	_, err = Unpack(t.Context(), in, NewFolder(back), UnpackOptions{})
	if err == nil || len(read(t, elsewhere, true)) > 0 {
		t.Errorf("%v, files elsewhere: %d", err, len(read(t, elsewhere, true)))
	}
}

// TestUnpackRefusesDamage damages a pack with checksums, and a destination of another pack.
func TestUnpackRefusesDamage(t *testing.T) {
	src, out, back := t.TempDir(), fresh(t), fresh(t)
	write(t, src, samples(40, 30))
	pack(t, src, out, Options{Format: Tar})
	path := filepath.Join(out, "shard-000000.tar")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	write(t, out, map[string][]byte{filepath.Base(path): b})
	in, err := OpenPack(t.Context(), NewFolder(out))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Unpack(t.Context(), in, NewFolder(back), UnpackOptions{})
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("damage: %v", err)
	}
	if _, err := Unpack(t.Context(), in, NewFolder(back), UnpackOptions{NoVerify: true}); err != nil {
		t.Error(err)
	}
	other := fresh(t)
	pack(t, src, other, Options{Format: Tar, Shuffle: true})
	in, err = OpenPack(t.Context(), NewFolder(other))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Unpack(t.Context(), in, NewFolder(back), UnpackOptions{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("another pack: %v", err)
	}
	if _, err = Unpack(t.Context(), in, NewFolder(src), UnpackOptions{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a folder with files: %v", err)
	}
	for name, files := range map[string]map[string][]byte{
		"none of its": {"x.doc": {1}}, "is missing": {"x.bin": {1}},
		"it has .npy and .tfrecord": {"a.npy": array(t, "U16", []int64{1}, 1), "b.tfrecord": {}},
	} {
		dir := t.TempDir()
		write(t, dir, files)
		if _, err := OpenPack(t.Context(), NewFolder(dir)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestManyFilesInOneFolder lists a folder of more files than one goroutine examines.
func TestManyFilesInOneFolder(t *testing.T) {
	dir := fresh(t)
	files := map[string][]byte{}
	for i := range 3 * statPiece {
		files[fmt.Sprintf("%d.jpg", i)] = bytes.Repeat([]byte{1}, i%5)
	}
	write(t, dir, files)
	all, odd, err := NewFolder(dir).List(t.Context())
	if err != nil || len(odd) > 0 || len(all) != len(files) {
		t.Fatalf("%d files, %v, %v", len(all), odd, err)
	}
	for _, e := range all {
		if int64(len(files[e.Name])) != e.Size {
			t.Errorf("%+v", e)
		}
	}
}
