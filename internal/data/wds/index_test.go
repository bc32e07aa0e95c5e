// SPDX-License-Identifier: Apache-2.0

package wds_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func index(t testing.TB, s *wds.Shard) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := wds.WriteIndex(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readIndex(b []byte) (*wds.Shard, error) {
	return wds.ReadIndex(bytes.NewReader(b), int64(len(b)), "x.tar"+wds.Suffix)
}

// checkIndex writes the index of a shard and expects to read the same shard.
func checkIndex(t testing.TB, s *wds.Shard) {
	t.Helper()
	again, err := readIndex(index(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, again) {
		t.Fatalf("wrote\n%+v\nread\n%+v", s, again)
	}
}

// TestIndexByteByByte holds the index of the archive of the specification against its format.
func TestIndexByteByByte(t *testing.T) {
	s, err := open(fixture(t, "dali-odd"))
	if err != nil {
		t.Fatal(err)
	}
	s.Fingerprint = 0x0123456789abcdef
	b := index(t, s)
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	want := "NIOWDSIX" + "\x01\x00\x00\x00" + "\x03\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\x28\x00\x00\x00\x00\x00\x00" + "\xef\xcd\xab\x89\x67\x45\x23\x01" + "\x00\x01\x00\x00" +
		"\x03jpg\x03cls\x04json" +
		"\x00\x01a" + "\x03\x05" + "\x07\x05" + "\x00" + // after a.jpg come README and a.cls
		"\x00\x05__m__" + "\x00" + "\x00" + "\x03\x0a" +
		"\x00\x01B" + "\x03\x05" + "\x00" + "\x00"
	if string(body) != want || sum != checksum.Of(body) {
		t.Errorf("index\n%q, expected\n%q; sum %x, expected %x", body, want, sum, checksum.Of(body))
	}
}

func TestIndexOfAnotherArchive(t *testing.T) {
	b := fixture(t, "webdataset-times")
	s, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	s, err = readIndex(index(t, s))
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte, says string) {
		t.Helper()
		err := s.Check(bytes.NewReader(b), int64(len(b)))
		switch {
		case says == "" && err != nil:
			t.Error(err)
		case says != "" && (!errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), says)):
			t.Errorf("error is %v, expected %q", err, says)
		}
	}
	check(b, "")
	other := bytes.Clone(b)
	other[600]++
	check(other, "for another archive")
	other = bytes.Clone(b)
	other[len(b)-1]++
	check(other, "for another archive")
	check(b[:len(b)-512], "an archive of 30720 bytes, and this archive has 30208")
	if s.Check(&failing{}, int64(len(b))) == nil {
		t.Error("a failed read was accepted")
	}
}

// TestFingerprintOfALargeArchive finds a change in the last 64 KiB, and the Writer and Open compute the same.
func TestFingerprintOfALargeArchive(t *testing.T) {
	b, s := pack(t, []read{{"a", map[string]string{"bin": strings.Repeat("0123456789", 100000)}}}, wds.Options{})
	for _, at := range []int{0, 65535, len(b) - 65536, len(b) - 1} {
		b[at]++
		if err := s.Check(bytes.NewReader(b), int64(len(b))); !errs.Is(err, errs.Corrupt) {
			t.Errorf("byte %d: error is %v", at, err)
		}
		b[at]--
	}
	if err := s.Check(bytes.NewReader(b), int64(len(b))); err != nil {
		t.Error(err)
	}
}

// TestEveryDamageIsFound changes each byte of an index, and cuts the index after each byte.
func TestEveryDamageIsFound(t *testing.T) {
	s, err := open(fixture(t, "dali"))
	if err != nil {
		t.Fatal(err)
	}
	b := index(t, s)
	for i := range b {
		b[i] ^= 0x40
		if _, err := readIndex(b); err == nil {
			t.Errorf("a change of byte %d was accepted", i)
		}
		b[i] ^= 0x40
		if _, err := readIndex(b[:i]); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%d bytes: error is %v", i, err)
		}
	}
}

// sealed returns an index with the given parts and a correct sum.
func sealed(columns uint32, samples, size uint64, body string) []byte {
	b := append([]byte("NIOWDSIX"), 1, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, columns)
	b = binary.LittleEndian.AppendUint64(b, samples)
	b = binary.LittleEndian.AppendUint64(b, size)
	b = append(b, "fingerpr"...)
	return resealed(append(b, body...))
}

