// SPDX-License-Identifier: Apache-2.0

package wds_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// fixture returns the archive testdata/NAME.tar.gz, decompressed.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read is a sample with its content.
type read struct {
	Key   string            `json:"key"`
	Parts map[string]string `json:"parts"`
}

// webdataset returns what the webdataset package read from a fixture. The JSON has bytes as characters of Latin-1.
func webdataset(t testing.TB, name string) (all []read) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for ext, text := range s.Parts {
			b := make([]byte, 0, len(text))
			for _, r := range text {
				b = append(b, byte(r))
			}
			s.Parts[ext] = string(b)
		}
	}
	return all
}

// contents reads all samples of a table.
func contents(t *sample.Table, b []byte) (all []read) {
	for i := range t.Len() {
		s := read{t.Key(i), map[string]string{}}
		for c, ext := range t.Columns() {
			if e, ok := t.Part(i, c); ok {
				s.Parts[ext] = string(b[e.Offset:][:e.Size])
			}
		}
		all = append(all, s)
	}
	return all
}

func open(b []byte) (*wds.Shard, error) { return wds.Open(bytes.NewReader(b), int64(len(b)), "x.tar") }

// pack writes samples, with their parts sorted by extension, and compares the shard of the Writer with that of Open.
func pack(t testing.TB, all []read, o wds.Options) ([]byte, *wds.Shard) {
	t.Helper()
	var b bytes.Buffer
	w, err := wds.NewWriter(&b, "x.tar", o)
	if err != nil {
		t.Fatal(err)
	}
	var extents []sample.Extent
	for _, s := range all {
		var parts []wds.Part
		for _, ext := range slices.Sorted(maps.Keys(s.Parts)) {
			parts = append(parts, wds.Part{Ext: ext, Size: int64(len(s.Parts[ext])), Data: strings.NewReader(s.Parts[ext])})
		}
		got, err := w.Add(s.Key, parts...)
		if err != nil {
			t.Fatal(err)
		}
		extents = append(extents, got...)
	}
	shard, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	again, err := open(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(shard, again) {
		t.Fatalf("the Writer returns\n%+v, and Open\n%+v", shard, again)
	}
	n := 0
	for i, s := range all {
		for _, ext := range slices.Sorted(maps.Keys(s.Parts)) {
			if e, _ := again.Table.Part(i, again.Table.Column(ext)); e != extents[n] {
				t.Fatalf("Add returned %v for %s.%s, expected %v", extents[n], s.Key, ext, e)
			}
			n++
		}
	}
	return b.Bytes(), shard
}

// TestArchivesOfPeers compares archives that other programs wrote with what webdataset reads from them. webdataset
// 1.0.2 on Python 3.11.7 read all of them. The archives webdataset*, dali were written by its TarWriter, with mtime=0
// except for webdataset-times; dali-odd by Python's tarfile; and gnutar-FORMAT by GNU tar 1.34 with --format=FORMAT.
func TestArchivesOfPeers(t *testing.T) {
	unusual := wds.Skipped{NotRegular: 4, NoExtension: 4, Metadata: 2}
	for name, skipped := range map[string]wds.Skipped{
		"webdataset": {}, "webdataset-times": {}, "dali": {}, "dali-odd": {NoExtension: 1},
		"gnutar-gnu": unusual, "gnutar-oldgnu": unusual, "gnutar-posix": unusual,
		"gnutar-ustar": {NotRegular: 3, NoExtension: 4, Metadata: 2},
	} {
		b := fixture(t, name)
		s, err := open(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := contents(s.Table, b), webdataset(t, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%q, webdataset reads\n%q", name, got, want)
		}
		if s.Skipped != skipped {
			t.Errorf("%s: skipped %+v, expected %+v", name, s.Skipped, skipped)
		}
	}
}

// TestWriterWritesTheBytesOfWebdataset writes the samples of webdataset's own archive again.
func TestWriterWritesTheBytesOfWebdataset(t *testing.T) {
	want := fixture(t, "webdataset")
	if got, _ := pack(t, webdataset(t, "webdataset"), wds.Options{}); !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Errorf("%d bytes, expected %d; the byte at %d differs", len(got), len(want), i)
	}
	golden, shard := pack(t, []read{{"000000", map[string]string{"cls": "7", "jpg": "hello"}}}, wds.Options{})
	sum := sha256.Sum256(golden)
	if got := hex.EncodeToString(sum[:]); got != "601082b4b956fb0d16737efe10212565ddc9cd5bfca2da56cb7e682627657f72" {
		t.Errorf("sha256 %s of %d bytes", got, len(golden))
	}
	cls, _ := shard.Table.Part(0, 0)
	jpg, _ := shard.Table.Part(0, 1)
	if cls != (sample.Extent{Offset: 512, Size: 1}) || jpg != (sample.Extent{Offset: 1536, Size: 5}) {
		t.Errorf("%v %v", cls, jpg)
	}
}

// TestAlignedArchiveByteByByte holds the headers of an aligned archive against the profile.
func TestAlignedArchiveByteByByte(t *testing.T) {
	b, s := pack(t, []read{
		{"a", map[string]string{"bin": strings.Repeat("1", 3072)}}, // the next data would begin 512 bytes before a page
		{"b", map[string]string{"bin": strings.Repeat("2", 3584)}}, // the next data begins at a page without a comment
		{"c", map[string]string{"bin": "3", "empty": ""}},
	}, wds.Options{Align: 4096})
	var offsets []int64
	for i := range s.Table.Len() {
		for c := range s.Table.Columns() {
			if e, ok := s.Table.Part(i, c); ok {
				offsets = append(offsets, e.Offset)
			}
		}
	}
	if want := []int64{4096, 12288, 16384, 17408}; !slices.Equal(offsets, want) {
		t.Errorf("offsets %v, expected %v", offsets, want)
	}
	for at, n := range map[int]int{0: 3072, 7168: 4096} {
		head := string(b[at:][:156])
		if want := fmt.Sprintf("././@PaxHeader%s0000000\x000000000\x000000000\x00%011o\x0000000000000\x00",
			strings.Repeat("\x00", 86), n); head[:148] != want {
			t.Errorf("the header is %q, expected %q", head[:148], want)
		}
		comment := fmt.Sprintf("%d comment=", n)
		if got, want := string(b[at+512:][:n]), comment+strings.Repeat(" ", n-len(comment)-1)+"\n"; b[at+156] != 'x' ||
			got != want {
			t.Errorf("the comment is %.40q…, expected %.40q…", got, want)
		}
		if b[at+512+n+156] != '0' {
			t.Errorf("no regular member follows the comment")
		}
	}
}

// shapes returns random samples.
func shapes(rng *rand.Rand, n int) (all []read) {
	exts := []string{"jpg", "cls", "txt", "seg.png", "ä", "json"}
	for i := range n {
		s := read{fmt.Sprintf("%06d", i), map[string]string{}}
		switch rng.IntN(8) {
		case 0:
			s.Key = "dir.d/" + s.Key
		case 1:
			s.Key = strings.Repeat("p/", rng.IntN(400)) + s.Key
		case 2:
			s.Key = strings.Repeat("é", rng.IntN(300)) + s.Key
		}
		for _, c := range rng.Perm(len(exts))[:1+rng.IntN(3)] {
			size := []int{0, 1, rng.IntN(511), 511, 512, 513, rng.IntN(10000)}[rng.IntN(7)]
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			s.Parts[exts[c]] = string(b)
		}
		all = append(all, s)
	}
	return all
}

// TestRoundTrip writes random samples, and reads them with Open, with the index and with Go's archive/tar.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := shapes(rng, rng.IntN(60))
		o := wds.Options{Align: int(seed%2) * 4096, AlignFrom: int64(seed % 3 * 300)}
		b, s := pack(t, all, o)
		if got := contents(s.Table, b); !reflect.DeepEqual(got, all) {
			t.Fatalf("seed %d: the samples differ", seed)
		}
		for i := range s.Table.Len() {
			for c := range s.Table.Columns() {
				if e, ok := s.Table.Part(i, c); ok && o.Align > 0 && e.Size > 0 && e.Size >= o.AlignFrom && e.Offset%4096 != 0 {
					t.Fatalf("seed %d: a part of %d bytes begins at %d", seed, e.Size, e.Offset)
				}
			}
		}
		again, _ := pack(t, all, o)
		if !bytes.Equal(again, b) {
			t.Fatalf("seed %d: the same samples gave other bytes", seed)
		}
		checkIndex(t, s)
		i := 0
		for r := tar.NewReader(bytes.NewReader(b)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(r)
			for i < len(all) && len(all[i].Parts) == 0 {
				i++
			}
			ext, ok := strings.CutPrefix(h.Name, all[i].Key+".")
			if !ok || all[i].Parts[ext] != string(data) || h.Mode != 0o444 || h.ModTime.Unix() != 0 {
				t.Fatalf("seed %d: archive/tar reads %q, mode %o, time %v", seed, h.Name, h.Mode, h.ModTime)
			}
			delete(all[i].Parts, ext)
		}
		if i+1 < len(all) {
			t.Fatalf("seed %d: archive/tar read %d of %d samples", seed, i+1, len(all))
		}
	}
}

