// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// file puts a length before a header and data bytes after it.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func parseBytes(b []byte, mode Mode) (*format.File, error) {
	return Parse(bytes.NewReader(b), int64(len(b)), "m.safetensors", mode)
}

// entry is a tensor object.
func entry(dtype, shape, offsets string) string {
	return `{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}`
}

const a4 = `"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`

// TestRules holds one case for each rule, with fragments that the error must
// contain beside the file's name.
func TestRules(t *testing.T) {
	allTypes := "BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, " +
		"F16, BF16, I32, U32, F32, C64, F64, I64, U64"
	integer := "expected an integer from 0 to 281474976710655 without sign, fraction, exponent or leading zero"
	length := func(n uint64, rest int) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, rest)...)
	}
	for _, c := range []struct {
		name string
		file []byte
		want []string
	}{
		{"1 empty file", nil, []string{"the file has 0 bytes, expected at least 8", "fix: the file is probably truncated"}},
		{"1 short file", []byte("1234567"), []string{"the file has 7 bytes, expected at least 8"}},
		{"2 header too large", length(100_000_001, 8),
			[]string{"the header length is 100000001 bytes, expected at most 100000000"}},
		{"2 header length huge", length(1<<64-1, 8),
			[]string{"the header length is 18446744073709551615 bytes, expected at most 100000000"}},
		{"3 header past the end", length(9, 8), []string{"the header length is 9 bytes, expected at most 8",
			"file of 16 bytes"}},
		{"3 header past an empty rest", length(100_000_000, 0),
			[]string{"the header length is 100000000 bytes, expected at most 0"}},
		{"4 not UTF-8", file("{\"\xff\":1}", 0), []string{"byte 0xff", "at byte 10, expected UTF-8"}},
		{"4 UTF-8 surrogate", file("{\"\xed\xa0\x80\":1}", 0), []string{"byte 0xed", "at byte 10, expected UTF-8"}},
		{"5 no header", file("", 0), []string{"the first byte of the header is missing", "expected {"}},
		{"5 array", file("[]", 0), []string{"the first byte of the header is [", "at byte 8, expected {"}},
		{"5 open object", file("{", 0),
			[]string{"a tensor name is missing (the text ends here) at byte 9, expected a JSON string"}},
		{"5 trailing comma", file("{"+a4+",}", 4), []string{"a tensor name is }", "expected a JSON string"}},
		{"5 no comma", file("{"+a4+" \"b\":1}", 4), []string{`next in the header is "b"`, "expected ',' or '}'"}},
		{"5 no colon", file(`{"a" 1}`, 0), []string{`tensor "a": after the name is 1 at byte 13, expected :`}},
		{"5 tensor is null", file(`{"a":null}`, 0),
			[]string{`tensor "a": its value is null at byte 13, expected an object with dtype, shape and data_offsets`}},
		{"5 tensor is array", file(`{"a":[1]}`, 0), []string{`tensor "a": its value is [1`}},
		{"5 deep nesting", file(`{"a":{"dtype":{"x":1}}}`, 0),
			[]string{`tensor "a": dtype is {"x":1`, "expected a JSON string"}},
		{"5 dtype number", file(`{"a":{"dtype":5}}`, 0),
			[]string{`tensor "a": dtype is 5 at byte 22, expected a JSON string`}},
		{"5 dtype unknown", file(`{"a":`+entry("F7", "[4]", "[0,4]")+`}`, 4),
			[]string{`tensor "a": dtype is "F7" at byte 22, expected one of ` + allTypes}},
		{"5 dtype lower case", file(`{"a":`+entry("bf16", "[2]", "[0,4]")+`}`, 4),
			[]string{`tensor "a": dtype is "bf16"`, allTypes}},
		{"5 dtype empty", file(`{"a":`+entry("", "[2]", "[0,4]")+`}`, 4), []string{`tensor "a": dtype is ""`, allTypes}},
		{"5 dtype missing", file(`{"a":{"shape":[4],"data_offsets":[0,4]}}`, 4),
			[]string{`tensor "a": field "dtype" is missing at byte 13, expected dtype, shape and data_offsets`}},
		{"5 shape missing", file(`{"a":{"dtype":"U8","data_offsets":[0,4]}}`, 4),
			[]string{`tensor "a": field "shape" is missing`}},
		{"5 offsets missing", file(`{"a":{"dtype":"U8","shape":[4]}}`, 4),
			[]string{`tensor "a": field "data_offsets" is missing`}},
		{"5 empty tensor", file(`{"a":{}}`, 0), []string{`tensor "a": field "dtype" is missing`}},
		{"5 shape no array", file(`{"a":{"shape":4}}`, 0),
			[]string{`tensor "a": shape is 4 at byte 22, expected an array of integers`}},
		{"5 shape string", file(`{"a":{"shape":["4"]}}`, 0), []string{`tensor "a": shape[0] is "4"`, integer}},
		{"5 shape nested", file(`{"a":{"shape":[[4]]}}`, 0), []string{`tensor "a": shape[0] is [4`, integer}},
		{"5 one offset", file(`{"a":{"data_offsets":[4]}}`, 0),
			[]string{`tensor "a": data_offsets holds 1 values at byte 29, expected an array of exactly two integers`}},
		{"5 no offset", file(`{"a":{"data_offsets":[]}}`, 0), []string{`tensor "a": data_offsets holds 0 values`}},
		{"5 three offsets", file(`{"a":{"data_offsets":[0,4,4]}}`, 0),
			[]string{
				`tensor "a": data_offsets holds more than two values at byte 29, expected an array of exactly two integers`}},
		{"5 offsets no array", file(`{"a":{"data_offsets":"0"}}`, 0),
			[]string{`tensor "a": data_offsets is "0"`, "exactly two integers"}},
		{"numbers float", file(`{"a":{"shape":[2,1.0]}}`, 0), []string{`tensor "a": shape[1] is 1.0 at byte 25, ` + integer}},
		{"numbers exponent", file(`{"a":{"shape":[1e3]}}`, 0), []string{`shape[0] is 1e3`, integer}},
		{"numbers minus zero", file(`{"a":{"shape":[-0]}}`, 0), []string{`shape[0] is -0`, integer}},
		{"numbers negative", file(`{"a":{"data_offsets":[-4,0]}}`, 0), []string{`data_offsets[0] is -4`, integer}},
		{"numbers leading zero", file(`{"a":{"data_offsets":[0,04]}}`, 0), []string{`data_offsets[1] is 04`, integer}},
		{"numbers plus", file(`{"a":{"shape":[+1]}}`, 0), []string{`shape[0] is +1`, integer}},
		{"numbers 2^48", file(`{"a":{"shape":[281474976710656]}}`, 0), []string{`shape[0] is 281474976710656`, integer}},
		{"numbers very long", file(`{"a":{"shape":[`+strings.Repeat("9", 1000)+`]}}`, 0),
			[]string{`shape[0] is 99999999999999999999999999999999...`, integer}},
		{"numbers empty slot", file(`{"a":{"shape":[1,]}}`, 0), []string{`shape[1] is ]`, integer}},
		{"rank", file(`{"a":{"shape":[`+strings.Repeat("1,", 64)+`1]}}`, 0),
			[]string{`tensor "a": shape has more dimensions`, "expected at most 64"}},
		{"6 hole at start", file(`{"a":`+entry("U8", "[4]", "[1,5]")+`}`, 5),
			[]string{
				`tensor "a": data_offsets begin at 1, expected 0, the start of the data (1 bytes before it belong to no tensor)`}},
		{"6 hole", file(`{`+a4+`,"b":`+entry("U8", "[1]", "[6,7]")+`}`, 7),
			[]string{
				`tensor "b": data_offsets begin at 6, expected 4, the end of tensor "a" (2 bytes before it belong to no tensor)`}},
		{"6 overlap", file(`{`+a4+`,"b":`+entry("U8", "[4]", "[2,6]")+`}`, 6),
			[]string{`tensor "b": data_offsets begin at 2, expected 4, the end of tensor "a" (it overlaps 2 bytes that another tensor holds)`}},
		{"6 shared range", file(`{`+a4+`,"b":`+entry("U8", "[4]", "[0,4]")+`}`, 4),
			[]string{`tensor "b": data_offsets begin at 0, expected 4, the end of tensor "a"`}},
		{"6 empty inside another", file(`{`+a4+`,"b":`+entry("U8", "[0]", "[2,2]")+`}`, 4),
			[]string{`tensor "b": data_offsets begin at 2, expected 4`}},
		{"6 end before begin", file(`{"a":`+entry("U8", "[4]", "[4,0]")+`}`, 4),
			[]string{`tensor "a": data_offsets are [4,0] at byte 13, expected an end not before the begin`}},
		{"7 shape overflow", file(`{"a":`+entry("U8", "[281474976710655,281474976710655]", "[0,4]")+`}`, 4),
			[]string{`tensor "a": shape [281474976710655,281474976710655] overflows 64 bits`,
				"expected fewer than 2^64 elements"}},
		{"7 overflow before zero", file(`{"a":`+entry("U8", "[281474976710655,281474976710655,0]", "[0,0]")+`}`, 0),
			[]string{`tensor "a": shape [281474976710655,281474976710655,0] overflows 64 bits`}},
		{"7 bits overflow", file(`{"a":`+entry("F64", "[281474976710655,4096]", "[0,4]")+`}`, 4),
			[]string{`tensor "a": shape [281474976710655,4096] of F64 overflows 64 bits`, "expected fewer than 2^64 bits"}},
		{"8 half a byte", file(`{"a":`+entry("F4", "[3]", "[0,1]")+`}`, 1),
			[]string{`tensor "a": shape [3] of F4 has 12 bits at byte 13, expected a multiple of 8, whole bytes`}},
		{"8 six bits", file(`{"a":`+entry("F6_E3M2", "[]", "[0,1]")+`}`, 1),
			[]string{`tensor "a": shape [] of F6_E3M2 has 6 bits`}},
		{"9 size too small", file(`{"a":`+entry("BF16", "[2,3]", "[0,6]")+`}`, 6),
			[]string{`tensor "a": data_offsets [0,6] span 6 bytes at byte 13, expected 12, what shape [2,3] of BF16 needs`}},
		{"9 size too large", file(`{"a":`+entry("U8", "[0]", "[0,6]")+`}`, 6),
			[]string{`tensor "a": data_offsets [0,6] span 6 bytes`, "expected 0, what shape [0] of U8 needs"}},
		{"10 trailing bytes", file("{"+a4+"}", 7),
			[]string{"the tensors end at byte 65 of the file, expected 68, the file size (3 trailing bytes belong to no " +
				"tensor)"}},
		{"10 trailing bytes without tensors", file("{}", 1), []string{"the tensors end at byte 10 of the file, expected 11"}},
		{"10 missing bytes", file("{"+a4+"}", 3),
			[]string{`tensor "a": data_offsets end at 4, expected at most 3, the bytes after the header (1 are missing)`,
				"fix: the file is probably truncated"}},
		{"duplicate tensor", file("{"+a4+","+a4+"}", 4), []string{`tensor name "a" is a duplicate`,
			"expected each name once"}},
		{"duplicate tensor unescaped", file("{"+a4+`,"\u0061":1}`, 4), []string{`tensor name "a" is a duplicate`}},
		{"duplicate field", file(`{"a":{"dtype":"U8","dtype":"U8"}}`, 4),
			[]string{`tensor "a": field "dtype" is a duplicate`, "expected each field once"}},
		{"duplicate field unescaped", file(`{"a":{"shape":[],"sh\u0061pe":[]}}`, 4),
			[]string{`tensor "a": field "shape" is a duplicate`}},
		{"duplicate offsets", file(`{"a":{"data_offsets":[0,0],"data_offsets":[0,0]}}`, 4),
			[]string{`tensor "a": field "data_offsets" is a duplicate`}},
		{"duplicate metadata", file(`{"__metadata__":null,"__metadata__":{}}`, 0),
			[]string{`key "__metadata__" is a duplicate`}},
		{"duplicate metadata key", file(`{"__metadata__":{"k":"1","\u006b":"2"}}`, 0),
			[]string{`__metadata__ key "k" is a duplicate`}},
		{"metadata number", file(`{"__metadata__":{"k":1}}`, 0),
			[]string{`__metadata__ key "k": its value is 1`, "expected a JSON string"}},
		{"metadata null value", file(`{"__metadata__":{"k":null}}`, 0), []string{`__metadata__ key "k": its value is null`}},
		{"metadata nested", file(`{"__metadata__":{"k":{"a":"b"}}}`, 0),
			[]string{`__metadata__ key "k": its value is {"a":"b"`}},
		{"metadata no object", file(`{"__metadata__":[]}`, 0),
			[]string{`__metadata__ is [`, "expected an object of strings or null"}},
		{"name NUL", file(`{"a\u0000b":1}`, 0),
			[]string{`tensor name "a\x00b" holds NUL at byte 9, expected a name without NUL`}},
		{"name raw control", file("{\"a\nb\":1}", 0),
			[]string{"a tensor name holds the raw control character 0x0a at byte 11"}},
		{"name high surrogate", file(`{"\ud800":1}`, 0),
			[]string{`a tensor name holds the unpaired surrogate \ud800 at byte 10`,
				"expected a high surrogate followed by a low one"}},
		{"name low surrogate", file(`{"\uDC00":1}`, 0), []string{`unpaired surrogate \udc00`}},
		{"name two high surrogates", file(`{"\ud800\ud800":1}`, 0), []string{`unpaired surrogate \ud800`}},
		{"name bad escape", file(`{"\x41":1}`, 0), []string{`holds the escape "\\x"`, `\uXXXX`}},
		{"name short escape", file(`{"\u00`, 0), []string{`holds the escape "\\u00"`, "four hexadecimal digits"}},
		{"name open", file(`{"abc`, 0), []string{"a tensor name is not closed before the text ends at byte 13"}},
		{"name ends in backslash", file(`{"abc\`, 0), []string{"a tensor name is not closed before the text ends"}},
		{"name too long", file(`{"`+strings.Repeat("n", 4097)+`":1}`, 0),
			[]string{"(4097 bytes) is too long", "expected at most 4096 bytes"}},
		{"strict leading space", file(" {}", 0), []string{"the first byte of the header is", "at byte 8, expected {"}},
		{"strict byte order mark", file("\ufeff{}", 0), []string{"the first byte of the header is", "expected {"}},
		{"strict padding newline", file("{} \n", 0),
			[]string{"the padding after the header object holds the byte 0x0a at byte 11, expected only spaces (0x20)"}},
		{"strict padding zeros", file("{}\x00", 0), []string{"the padding after the header object holds the byte 0x00"}},
		{"strict second object", file("{}{}", 0), []string{"the padding after the header object holds the byte 0x7b"}},
		{"strict unknown field", file(`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}}`, 1),
			[]string{`tensor "a": field "x" is unknown at byte 59, expected only dtype, shape and data_offsets`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parseBytes(c.file, Strict)
			if err == nil {
				t.Fatalf("accepted: %+v", f)
			}
			if !errs.Is(err, errs.Corrupt) {
				t.Errorf("kind is %v, expected corrupt", errs.KindOf(err))
			}
			for _, want := range append(c.want, "parse safetensors header m.safetensors: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is\n\t%v\nexpected it to contain\n\t%s", err, want)
				}
			}
		})
	}
}

func TestValid(t *testing.T) {
	type tensors = []format.Tensor
	for _, c := range []struct {
		name   string
		header string
		data   int
		want   tensors // offsets relative to the data
		meta   map[string]string
	}{
		{"nothing", `{}`, 0, tensors{}, nil},
		{"padded", `{}      `, 0, tensors{}, nil},
		{"one", "{" + a4 + "}", 4, tensors{{Name: "a", DType: "U8", Shape: []int64{4}, Offset: 0, Size: 4}}, nil},
		{"python", `{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}   `, 12,
			tensors{{Name: "w", DType: "BF16", Shape: []int64{2, 3}, Offset: 0, Size: 12}}, map[string]string{"format": "pt"}},
		{"metadata null", `{"__metadata__":null}`, 0, tensors{}, nil},
		{"metadata empty", `{"__metadata__":{}}`, 0, tensors{}, map[string]string{}},
		{"metadata escapes", `{"__metadata__":{"a\n\"\\\/\b\f\r\t":"\u00e9\ud83d\ude00\u0000é😀"}}`, 0, tensors{},
			map[string]string{"a\n\"\\/\b\f\r\t": "é😀\x00é😀"}},
		{"metadata escaped key", `{"__met\u0061data__":{"k":"v"}}`, 0, tensors{}, map[string]string{"k": "v"}},
		{"inner whitespace", "{ \"a\" : {\n\t\"shape\" : [ 2 , 2 ] ,\r\n\"data_offsets\":[ 0 , 4 ], \"dtype\" : \"U8\" } }",
			4,
			tensors{{Name: "a", DType: "U8", Shape: []int64{2, 2}, Offset: 0, Size: 4}}, nil},
		{"rank 0", `{"a":` + entry("F64", "[]", "[0,8]") + `}`, 8,
			tensors{{Name: "a", DType: "F64", Shape: []int64{}, Offset: 0, Size: 8}}, nil},
		{"zero before overflow", `{"a":` + entry("U8", "[0,281474976710655,281474976710655]", "[0,0]") + `}`, 0,
			tensors{{Name: "a", DType: "U8", Shape: []int64{0, MaxInt, MaxInt}}}, nil},
		{"empty name", `{"":` + entry("U8", "[1]", "[0,1]") + `}`, 1,
			tensors{{Name: "", DType: "U8", Shape: []int64{1}, Size: 1}}, nil},
		{"escaped name", `{"\u0041\ud83d\ude00\"":` + entry("U8", "[1]", "[0,1]") + `}`, 1,
			tensors{{Name: "A😀\"", DType: "U8", Shape: []int64{1}, Size: 1}}, nil},
		{"narrow types", `{"a":` + entry("F4", "[2,3]", "[0,3]") + `,"b":` + entry("F6_E2M3", "[4]", "[3,6]") + `}`, 6,
			tensors{{Name: "a", DType: "F4", Shape: []int64{2, 3}, Size: 3},
				{Name: "b", DType: "F6_E2M3", Shape: []int64{4}, Offset: 3, Size: 3}}, nil},
		{"header order free, empty ones stable",
			`{"z":` + entry("U8", "[2]", "[4,6]") + `,"e2":` + entry("U8", "[0]", "[4,4]") + `,"e1":` +
				entry("I8", "[0]", "[4,4]") + `,` + a4 +
				`,"tail":` + entry("U8", "[0]", "[6,6]") + `,"head":` + entry("U8", "[0]", "[0,0]") + `}`, 6,
			tensors{{Name: "head", DType: "U8", Shape: []int64{0}},
				{Name: "a", DType: "U8", Shape: []int64{4}, Size: 4},
				{Name: "e2", DType: "U8", Shape: []int64{0}, Offset: 4},
				{Name: "e1", DType: "I8", Shape: []int64{0}, Offset: 4},
				{Name: "z", DType: "U8", Shape: []int64{2}, Offset: 4, Size: 2},
				{Name: "tail", DType: "U8", Shape: []int64{0}, Offset: 6}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, mode := range []Mode{Strict, Lenient} {
				f, err := parseBytes(file(c.header, c.data), mode)
				if err != nil {
					t.Fatalf("%v: %v", mode, err)
				}
				start := int64(8 + len(c.header))
				want := tensors{}
				for _, w := range c.want {
					w.Offset += start
					want = append(want, w)
				}
				if !reflect.DeepEqual(f.Tensors, want) {
					t.Errorf("%v: tensors are\n\t%+v\nexpected\n\t%+v", mode, f.Tensors, want)
				}
				if !reflect.DeepEqual(f.Metadata, c.meta) {
					t.Errorf("%v: metadata is %q, expected %q", mode, f.Metadata, c.meta)
				}
				if f.DataStart != start || f.Size != start+int64(c.data) || f.Path != "m.safetensors" {
					t.Errorf("%v: file is %+v", mode, f)
				}
			}
		})
	}
}

func TestLenient(t *testing.T) {
	tensor := func(extra string) string {
		return `{"a":{"dtype":"U8",` + extra + `"shape":[],"data_offsets":[0,1]}}`
	}
	for _, ok := range []string{
		"\n\t\r " + tensor(""), tensor("") + " \n\t\r ",
		tensor(`"x":1,`), tensor(`"x":"y",`), tensor(`"x":null,"y":true,"z":false,`),
		tensor(`"x":-1.5e+10,"y":0,"z":0.5,`), tensor(`"x":{"a":[1,{"b":[]}],"c":{}},`),
	} {
		if _, err := parseBytes(file(ok, 1), Lenient); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
		if _, err := parseBytes(file(ok, 1), Strict); err == nil {
			t.Errorf("%q: accepted in strict mode", ok)
		}
	}
	many := ""
	for i := range 300 {
		many += fmt.Sprintf(`"k%d":0,`, i)
	}
	for bad, want := range map[string]string{
		"\v" + tensor(""):               "expected {",
		tensor("") + "\x00":             "expected only JSON whitespace",
		tensor(`"x":1,"\u0078":2,`):     `tensor "a": key "x" is a duplicate`,
		tensor(`"x":{"k":1,"k":2},`):    `tensor "a": key "k" is a duplicate`,
		tensor(`"x":01,`):               "expected a JSON number",
		tensor(`"x":1.,`):               "expected a JSON number",
		tensor(`"x":1e,`):               "expected a JSON number",
		tensor(`"x":-,`):                "expected a JSON number",
		tensor(`"x":nul,`):              "expected a JSON value",
		tensor(`"x":,`):                 "expected a JSON value",
		tensor(`"x":[1 2],`):            "expected ',' or ']'",
		tensor(`"x":{1:2},`):            "expected a JSON string",
		tensor(`"x":{"a"},`):            "expected :",
		tensor(many):                    "expected at most 256 ignored keys in one object",
		tensor(`"x":"\ud800",`):         "unpaired surrogate",
		tensor(`"x":` + deep(17) + `,`): "expected at most 16 levels",
		`{"a":{"dtype":"U8","x":[`:      "a JSON value",
	} {
		_, err := parseBytes(file(bad, 1), Lenient)
		if err == nil || !strings.Contains(err.Error(), want) || !errs.Is(err, errs.Corrupt) {
			t.Errorf("%q: error is %v, expected it to contain %q", bad, err, want)
		}
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// failingReader serves the first bytes and then fails.
type failingReader struct {
	b   []byte
	err error
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(r.b)) {
		return 0, r.err
	}
	n := copy(p, r.b[off:])
	if n < len(p) {
		return n, r.err
	}
	return n, nil
}

func TestReadFailures(t *testing.T) {
	whole := file("{"+a4+"}", 4)
	for _, n := range []int{0, 3, 8, 20} {
		for _, cause := range []error{syscall.EIO, io.EOF, errors.New("odd")} {
			_, err := Parse(failingReader{whole[:n], cause}, int64(len(whole)), "m.safetensors", Strict)
			if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "m.safetensors") ||
				!strings.Contains(err.Error(), "expected") {
				t.Errorf("%d bytes, then %v: error is %v (%v)", n, cause, err, errs.KindOf(err))
			}
			if cause != io.EOF && !errors.Is(err, cause) {
				t.Errorf("%v does not wrap %v", err, cause)
			}
		}
	}
	// A reader may report the end together with the last bytes.
	if _, err := Parse(failingReader{whole[:8+len(a4)+2], io.EOF}, int64(len(whole)), "m", Strict); err != nil {
		t.Error(err)
	}
}

func TestParseFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	if err := os.WriteFile(path, file("{"+a4+"}", 4), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ParseFile(path, Strict)
	if err != nil || f.Path != path || len(f.Tensors) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := ParseFile(filepath.Join(dir, "none"), Strict); !errs.Is(err, errs.NotFound) ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ParseFile(dir, Strict); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "is a directory, expected a regular file") {
		t.Error(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseFile(pipe, Strict); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "is a pipe,") {
		t.Error(err)
	}
	if _, err := ParseFile(os.DevNull, Strict); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "is a device,") {
		t.Error(err)
	}
	if err := regular(pipe); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "is a pipe,") {
		t.Error(err)
	}
}
