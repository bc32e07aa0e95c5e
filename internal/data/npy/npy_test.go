// SPDX-License-Identifier: Apache-2.0

package npy_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// golden is numpy.save of the array [[1, 2], [3, 4]] of int16: a header of 128 bytes and the elements.
const golden = "\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }" +
	"                                                          \n\x01\x00\x02\x00\x03\x00\x04\x00"

// open parses a file in memory.
func open(file []byte) (*npy.Array, error) {
	return npy.Open(bytes.NewReader(file), int64(len(file)), "x.npy")
}

// made returns a file with a header text, without padding.
func made(major byte, text string, data int) []byte {
	b := append([]byte("\x93NUMPY"), major, 0)
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	}
	return append(append(b, text...), make([]byte, data)...)
}

// rows returns the bytes of each row.
func rows(a *npy.Array, file []byte) [][]byte {
	all := make([][]byte, a.Table.Len())
	for i := range all {
		e, _ := a.Table.Part(i, 0)
		all[i] = file[e.Offset : e.Offset+e.Size]
	}
	return all
}

// write writes an array.
func write(t testing.TB, dtype format.DType, shape []int64, all [][]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := npy.NewWriter(&file, "y.npy", dtype, shape)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range all {
		if err := w.Add(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestGoldenFile(t *testing.T) {
	file := write(t, format.I16, []int64{2, 2}, [][]byte{{1, 0, 2, 0}, {3, 0, 4, 0}})
	if string(file) != golden {
		t.Errorf("%q", file)
	}
}

// TestFilesOfNumPy reads files that numpy 2.4.6 wrote with numpy.save, and with numpy.lib.format.write_array for the
// versions 2.0 and 3.0. The expected rows are from numpy.load. Each file that numpy.save wrote is written again.
func TestFilesOfNumPy(t *testing.T) {
	raw, err := os.ReadFile("testdata/numpy.json")
	if err != nil {
		t.Fatal(err)
	}
	var files []struct {
		Name   string
		File   []byte
		DType  format.DType
		Shape  []int64
		Rows   []string
		NumPy1 bool   // of version 1.0
		Says   string // why we do not read the file, or ""
	}
	if err := json.Unmarshal(raw, &files); err != nil || len(files) != 39 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, want := range files {
		a, err := open(want.File)
		if want.Says != "" {
			if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), want.Says) || errs.FixOf(err) == "" {
				t.Errorf("%s: %v, expected %q", want.Name, err, want.Says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		if a.DType != want.DType || !slices.Equal(a.Shape, want.Shape) || a.DataOffset%64 != 0 ||
			a.Table.File() != "x.npy" || a.Table.Len() != len(want.Rows) {
			t.Errorf("%s: %+v, expected %s of %v", want.Name, a, want.DType, want.Shape)
			continue
		}
		all := rows(a, want.File)
		for i, row := range all {
			if hex.EncodeToString(row) != want.Rows[i] {
				t.Errorf("%s, row %d: %x, expected %s", want.Name, i, row, want.Rows[i])
			}
		}
		if again := write(t, a.DType, a.Shape, all); want.NumPy1 && !bytes.Equal(again, want.File) {
			t.Errorf("%s: written again: %q, expected %q", want.Name, again, want.File)
		}
	}
}

// TestRowsComeBack writes random arrays and reads them back.
func TestRowsComeBack(t *testing.T) {
	rng, content := rand.New(rand.NewPCG(7, 8)), rand.NewChaCha8([32]byte{9})
	dtypes := []format.DType{format.Bool, format.U8, format.I8, format.U16, format.I16, format.F16, format.U32, format.I32,
		format.F32, format.U64, format.I64, format.F64, format.C64}
	for range 300 {
		dtype := dtypes[rng.IntN(len(dtypes))]
		shape := []int64{rng.Int64N(20)}
		size := dtype.Bits() / 8
		for range rng.IntN(5) {
			n := 1 + rng.IntN(4)
			shape = append(shape, int64(n))
			size *= n
		}
		all := make([][]byte, shape[0])
		for i := range all {
			all[i] = make([]byte, size)
			content.Read(all[i])
		}
		file := write(t, dtype, shape, all)
		a, err := open(file)
		if err != nil || a.DType != dtype || !slices.Equal(a.Shape, shape) ||
			!slices.EqualFunc(rows(a, file), all, bytes.Equal) {
			t.Fatalf("%s of %v: %+v, %v", dtype, shape, a, err)
		}
	}
}

// Good headers that numpy.save does not write.
func TestOtherSpellingsAreRead(t *testing.T) {
	for _, c := range []struct {
		major byte
		text  string
	}{
		{1, `{'descr':'<i2','fortran_order':False,'shape':(2,3)}`},
		{1, "{\n \"shape\" : (2 , 3 , ) ,\t'fortran_order': False, 'descr': ( '<i2' ) }  \n\n"},
		{1, `{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 3L), }`},
		{2, `{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 3), }`},
		{3, `{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }` + strings.Repeat(" ", 60<<10)},
		{1, `{'descr': 'b1', 'fortran_order': False, 'shape': (12,), }`},
		{1, `{'descr': '<?', 'fortran_order': True, 'shape': (12,), }`},
		{1, `{'descr': '>u1', 'fortran_order': False, 'shape': (1, 12), }`},
		{1, `{'descr': '<i2', 'fortran_order': True, 'shape': (6,), }`},
	} {
		file := made(c.major, c.text, 12)
		a, err := open(file)
		if err != nil || a.DataOffset != int64(len(file)-12) {
			t.Errorf("%.100q: %v", c.text, err)
		}
	}
}

func TestDamagedFilesAreRefused(t *testing.T) {
	text := func(descr, order, shape string) string {
		return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }"
	}
	shape := func(s string) string { return text("'<i2'", "False", s) }
	descr := func(s string) string { return text(s, "False", "(2, 3)") }
	for _, c := range []struct {
		name string
		file []byte
		kind errs.Kind
		says string
	}{
		{"empty", nil, errs.Corrupt, "the file has 0 bytes, expected at least 10"},
		{"short", []byte(golden[:9]), errs.Corrupt, "the file has 9 bytes"},
		{"short version 2", made(2, "", 0)[:11], errs.Corrupt, "the file has 11 bytes, expected at least 12"},
		{"magic", []byte("PK\x03\x04" + golden), errs.Corrupt, "the file begins with \"PK\\x03\\x04\\x93N\", expected"},
		{"version 4", made(4, shape("(2, 3)"), 12), errs.Unsupported, "version 4.0, expected 1.0, 2.0 or 3.0"},
		{"version 0", made(0, shape("(2, 3)"), 12), errs.Unsupported, "version 0.0"},
		{"header outside", []byte(golden[:100]), errs.Corrupt, "the header has 118 bytes, expected at most 90"},
		{"huge header outside", append([]byte("\x93NUMPY\x03\x00\xff\xff\xff\xff"), 1), errs.Corrupt, "has 4294967295 bytes"},
		{"long header", made(2, strings.Repeat(" ", 64<<10+1), 0), errs.Unsupported, "65537 bytes, expected at most 65536"},
		{"no UTF-8", made(3, "{'\xff': 1}", 0), errs.Corrupt, "is not UTF-8"},
		{"no header", made(1, "", 0), errs.Corrupt, "header byte 0: the header ends, expected a dict"},
		{"no dict", made(1, "[1]", 0), errs.Corrupt, `header byte 0: it is "[1]", expected a dict`},
		{"no end", made(1, "{'descr'", 0), errs.Corrupt, "header byte 8: the header ends, expected a colon"},
		{"no value", made(1, "{'descr':", 0), errs.Corrupt, "header byte 9: the header ends, expected a value"},
		{"two commas", made(1, "{'descr': 1,,", 0), errs.Corrupt, "header byte 12"},
		{"no comma", made(1, "{'descr': 1 'shape': 2}", 0), errs.Corrupt, "expected a comma or the end of the dict"},
		{"no quote", made(1, "{'descr", 0), errs.Corrupt, "expected a string with its end"},
		{"line end in a string", made(1, "{'de\nscr': 1}", 0), errs.Corrupt, "expected a string on one line"},
		{"escaped quote", made(1, `{'descr\': 1}`, 0), errs.Corrupt, "expected a string with its end"},
		{"number as key", made(1, "{1: 2}", 0), errs.Corrupt, "the key before it is an integer"},
		{"a call", made(1, descr("exit()"), 12), errs.Corrupt, `it is "exit(), 'fortran_ord", expected a string, an integer`},
		{"an expression", made(1, shape("(1+1, 3)"), 12), errs.Corrupt, "expected a comma or )"},
		{"a comment", made(1, shape("(2, 3)")+" # x", 12), errs.Corrupt, "expected only spaces after the dict"},
		{"two dicts", made(1, shape("(2, 3)")+"{}", 12), errs.Corrupt, "expected only spaces after the dict"},
		{"NUL", made(1, shape("(2, 3)")+"\x00", 12), errs.Corrupt, "expected only spaces after the dict"},
		{"deep", made(1, descr(strings.Repeat("[", 20000)), 12), errs.Corrupt, "expected fewer tuples and lists"},
		{"no descr", made(1, "{'fortran_order': False, 'shape': (2, 3)}", 12), errs.Corrupt, `has no key "descr"`},
		{"no shape", made(1, "{'descr': '<i2', 'fortran_order': False}", 12), errs.Corrupt, `has no key "shape"`},
		{"a fourth key", made(1, shape("(2, 3), 'x': None"), 12), errs.Corrupt, "the header has 4 keys"},
		{"a key twice", made(1, shape("(2, 3), 'shape': (2, 3)"), 12), errs.Corrupt, "expected different strings"},
		{"order", made(1, text("'<i2'", "0", "(2, 3)"), 12), errs.Corrupt,
			"fortran_order is an integer, expected True or False"},
		{"order None", made(1, text("'<i2'", "None", "(2, 3)"), 12), errs.Corrupt, "fortran_order is None"},
		{"shape in brackets", made(1, shape("[2, 3]"), 12), errs.Corrupt, "shape is a list, expected a tuple of integers"},
		{"shape without a comma", made(1, shape("(6)"), 12), errs.Corrupt, "shape is an integer, expected a tuple"},
		{"shape of bools", made(1, shape("(True, 6)"), 12), errs.Corrupt, "shape[0] is a bool with the value 1"},
		{"negative", made(1, shape("(-2, -3)"), 12), errs.Corrupt, "shape[0] is an integer with the value -2"},
		{"minus", made(1, shape("(-, 3)"), 12), errs.Corrupt, "expected a decimal integer"},
		{"leading zero", made(1, shape("(02, 3)"), 12), errs.Corrupt, "expected a decimal integer"},
		{"hexadecimal", made(1, shape("(0x2, 3)"), 12), errs.Corrupt, "expected a comma or )"},
		{"float", made(1, shape("(2.0, 3)"), 12), errs.Corrupt, "expected a comma or )"},
		{"L in version 3", made(3, shape("(2L, 3)"), 12), errs.Corrupt, "expected a comma or )"},
		{"10^30", made(1, shape("(1"+strings.Repeat("0", 30)+",)"), 12), errs.Corrupt, "expected an integer below 2^63"},
		{"2^60 rows", made(1, shape("(1152921504606846976,)"), 12), errs.Corrupt,
			"12 bytes after its header, expected 2305843009213693952 for shape [1152921504606846976] of I16"},
		{"2^120 elements", made(1, shape("(1152921504606846976, 1152921504606846976)"), 12), errs.Corrupt, "more than 2^63"},
		{"2^60 empty rows", made(1, shape("(1152921504606846976, 0)"), 0), errs.Unsupported, "have no elements"},
		{"65 dimensions", made(1, shape("("+strings.Repeat("1,", 65)+")"), 2), errs.Corrupt,
			"65 dimensions, expected at most 64"},
		{"one byte more", []byte(golden + "\x00"), errs.Corrupt,
			"9 bytes after its header, expected 8 for shape [2 2] of I16"},
		{"one byte less", []byte(golden[:len(golden)-1]), errs.Corrupt, "7 bytes after its header, expected 8"},
		{"descr of a number", made(1, descr("2"), 12), errs.Corrupt, "descr is an integer, expected a string such as '<f4'"},
		{"descr of rubbish", made(1, descr("'<f3'"), 12), errs.Corrupt, `descr is "<f3", expected a data type`},
		{"no descr", made(1, descr("''"), 12), errs.Corrupt, `descr is "", expected a data type`},
		{"no byte order", made(1, descr("'i2'"), 12), errs.Unsupported, `"i2", which has no byte order, expected '<i2'`},
		{"native byte order", made(1, descr("'=i2'"), 12), errs.Unsupported, `"=i2", which has no byte order`},
		{"a tuple as descr", made(1, descr("('<i2', (3,))"), 12), errs.Unsupported, "the elements are structures"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := open(c.file)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(64<<10+4*len(c.file)) {
			t.Errorf("%s: %d bytes were allocated", c.name, used)
		}
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), "read .npy header x.npy: ") ||
			!strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%s: %v of kind %v, expected %q", c.name, err, errs.KindOf(err), c.says)
		}
	}
	long := made(2, shape("(2, 3)")+strings.Repeat(" ", 10000), 12)
	for _, cut := range []int{11, 5000} {
		if _, err := npy.Open(bytes.NewReader(long[:cut]), int64(len(long)), "x"); !errs.Is(err, errs.IO) {
			t.Errorf("a file that is shorter than its size: %v", err)
		}
	}
	// A row of 4 GiB: only the header of the file is read.
	head, err := npy.Header(format.U8, []int64{2, 1 << 32})
	if err != nil {
		t.Fatal(err)
	}
	_, err = npy.Open(sparse(head), int64(len(head))+1<<33, "x")
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "a row has 4294967296 bytes") {
		t.Errorf("a row of 4 GiB: %v", err)
	}
}

