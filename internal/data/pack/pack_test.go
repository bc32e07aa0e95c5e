// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// write writes files below a folder.
func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// read returns all files below a folder, without those that describe a pack.
func read(t *testing.T, dir string, all bool) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if all || !ours(name) {
			files[filepath.ToSlash(name)], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// same compares two sets of files byte by byte.
func same(t *testing.T, got, want map[string][]byte) {
	t.Helper()
	for name, content := range want {
		if g, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		} else if !bytes.Equal(g, content) {
			t.Errorf("%s differs: %d bytes, expected %d", name, len(g), len(content))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is too much", name)
		}
	}
}

// samples returns the files of n samples with the parts bin and txt, in several folders.
func samples(n int, seed uint64) map[string][]byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	files := map[string][]byte{}
	for i := range n {
		key := fmt.Sprintf("d%d/e.f/%04d", i%7, i)
		size := rng.IntN(20 << 10)
		files[key+".bin"] = noise[size : size+rng.IntN(20<<10)]
		files[key+".txt"] = fmt.Appendf(nil, "sample %d", i)
	}
	files["d0/e.f/0000.bin"] = []byte{} // an empty part
	return files
}

// fresh returns the path of a folder that does not exist yet. The folder is in memory if possible, because tests pack
// often, and each pack syncs often.
func fresh(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pack-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "out")
}