// resealed appends the sum to the body of an index.
func resealed(body []byte) []byte { return binary.LittleEndian.AppendUint64(body, checksum.Of(body)) }

func TestHostileIndexes(t *testing.T) {
	huge, none := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x00\x00\x00\x00"
	for _, c := range []struct {
		b    []byte
		kind errs.Kind
		says string
	}{
		{nil, errs.Corrupt, "it has 0 bytes, expected at least 48"},
		{bytes.Repeat([]byte{7}, 100), errs.Corrupt, "it begins with"},
		{resealed(append([]byte("NIOWDSIX\x02"), make([]byte, 40)...)), errs.Unsupported, "has version 2, expected 1"},
		{sealed(1<<32-1, 1, 1024, none), errs.Corrupt, "4294967295 columns"},
		{sealed(1, 1<<60, 1024, none+"\x01a"), errs.Corrupt, "1152921504606846976 samples"},
		{sealed(0, 1, 1024, none), errs.Corrupt, "1 samples with 0 columns"},
		{sealed(0, 1, 1024, none+"\x00\x01a"), errs.Corrupt, "sample 0 has no parts"},
		{sealed(1, 1, 1<<63, none+"\x01a\x00\x01k\x03\x05"), errs.Corrupt, "an archive of 9223372036854775808 bytes"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k\x03"), errs.Corrupt, "a number ends after the index"},
		{sealed(1, 1, 1024, none+huge+"a\x00\x01k\x03\x05"), errs.Corrupt, "a name of 18446744073709551615 bytes"},
		{sealed(2, 1, 1024, none+"\x01a\x01a\x00\x01k\x03\x05\x00"), errs.Corrupt, `two columns "a"`},
		{sealed(1, 1, 1024, none+"\x01a\x01\x01k\x03\x05"), errs.Corrupt, "takes 1 bytes from the key before, which has 0"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x00\x03\x05"), errs.Corrupt, "sample 0 has no key"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k\x00"), errs.Corrupt, "sample 0 has no parts"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k\x02\x05"), errs.Corrupt, "begins at block -1"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k"+huge+"\x05"), errs.Corrupt, "begins at block"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k\x03"+huge), errs.Corrupt, "a part of 18446744073709551615 bytes"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k\x03\x81\x04"), errs.Corrupt, "513 bytes at offset 512 end after the file"},
		{sealed(1, 1, 1024, none+"\x01a\x00\x01k\x03\x05!"), errs.Corrupt, "1 bytes follow the last sample"},
	} {
		_, err := readIndex(c.b)
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%q: error is %v, expected %v %q", c.b, err, c.kind, c.says)
		}
	}
	if _, err := readIndex(sealed(1, 1, 1024, none+"\x01a\x00\x01k\x03\x05")); err != nil {
		t.Error(err)
	}
	if _, err := wds.ReadIndex(bytes.NewReader(nil), 1<<62, "x"); !errs.Is(err, errs.Corrupt) {
		t.Errorf("error is %v", err)
	}
}

func TestTablesWithoutIndex(t *testing.T) {
	for says, table := range map[string]*sample.Table{
		"sample 0 has no key": sample.NewTable("x", 4096, []string{"a"}, 0),
		"no multiple of 512":  sample.NewTable("x", 4096, []string{"a"}, 0),
	} {
		key := map[bool]string{true: "", false: "k"}[strings.Contains(says, "key")]
		if err := table.Add(key, sample.Extent{Offset: 1}); err != nil {
			t.Fatal(err)
		}
		if err := wds.WriteIndex(&bytes.Buffer{}, &wds.Shard{Table: table}); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("error is %v, expected %q", err, says)
		}
	}
}

