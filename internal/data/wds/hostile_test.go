// SPDX-License-Identifier: Apache-2.0

package wds_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// head returns a header in the format of GNU tar, with a correct checksum.
func head(name, size string, kind byte) string {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	copy(b[124:], size)
	copy(b[136:], "00000000000\x00        ")
	b[156] = kind
	copy(b[257:], "ustar  \x00")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(b)
}

// file returns a member with its data and padding.
func file(name, data string, kind byte) string {
	return head(name, fmt.Sprintf("%011o", len(data)), kind) + data + strings.Repeat("\x00", (512-len(data)%512)%512)
}

// signed replaces the checksum of a header by the sum of its signed bytes. The name must have one byte above 127.
func signed(member string) string {
	sum := 0
	fmt.Sscanf(member[148:154], "%o", &sum)
	return member[:148] + fmt.Sprintf("%06o", sum-256) + member[154:]
}

var end = strings.Repeat("\x00", 1024)

// TestOddButLegal reads archives with rare but legal content.
func TestOddButLegal(t *testing.T) {
	binary := "\x80" + strings.Repeat("\x00", 10) + "\x03"
	longName := strings.Repeat("n", 300) + ".JPG"
	for _, c := range []struct{ name, tar, want string }{
		{"no end", file("a.b", "xyz", '0'), "a{b:xyz}"},
		{"one block of zeros", file("a.b", "xyz", '0') + end[:512], "a{b:xyz}"},
		{"bytes after the end", file("a.b", "xyz", '0') + end + "garbage", "a{b:xyz}"},
		{"only the end", end, ""},
		{"signed sum", signed(file("\xe9.b", "xyz", '0')), "\xe9{b:xyz}"},
		{"base 256", head("a.b", binary, '0') + "xyz" + strings.Repeat("\x00", 509), "a{b:xyz}"},
		{"blank number", head("a.b", strings.Repeat(" ", 12), '0'), "a{b:}"},
		{"old kind", file("a.b", "xyz", 0) + file("dir.d/", "", 0) + file("a.c", "", '7'), "a{b:xyz c:}"},
		{"size of a link", head("l.b", "00000000777\x00", '1') + file("a.b", "xyz", '0'), "a{b:xyz}"},
		{"unknown kind", file("v.b", "volume", 'V') + file("a.b", "xyz", '0'), "a{b:xyz}"},
		{"long name", file("././@LongLink", "target\x00", 'K') + file("././@LongLink", longName+"\x00", 'L') +
			file("cut", "xyz", '0'), longName[:300] + "{jpg:xyz}"},
		{"PAX path", file("p", "14 path=k.jpg\n13 comment=x\n", 'x') + file("cut", "xyz", '0') + file("k.b", "", '0'),
			"k{jpg:xyz b:}"},
		{"PAX size", file("p", "9 size=3\n", 'x') + head("a.b", "00000000000", '0') + "xyz" + strings.Repeat("\x00", 509),
			"a{b:xyz}"},
		{"PAX size and a directory", file("p", "9 size=3\n", 'X') + head("d", "0", '5') + file("a.b", "xyz", '0'),
			"a{b:xyz}"},
		{"empty PAX values", file("p", "8 path=\n8 size=\n", 'x') + file("a.b", "xyz", '0'), "a{b:xyz}"},
		{"PAX path of slashes", file("p", "11 path=//\n", 'x') + file("a.b", "xyz", '0') + file("c.d", "", '0'), "c{d:}"},
		{"zeros after PAX", file("p", "8 path=\n\x00\x00", 'x') + file("a.b", "xyz", '0'), "a{b:xyz}"},
		{"PAX and a long link", file("p", "15 path=k.jpg/\n", 'x') + file("K", "t", 'K') + file("cut", "xyz", '0'),
			"k{jpg:xyz}"},
		{"long name and PAX", file("L", "k.jpg", 'L') + file("p", "13 comment=x\n", 'x') + file("cut", "xyz", '0'),
			"k{jpg:xyz}"},
		{"global header", file("g", "13 comment=x\n", 'g') + file("a.b", "xyz", '0'), "a{b:xyz}"},
		{"bad sample", file("b.new", "", '0') + file("b.__bad__", "1", '0') + file("a.__bad__", "", '0') +
			file("a.new", "", '0'), "a{__bad__: new:}"},
		{"same key again", file("a.x", "1", '0') + file("b.x", "2", '0') + file("a.x", "3", '0'), "a{x:1} b{x:2} a{x:3}"},
		{"skipped between", file("a.x", "1", '0') + file("noext", "2", '0') + file("a.y", "3", '0'), "a{x:1 y:3}"},
	} {
		s, err := open([]byte(c.tar))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for i, r := range contents(s.Table, []byte(c.tar)) {
			var parts []string
			for j, ext := range s.Table.Columns() {
				if _, ok := s.Table.Part(i, j); ok {
					parts = append(parts, ext+":"+r.Parts[ext])
				}
			}
			got = append(got, r.Key+"{"+strings.Join(parts, " ")+"}")
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, expected %q", c.name, got, c.want)
		}
		checkIndex(t, s)
	}
}