// sparse is a file with a beginning and zeros after it.
type sparse []byte

func (s sparse) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	copy(b, s[min(at, int64(len(s))):])
	return len(b), nil
}

// broken is a file that cannot be written after some writes.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWrongWritesAreRefused(t *testing.T) {
	for _, c := range []struct {
		dtype format.DType
		shape []int64
	}{
		{format.BF16, []int64{1}}, {format.F4, []int64{2}}, {"", []int64{1}}, {format.U8, nil}, {format.U8, []int64{1, -1}},
		{format.U8, make([]int64, 65)}, {format.U8, []int64{1 << 40, 1 << 40}},
		{format.U8, []int64{3, 2, 0}},
	} {
		if _, err := npy.NewWriter(&bytes.Buffer{}, "x.npy", c.dtype, c.shape); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), "write .npy file x.npy: ") || errs.FixOf(err) == "" {
			t.Errorf("%q of %v: %v", c.dtype, c.shape, err)
		}
	}
	w, err := npy.NewWriter(&bytes.Buffer{}, "x.npy", format.I16, []int64{1, 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(make([]byte, 5)); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "row 0 has 5 bytes, expected 6") {
		t.Errorf("a short row: %v", err)
	}
	if err := w.Finish(); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "0 rows were added, expected 1") {
		t.Errorf("a missing row: %v", err)
	}
	if err := w.Add(make([]byte, 6)); err != nil || w.Finish() != nil {
		t.Error(err, w.Finish())
	}
	if err := w.Add(make([]byte, 6)); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "has 1 rows, and this is one more") {
		t.Errorf("one row more: %v", err)
	}
	const full = "write .npy file x.npy: disk full"
	if _, err := npy.NewWriter(&broken{}, "x.npy", format.U8, []int64{1}); err == nil || err.Error() != full {
		t.Errorf("broken header: %v", err)
	}
	w, _ = npy.NewWriter(&broken{left: 1}, "x.npy", format.U8, []int64{1})
	if err := w.Add([]byte{1}); err == nil || err.Error() != full || w.Add([]byte{1}) != err || w.Finish() != err {
		t.Errorf("broken row: %v", err)
	}
}