// TestIndexesOfDALI reads indexes of DALI's tools/wds2idx.py, version 2.4.0dev at 433c7b065, with GNU tar 1.34.
func TestIndexesOfDALI(t *testing.T) {
	for _, name := range []string{"dali", "dali-odd"} {
		b := fixture(t, name)
		text, err := os.ReadFile("testdata/" + name + ".idx")
		if err != nil {
			t.Fatal(err)
		}
		s, err := open(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wds.ReadDALI(text, name+".idx", "x.tar", int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, s.Table) {
			t.Errorf("%s: %+v, expected %+v", name, got, s.Table)
		}
		if name == "dali-odd" { // wds2idx lists names that webdataset drops
			continue
		}
		var written bytes.Buffer
		if err := wds.WriteDALI(&written, s.Table); err != nil || written.String() != string(text) {
			t.Errorf("%v, wrote\n%s, wds2idx wrote\n%s", err, &written, text)
		}
	}
}

func TestHostileIndexesOfDALI(t *testing.T) {
	for text, says := range map[string]string{
		"":                                         "expected \"v1.2\"",
		"hello":                                    "expected \"v1.2\"",
		"v1.1 1\njpg 512 5":                        `version "v1.1"`,
		"v1.2":                                     "expected \"v1.2\" and the number",
		"v1.2 x\n":                                 `number of samples is "x"`,
		"v1.2 99999999999999999999\n":              "number of samples",
		"v1.2 2\njpg 512 5 a.jpg\n":                "has 1 samples, and the line says 2",
		"v1.2 1\njpg 512 5\n":                      "line 2: there are 3 fields",
		"v1.2 2\n\njpg 512 5 a.jpg\n":              "line 2: there are 0 fields",
		"v1.2 1\njpg 513 5 a.jpg\n":                `offset is "513"`,
		"v1.2 1\njpg 0 5 a.jpg\n":                  `offset is "0"`,
		"v1.2 1\njpg -512 5 a.jpg\n":               `offset is "-512"`,
		"v1.2 1\njpg 512 4294967296 a.jpg":         `size is "4294967296"`,
		"v1.2 1\njpg 512 x a.jpg":                  `size is "x"`,
		"v1.2 1\npng 512 1 a.jpg":                  `extension is "png", and the name is "a.jpg"`,
		"v1.2 1\njpg 512 1 a.jpg JPG 1024 1 a.JPG": `two parts "jpg"`,
		"v1.2 1\njpg 9216 1025 a.jpg":              "end after the file",
		`v1.2 1` + "\n" + `jpg 512 1 \303.jpg`:     "has a backslash",
	} {
		_, err := wds.ReadDALI([]byte(text), "x.idx", "x.tar", 10240)
		if kind := errs.KindOf(err); kind != errs.Corrupt && kind != errs.Unsupported ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: error is %v, expected %q", text, err, says)
		}
	}
}

// TestIndexOfDALIWithMuchSpace reads an index that ends with 16 MiB of spaces. ReadDALI would need minutes if it looked
// at all of them for each line.
func TestIndexOfDALIWithMuchSpace(t *testing.T) {
	const n = 20000
	text := fmt.Appendf(nil, "v1.2 %d\n", n)
	for i := range n {
		text = fmt.Appendf(text, "jpg 512 1 %d.jpg\n", i)
	}
	got, err := wds.ReadDALI(append(text, bytes.Repeat([]byte(" \n"), 8<<20)...), "x.idx", "x.tar", 10240)
	if err != nil || got.Len() != n {
		t.Errorf("%v", err)
	}
}

func TestWriteDALIRefusesNames(t *testing.T) {
	for _, c := range []struct{ key, ext, says string }{
		{"a b", "jpg", "white space"}, {"a", "", "must have an extension"}, {"a\u00a0", "jpg", "white space"},
		{`a\`, "jpg", "backslash"}, {"", "", "no samples"},
	} {
		table := sample.NewTable("x", 4096, []string{c.ext}, 0)
		if c.key != "" {
			if err := table.Add(c.key, sample.Extent{Offset: 512}); err != nil {
				t.Fatal(err)
			}
		}
		var b bytes.Buffer
		if err := wds.WriteDALI(&b, table); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), c.says) || b.Len() > 0 {
			t.Errorf("%q: error is %v, expected %q; wrote %q", c.key, err, c.says, &b)
		}
	}
}

// TestIndexIsCompact keeps the index of usual samples below 20 bytes for each.
func TestIndexIsCompact(t *testing.T) {
	var all []read
	for i := range 1000 {
		all = append(all, read{"train/n01440764/" + hex.EncodeToString([]byte{byte(i >> 8), byte(i)}),
			map[string]string{"cls": "7", "jpg": strings.Repeat("x", 300+i)}})
	}
	_, s := pack(t, all, wds.Options{})
	checkIndex(t, s)
	if n := len(index(t, s)); n > 10*len(all) {
		t.Errorf("%d bytes for %d samples", n, len(all))
	}
}