func TestDamagedArchives(t *testing.T) {
	good := file("a.b", strings.Repeat("d", 600), '0')
	many := func() string { // each sample has its own extension
		var b strings.Builder
		for i := range 3000 {
			b.WriteString(file(fmt.Sprintf("%d.%d", i, i), "", '0'))
		}
		return b.String()
	}
	for _, c := range []struct {
		name, tar string
		kind      errs.Kind
		says      string
	}{
		{"empty", "", errs.Corrupt, "the file is empty"},
		{"text", strings.Repeat("hello ", 200), errs.Corrupt, "does not begin with a tar header"},
		{"gzip", "\x1f\x8b" + strings.Repeat("x", 600), errs.Unsupported, "compressed with gzip"},
		{"short gzip", "\x1f\x8b" + strings.Repeat("x", 60), errs.Unsupported, "compressed with gzip"},
		{"zstd", "\x28\xb5\x2f\xfd" + strings.Repeat("x", 600), errs.Unsupported, "compressed with zstd"},
		{"short header", good + "x", errs.Corrupt, "the header at offset 1536 is truncated: 1 bytes are left"},
		{"shorter than a header", "x", errs.Corrupt, "the header at offset 0 is truncated"},
		{"damaged header", good + "b" + good[1:], errs.Corrupt,
			"the header at offset 1536 is damaged: the checksum field is"},
		{"truncated data", good[:1000], errs.Corrupt,
			`the member "a.b", with its header at offset 0, has 600 bytes, and the file ends after 488`},
		{"truncated padding", good[:1120], errs.Corrupt, `the member "a.b", with its header at offset 0, has no padding`},
		{"huge size", head("a.b", "\x80"+strings.Repeat("\xff", 11), '0'), errs.Corrupt, "has 9223372036854775807 bytes"},
		{"negative size", head("a.b", strings.Repeat("\xff", 12), '0'), errs.Corrupt,
			`the size field of the member "a.b" is "\xff`},
		{"size 8", head("a.b", "00000000008", '0'), errs.Corrupt, "expected an octal number"},
		{"duplicate", file("a.jpg", "", '0') + file("a.JPG", "", '0'), errs.Corrupt, `the sample "a" has two parts "jpg"`},
		{"reserved", file("a.__KEY__", "", '0'), errs.Corrupt, `two parts "__key__"`},
		{"sparse", file("a.b", "", 'S'), errs.Unsupported, "has holes"},
		{"PAX sparse", file("p", "22 GNU.sparse.major=1\n", 'x') + good, errs.Unsupported, "has holes"},
		{"global path", file("g", "14 path=k.jpg\n", 'g') + good, errs.Unsupported,
			"the global header at offset 0 sets the name"},
		{"PAX without member", file("p", "14 path=k.jpg\n", 'x') + end, errs.Corrupt, "ends after an extended header"},
		{"name without member", file("L", "k.jpg", 'L'), errs.Corrupt, "ends after an extended header"},
		{"two PAX headers", file("p", "14 path=k.jpg\n", 'x') + file("p", "14 path=l.jpg\n", 'x') + good, errs.Corrupt,
			"second PAX header"},
		{"two long names", file("L", "k.jpg", 'L') + file("L", "l.jpg", 'L') + good, errs.Corrupt, "a second name"},
		{"long name and PAX path", file("L", "k.jpg", 'L') + file("p", "14 path=k.jpg\n", 'x') + good, errs.Corrupt,
			"a second name"},
		{"PAX path and long name", file("p", "14 path=k.jpg\n", 'x') + file("L", "k.jpg", 'L') + good, errs.Corrupt,
			"a second name"},
		{"PAX length", file("p", "99 path=k.jpg\n", 'x') + good, errs.Corrupt, "does not end after its length"},
		{"PAX length 0", file("p", "0 path=k.jpg\n", 'x') + good, errs.Corrupt, "does not end after its length"},
		{"PAX negative", file("p", "-5 path=k.jpg\n", 'x') + good, errs.Corrupt, "does not end after its length"},
		{"PAX without newline", file("p", "14 path=k.jpgx", 'x') + good, errs.Corrupt, "does not end after its length"},
		{"PAX without key", file("p", "6 abc\n", 'x') + good, errs.Corrupt, "has no key"},
		{"PAX NUL", file("p", "14 path=k\x00jpg\n", 'x') + good, errs.Corrupt, "has a NUL"},
		{"PAX huge size", file("p", "28 size=9223372036854775807\n", 'x') + good, errs.Corrupt,
			"has 9223372036854775807 bytes"},
		{"PAX larger size", file("p", "29 size=18446744073709551615\n", 'x') + good, errs.Corrupt, "the PAX size is"},
		{"PAX truncated", file("p", "14 path=k.jpg\n", 'x')[:520], errs.Corrupt, "the file ends after 8"},
		{"large PAX", file("p", strings.Repeat(" ", 1<<20+1), 'x'), errs.Unsupported, "has 1048577 bytes"},
		{"many extensions", many(), errs.Unsupported, "3000 samples have 3000 different extensions"},
	} {
		_, err := open([]byte(c.tar))
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" ||
			!strings.Contains(err.Error(), "x.tar") {
			t.Errorf("%s: error is %v, expected %v %q", c.name, err, c.kind, c.says)
		}
	}
	for _, name := range []string{"sparse-gnu", "sparse-posix"} { // GNU tar 1.34 with --sparse
		if _, err := open(fixture(t, name)); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// zeros is a file of zeros with one header.
type zeros struct{ head string }

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z.head)) {
		copy(p, z.head[off:])
	}
	return len(p), nil
}