// TestArchivesOfGo reads archives that archive/tar wrote, in each of its formats.
func TestArchivesOfGo(t *testing.T) {
	long, prefixed := "s/"+strings.Repeat("ä", 60)+strings.Repeat("x", 60), strings.Repeat("dir/", 35)+"f"
	for format, key := range map[tar.Format]string{tar.FormatUSTAR: prefixed, tar.FormatPAX: long, tar.FormatGNU: long} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if format == tar.FormatPAX {
			err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "abc"}})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, ext := range []string{"jpg", "txt"} {
			err := w.WriteHeader(&tar.Header{Name: key + "." + ext, Size: 3, Mode: 0o644, Format: format})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(w, ext)
		}
		w.Close()
		s, err := open(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		want := []read{{key, map[string]string{"jpg": "jpg", "txt": "txt"}}}
		if got := contents(s.Table, b.Bytes()); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %q, expected %q", format, got, want)
		}
	}
}

// countingReader counts reads and their bytes.
type countingReader struct {
	io.ReaderAt
	reads, bytes int
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

// TestScansReadLargePieces scans many small members with few reads, and large members without their data.
func TestScansReadLargePieces(t *testing.T) {
	var small, large []read
	for i := range 3000 {
		small = append(small, read{fmt.Sprint(i), map[string]string{"a": "1", "b": "2"}})
	}
	data := strings.Repeat("x", 3<<20)
	for i := range 5 {
		large = append(large, read{fmt.Sprint(i), map[string]string{"a": data}})
	}
	for _, c := range []struct {
		samples      []read
		reads, bytes int
	}{{small, 12, 7 << 20}, {large, 8, 2 << 20}} {
		b, _ := pack(t, c.samples, wds.Options{})
		r := &countingReader{ReaderAt: bytes.NewReader(b)}
		if _, err := wds.Open(r, int64(len(b)), "x.tar"); err != nil {
			t.Fatal(err)
		}
		if r.reads > c.reads || r.bytes > c.bytes {
			t.Errorf("%d reads with %d bytes of a file of %d bytes, expected at most %d reads and %d bytes", r.reads, r.bytes,
				len(b), c.reads, c.bytes)
		}
	}
}

// failing is a reader that fails after some bytes.
type failing struct{ left int64 }

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.left {
		return 0, os.ErrPermission
	}
	return len(p), nil
}

func TestReadErrors(t *testing.T) {
	_, err := wds.Open(&failing{}, 10240, "x.tar")
	if !errs.Is(err, errs.Permission) {
		t.Errorf("error is %v, expected kind permission", err)
	}
	b := fixture(t, "dali")
	_, err = wds.Open(bytes.NewReader(b), int64(len(b))+512, "x.tar")
	if !errs.Is(err, errs.IO) {
		t.Errorf("error is %v, expected kind IO for a file that became shorter", err)
	}
}