func pack(t *testing.T, src, out string, o Options) *Result {
	t.Helper()
	r, err := Run(t.Context(), NewFolder(src), NewFolder(out), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func unpack(t *testing.T, src, out string) *Unpacked {
	t.Helper()
	in, err := OpenPack(t.Context(), NewFolder(src))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Unpack(t.Context(), in, NewFolder(out), UnpackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEachFormatRoundTrip packs files and unpacks them.
func TestEachFormatRoundTrip(t *testing.T) {
	files := samples(300, 1)
	files["large/one.bin"] = bytes.Repeat([]byte("0123456789abcdef"), (largePart+100)/16)
	files["large/one.txt"] = []byte("large")
	src := t.TempDir()
	write(t, src, files)
	for name, o := range map[string]Options{
		"tar":      {Format: Tar, ShardSize: 1 << 20},
		"aligned":  {Format: Tar, ShardSize: 1 << 20, Aligned: true},
		"shuffled": {Format: Tar, ShardSize: 1 << 20, Shuffle: true, Seed: 7},
		"mds":      {Format: MDS, ShardSize: 1 << 20, Encodings: map[string]string{"txt": "str"}},
		"tfrecord": {Format: TFRecord, ShardSize: 1 << 20, Shuffle: true},
	} {
		t.Run(name, func(t *testing.T) {
			out, back := fresh(t), fresh(t)
			r := pack(t, src, out, o)
			if r.Samples != 301 || r.Shards < 4 || !r.Verified || r.BadCount != 0 || r.SourceFiles != 602 {
				t.Errorf("%+v", r)
			}
			u := unpack(t, out, back)
			if u.Samples != 301 || u.Files != 602 || u.Verified != r.Shards {
				t.Errorf("%+v", u)
			}
			same(t, read(t, back, false), files)
			for file := range read(t, out, true) {
				if strings.HasPrefix(file, recordPrefix) || strings.HasPrefix(file, tempPrefix) {
					t.Errorf("%s was left", file)
				}
			}
			again := pack(t, src, out, o)
			if !again.WasComplete || again.Samples != 301 {
				t.Errorf("the second run: %+v", again)
			}
			unpack(t, out, back)
		})
	}
}

// TestAlignedPartsBeginAtPages reads the table of an aligned pack.
func TestAlignedPartsBeginAtPages(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, samples(50, 2))
	pack(t, src, out, Options{Format: Tar, Aligned: true, ShardSize: 200 << 10})
	in, err := OpenPack(t.Context(), NewFolder(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range in.Tables {
		for i := range table.Len() {
			for c := range table.Columns() {
				if e, ok := table.Part(i, c); ok && e.Size > 0 && e.Offset%4096 != 0 {
					t.Fatalf("%s of %s begins at %d", table.Key(i), table.File(), e.Offset)
				}
			}
		}
		if table.Size() > 200<<10+16<<10 {
			t.Errorf("%s has %d bytes", table.File(), table.Size())
		}
	}
}

// TestShuffleIsStored compares the order of keys of two seeds and of no seed.
func TestShuffleIsStored(t *testing.T) {
	src := t.TempDir()
	write(t, src, samples(100, 3))
	order := func(o Options) string {
		out := fresh(t)
		o.Format = Tar
		pack(t, src, out, o)
		in, err := OpenPack(t.Context(), NewFolder(out))
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, table := range in.Tables {
			for i := range table.Len() {
				keys = append(keys, table.Key(i))
			}
		}
		return strings.Join(keys, " ")
	}
	plain, one, same, two := order(Options{}), order(Options{Shuffle: true, Seed: 1}),
		order(Options{Shuffle: true, Seed: 1}), order(Options{Shuffle: true, Seed: 2})
	if one != same || one == plain || one == two || len(one) != len(plain) {
		t.Error("the order does not follow the seed")
	}
}

// TestTheNumberOfLanesDoesNotMatter packs with different numbers of goroutines.
func TestTheNumberOfLanesDoesNotMatter(t *testing.T) {
	src := t.TempDir()
	write(t, src, samples(300, 4))
	var first map[string][]byte
	for _, lanes := range []int{1, 2, 5} {
		out := fresh(t)
		pack(t, src, out, Options{Format: Tar, ShardSize: 300 << 10, lanes: lanes, readers: lanes})
		if first == nil {
			first = read(t, out, true)
		}
		same(t, read(t, out, true), first)
	}
}

// TestOtherArgumentsAreRefused begins a pack, and goes on with other arguments or another source.
func TestOtherArgumentsAreRefused(t *testing.T) {
	src := t.TempDir()
	write(t, src, samples(20, 5))
	o := Options{Format: Tar, ShardSize: 50 << 10}
	other := func(change func(*Options)) Options {
		c := o
		change(&c)
		return c
	}
	out := fresh(t)
	dying := &dyingPlace{Place: NewFolder(out), at: 40}
	if _, err := Run(t.Context(), NewFolder(src), dying, other(func(o *Options) { o.lanes = 1 })); err == nil {
		t.Fatal("the pack was not interrupted")
	}
	for want, o := range map[string]Options{
		`the shard size was "51200" and is "102400" now`: other(func(o *Options) { o.ShardSize = 100 << 10 }),
		`the format was "tar" and is "tfrecord" now`:     other(func(o *Options) { o.Format = TFRecord }),
		`the shuffle was "no" and is "seed 3" now`:       other(func(o *Options) { o.Shuffle, o.Seed = true, 3 }),
		`the aligned was "false" and is "true" now`:      other(func(o *Options) { o.Aligned = true }),
	} {
		_, err := Run(t.Context(), NewFolder(src), NewFolder(out), o)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "--restart") {
			t.Errorf("%v, expected %s", err, want)
		}
	}
	write(t, src, map[string][]byte{"new.bin": {1}})
	_, err := Run(t.Context(), NewFolder(src), NewFolder(out), o)
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "it had 40 files and has 41 now") {
		t.Errorf("a changed source: %v", err)
	}
	r := pack(t, src, out, other(func(o *Options) { o.Restart = true }))
	if r.Samples != 21 || r.Resumed != 0 {
		t.Errorf("%+v", r)
	}
	if r := pack(t, src, out, other(func(o *Options) { o.Restart = true; o.ShardSize = 0 })); r.Shards != 1 {
		t.Errorf("%+v", r)
	}
	if files := read(t, out, true); len(files) != 4 {
		t.Errorf("--restart left %d files", len(files))
	}
	write(t, out, map[string][]byte{"mine.doc": {1}})
	_, err = Run(t.Context(), NewFolder(src), NewFolder(out), other(func(o *Options) { o.Restart = true }))
	if files := read(t, out, true); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "mine.doc") ||
		len(files) != 5 {
		t.Errorf("files of the user: %v, %d files are left", err, len(files))
	}
}

// TestAFileThatChangesIsNamed changes the size of a file between the listing and the reading.
func TestAFileThatChangesIsNamed(t *testing.T) {
	for _, size := range []int{0, 3, 5000, largePart + 1, largePart + 7} {
		src, out := t.TempDir(), fresh(t)
		write(t, src, map[string][]byte{"a.bin": make([]byte, 10), "b.bin": make([]byte, 4),
			"big.bin": make([]byte, largePart+4)})
		name := "b.bin"
		if size > largePart {
			name = "big.bin"
		}
		changing := &changingPlace{Place: NewFolder(src),
			then: func() { write(t, src, map[string][]byte{name: make([]byte, size)}) }}
		_, err := Run(t.Context(), changing, NewFolder(out), Options{Format: Tar, SkipBad: true})
		if !errors.Is(err, errChanged) || !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), filepath.Join(src, name)) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// changingPlace calls then after the listing.
type changingPlace struct {
	Place
	then func()
}

func (p *changingPlace) List(ctx context.Context) ([]Entry, []Bad, error) {
	e, b, err := p.Place.List(ctx)
	p.then()
	return e, b, err
}

// TestDamageIsFoundAndMended damages a shard before the comparison at the end. The next run packs it again.
func TestDamageIsFoundAndMended(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, samples(60, 6))
	o := Options{Format: Tar, ShardSize: 200 << 10}
	path := filepath.Join(out, "shard-000001.tar")
	o.Verifying = func(int64, int64) {}
	damage := &damagingPlace{Place: NewFolder(out), path: path, t: t}
	_, err := Run(t.Context(), NewFolder(src), damage, o)
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), path) {
		t.Fatalf("damage: %v", err)
	}
	r := pack(t, src, out, o)
	if r.Resumed != r.Shards-1 || !r.Verified {
		t.Errorf("%+v", r)
	}
	whole := fresh(t)
	pack(t, src, whole, o)
	same(t, read(t, out, true), read(t, whole, true))
}