// FuzzOpen checks that no file makes Open panic, and that the rows of an accepted array fill the file after the header.
// The array that is written again is read as the same array.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(golden[:100]))
	f.Add(made(3, `{'descr': [('a', '<i4', (2,)), ("b'", '|O')], 'fortran_order': True, 'shape': (2L, -3,), }`, 8))
	f.Add(made(1, `{"shape":(12,),'fortran_order':True,'descr':'|u1'}`, 12))
	f.Add(made(2, `{'descr': '<c8', 'fortran_order': False, 'shape': (1, 2,), } `+"\n", 16))
	f.Add(made(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976, 0)}`, 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := open(file)
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported || errs.FixOf(err) == "" {
				t.Fatalf("error is %v of kind %v", err, k)
			}
			return
		}
		end := a.DataOffset
		size := int64(a.DType.Bits() / 8)
		for _, n := range a.Shape[1:] {
			size *= n
		}
		for i := range a.Table.Len() {
			e, ok := a.Table.Part(i, 0)
			if !ok || e.Offset != end || e.Size != size {
				t.Fatalf("row %d is %v, expected %d bytes at %d", i, e, size, end)
			}
			end += e.Size
		}
		if end != int64(len(file)) || int64(a.Table.Len()) != a.Shape[0] {
			t.Fatalf("%d rows of %v end at %d of %d bytes", a.Table.Len(), a.Shape, end, len(file))
		}
		again := write(t, a.DType, a.Shape, rows(a, file))
		b, err := open(again)
		if err != nil || b.DType != a.DType || !slices.Equal(b.Shape, a.Shape) || b.DataOffset%64 != 0 ||
			!bytes.Equal(again[b.DataOffset:], file[a.DataOffset:]) {
			t.Fatalf("written again: %+v, %v, expected %+v", b, err, a)
		}
	})
}

// TestTooManyRowsAreRefused opens the header of an array whose table would not fit into any memory.
func TestTooManyRowsAreRefused(t *testing.T) {
	text := "{'descr': '|u1', 'fortran_order': False, 'shape': (70368744177664,), }\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), 0)
	b = append(b, text...)
	size := int64(len(b)) + 1<<46
	_, err := npy.Open(begin{b}, size, "x.npy")
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "70368744177664 rows, expected at most") {
		t.Errorf("%v", err)
	}
}

// begin is a large file of zeros after its first bytes.
type begin struct{ first []byte }

func (f begin) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(f.first)) {
		copy(p, f.first[off:])
	}
	return len(p), nil
}