func TestMembersAboveTheLimit(t *testing.T) {
	size := int64(1)<<32 + 1024
	_, err := wds.Open(zeros{head("a.b", fmt.Sprintf("%011o", int64(1)<<32), '0')}, size, "x.tar")
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "has 4294967296 bytes, at most 4294967295") {
		t.Errorf("error is %v", err)
	}
	s, err := wds.Open(zeros{head("a.b", fmt.Sprintf("%011o", int64(1)<<32-1), '0')}, size, "x.tar")
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, s)
}

// TestMemory keeps what Open allocates within a few times the archive, for archives made to cost memory.
func TestMemory(t *testing.T) {
	repeat := func(n int, fn func(i int) string) []byte {
		var b bytes.Buffer
		for i := range n {
			b.WriteString(fn(i))
		}
		return b.Bytes()
	}
	for name, b := range map[string][]byte{
		"many samples":    repeat(3000, func(i int) string { return file(fmt.Sprintf("%d.a", i), "", '0') }),
		"many extensions": repeat(3000, func(i int) string { return file(fmt.Sprintf("a.%d", i), "", '0') }),
		"sparse": repeat(3000, func(i int) string {
			return file(fmt.Sprintf("%d.%d", i, i%40), "", '0')
		}),
		"bad samples": repeat(3000, func(i int) string {
			return file(fmt.Sprintf("%d.%d", i/2, i), "", '0') + file(fmt.Sprintf("%d.__bad__", i/2+i%2*3000), "1", '0')
		}),
		"long PAX": repeat(4, func(int) string {
			return file("p", strings.Repeat("6 a=b\n", 1<<20/6), 'x') + file("a", "", '0')
		}),
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := open(b)
		runtime.ReadMemStats(&after)
		if err != nil && !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %.1f times the file; %v", name, float64(used)/float64(len(b)), err)
		if used > uint64(16*len(b))+4<<20 {
			t.Errorf("%s: allocated %d bytes for an archive of %d", name, used, len(b))
		}
	}
}