// damagingPlace changes a byte of a file before it is listed for the comparison.
type damagingPlace struct {
	Place
	path string
	t    *testing.T
}

func (p *damagingPlace) List(ctx context.Context) ([]Entry, []Bad, error) {
	if b, err := os.ReadFile(p.path); err == nil {
		b[len(b)/2] ^= 1
		write(p.t, filepath.Dir(p.path), map[string][]byte{filepath.Base(p.path): b})
	}
	return p.Place.List(ctx)
}

// TestSidecarsAreThoseOfTheProject reads the checksums with the package that loads use.
func TestSidecarsAreThoseOfTheProject(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, samples(200, 8))
	pack(t, src, out, Options{Format: Tar})
	path := filepath.Join(out, "shard-000000.tar")
	want, err := checksum.Compute(t.Context(), path, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := checksum.Read(path, want.Size)
	if err != nil || fmt.Sprint(got.Blocks) != fmt.Sprint(want.Blocks) || len(got.Blocks) < 2 {
		t.Errorf("%v, %v, expected %v", got, err, want)
	}
}

// TestCancelKeepsFinishedShards cancels a pack in its middle.
func TestCancelKeepsFinishedShards(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, samples(200, 9))
	o := Options{Format: Tar, ShardSize: 200 << 10, lanes: 1}
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}
	_, err := Run(ctx, NewFolder(src), NewFolder(out), o)
	if !errs.Is(err, errs.Cancelled) || !strings.Contains(errs.FixOf(err), "same command") {
		t.Fatal(err)
	}
	for name := range read(t, out, true) {
		if strings.HasPrefix(name, tempPrefix) {
			t.Errorf("%s was left", name)
		}
	}
	o.Progress = nil
	if r := pack(t, src, out, o); r.Resumed == 0 || r.Resumed == r.Shards {
		t.Errorf("%+v", r)
	}
}