func TestWriterRefusesNames(t *testing.T) {
	part := func(ext string) []wds.Part { return []wds.Part{{Ext: ext}} }
	var b bytes.Buffer
	w, err := wds.NewWriter(&b, "out.tar", wds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add("before", part("jpg")...); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key   string
		parts []wds.Part
		says  string
	}{
		{"", part("jpg"), "the key is empty"},
		{"a", part(""), "extension of a part is empty"},
		{"a", nil, "there are no parts"},
		{"a/", part("jpg"), "the key ends with a slash"},
		{"a.b", part("jpg"), `replace the dots, for example by "a_b"`},
		{"d.e/a.b.c", part("jpg"), `replace the dots, for example by "d.e/a_b_c"`},
		{".a", part("jpg"), "the key has a dot"},
		{"a", part("b/c"), "has a slash"},
		{"a", part("JPG"), `use "jpg"`},
		{"a\x00", part("jpg"), "has a NUL"},
		{"a", part("j\x00"), "has a NUL"},
		{"a\xff", part("jpg"), "is not UTF-8"},
		{"__a__/b", part("jpg"), "readers skip the name"},
		{"__a", part("b__"), "readers skip the name"},
		{"a", part("__key__"), "webdataset reserves"},
		{"a", part("__bad__"), "webdataset reserves"},
		{"/a", part("jpg"), "begins with a slash"},
		{"a/../b", part("jpg"), "leads out of its folder"},
		{"a\nb.c/d", part("jpg"), "readers would not find"},
		{strings.Repeat("a", 1<<16), part("jpg"), "the name has 65540 bytes"},
		{"a", append(part("jpg"), part("jpg")...), `two parts "jpg"`},
		{"before", part("png"), "the sample before has the same key"},
		{"a", []wds.Part{{Ext: "a", Size: -1}}, "has -1 bytes"},
		{"a", []wds.Part{{Ext: "a", Size: 1 << 32, Data: &b}}, "has 4294967296 bytes"},
		{"a", []wds.Part{{Ext: "a", Size: 1}}, "no reader"},
	} {
		_, err := w.Add(c.key, c.parts...)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%q %v: error is %v, expected %q", c.key, c.parts, err, c.says)
		}
	}
	if w.Size() != 512 {
		t.Errorf("%d bytes were written, expected those of one header", w.Size())
	}
	if _, err := w.Add("after", part("jpg")...); err != nil {
		t.Error(err)
	}
	if s, err := w.Close(); err != nil || s.Table.Len() != 2 || b.Len() != 10240 {
		t.Errorf("%+v %v, %d bytes", s, err, b.Len())
	}
	if _, err := w.Close(); !errs.Is(err, errs.Closed) {
		t.Errorf("error is %v", err)
	}
	if _, err := w.Add("late", part("jpg")...); !errs.Is(err, errs.Closed) {
		t.Errorf("error is %v", err)
	}
	for _, o := range []wds.Options{{Align: 512}, {Align: -1}, {AlignFrom: -1}} {
		if _, err := wds.NewWriter(&b, "out.tar", o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: error is %v", o, err)
		}
	}
}

// broken is a writer and a reader that fails.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }
func (broken) Read([]byte) (int, error)  { return 0, errors.New("cable cut") }

// TestBrokenPartsEndTheArchive gives a Writer data of another size, and readers and writers that fail.
func TestBrokenPartsEndTheArchive(t *testing.T) {
	for says, p := range map[string]wds.Part{
		"the data ends after 2 of 3 bytes": {Ext: "a", Size: 3, Data: strings.NewReader("ab")},
		"the data has more than 3 bytes":   {Ext: "a", Size: 3, Data: strings.NewReader("abcd")},
		"the data has more than 0 bytes":   {Ext: "a", Data: strings.NewReader("a")},
		"the data ends after 0 of 1 bytes": {Ext: "a", Size: 1, Data: strings.NewReader("")},
		"cable cut":                        {Ext: "a", Size: 1, Data: broken{}},
		"the data ends after 9 of 10 bytes": {Ext: "a", Size: 10,
			Data: io.LimitReader(strings.NewReader(strings.Repeat("x", 20)), 9)},
	} {
		w, err := wds.NewWriter(io.Discard, "out.tar", wds.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Add("k", p)
		_, again := w.Close()
		if err == nil || !strings.Contains(err.Error(), says) || again != err {
			t.Errorf("errors are %v and %v, expected %q", err, again, says)
		}
	}
	w, err := wds.NewWriter(broken{}, "out.tar", wds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error is %v", err)
	}
}

// TestWriterRefusesTooManyExtensions stops before the archive cannot be read any more.
func TestWriterRefusesTooManyExtensions(t *testing.T) {
	var b bytes.Buffer
	w, err := wds.NewWriter(&b, "x.tar", wds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for ; err == nil && i < 10000; i++ {
		_, err = w.Add(fmt.Sprint(i), wds.Part{Ext: fmt.Sprint(i)})
	}
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "different extensions") {
		t.Fatalf("error is %v after %d samples", err, i)
	}
	if _, err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := open(b.Bytes()); err != nil {
		t.Error(err)
	}
}
