// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// FuzzParse checks that no input makes the parser panic and that what it
// accepts keeps the promises of Parse.
func FuzzParse(f *testing.F) {
	for _, s := range []struct {
		header string
		data   int
	}{
		{"{}", 0}, {"{" + a4 + "}", 4}, {" {} ", 0}, {"", 0}, {`{"__metadata__":null}`, 0},
		{`{"__metadata__":{"format":"pt"},"w":` + entry("BF16", "[2,3]", "[0,12]") + `}   `, 12},
		{`{"b":` + entry("F4", "[2]", "[4,5]") + `,` + a4 + `,"e":` + entry("F64", "[0]", "[4,4]") + `}`, 5},
		{`{"\u0061\ud83d\ude00\"":{"shape":[1],"x":{"y":[1.5e3,null]},"dtype":"U8","data_offsets":[0,1]}}`, 1},
		{"{" + a4 + "," + a4 + "}", 4}, {`{"a":` + entry("U8", "[281474976710655,2]", "[0,4]") + `}`, 4},
		{`{"a":` + deep(40) + `}`, 0}, {`{"a":{"shape":[1.0,-0,01]}}`, 0},
	} {
		f.Add(file(s.header, s.data))
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		strict, err := parseBytes(b, Strict)
		lenient, lerr := parseBytes(b, Lenient)
		if !bytes.Equal(b, before) {
			t.Fatal("the input was changed")
		}
		for _, err := range []error{err, lerr} {
			if err != nil && (!errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "m.safetensors: ")) {
				t.Fatalf("error is %v of kind %v", err, errs.KindOf(err))
			}
		}
		if err == nil && (lerr != nil || !reflect.DeepEqual(strict, lenient)) {
			t.Fatalf("strict gives %+v, lenient %+v, %v", strict, lenient, lerr)
		}
		if lerr != nil {
			return
		}
		if !json.Valid(b[8:lenient.DataStart]) {
			t.Fatal("accepted what is no JSON")
		}
		end := lenient.DataStart
		names := map[string]bool{}
		for _, x := range lenient.Tensors {
			size, err := SizeOf(x.DType, x.Shape)
			if err != nil || size != x.Size || x.Offset != end || names[x.Name] {
				t.Fatalf("tensor %+v after byte %d has size %d, %v", x, end, size, err)
			}
			names[x.Name] = true
			end += x.Size
		}
		if end != int64(len(b)) || lenient.Size != end {
			t.Fatalf("the tensors end at %d of %d bytes", end, len(b))
		}
		header, err := EncodeHeader(lenient.Tensors, lenient.Metadata, 0)
		if err != nil {
			t.Fatalf("writing it again: %v", err)
		}
		again, err := parseBytes(append(header, b[lenient.DataStart:]...), Strict)
		if err != nil || len(again.Tensors) != len(lenient.Tensors) {
			t.Fatalf("parsing it again: %v", err)
		}
		for i, x := range again.Tensors {
			y := lenient.Tensors[i]
			y.Offset += again.DataStart - lenient.DataStart
			if !reflect.DeepEqual(x, y) {
				t.Fatalf("written again it is %+v, expected %+v", x, y)
			}
		}
	})
}

// FuzzIndex checks that no input makes the index parser panic and that what it
// accepts names only files beside the index.
func FuzzIndex(f *testing.F) {
	for _, s := range []string{
		"", "{}", "[]", `{"weight_map":{}}`,
		`{"metadata":{"total_size":42},"weight_map":{"b":"2.safetensors","a":"1.safetensors"}}`,
		`{"weight_map":{"\u0061":"1.safetensors","a":"1.safetensors"}}`, `{"weight_map":{"a":"../1.safetensors"}}`,
		`{"weight_map":{"a":".2/1.safetensors"}}`, `{"weight_map":{"a":"b/../../1.safetensors"}}`,
		`{"x":[1,-2.5e3,{"y":null}],"metadata":{"total_size":1.5,"k":"v"},"weight_map":{"a":"\u0031.safetensors"}}`,
		`{"weight_map":{"a":"1.bin"}}`, `{"x":` + deep(40) + `}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		ix, err := ParseIndex(b, "x.json")
		if !bytes.Equal(b, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "x.json: ") {
				t.Fatalf("error is %v of kind %v", err, errs.KindOf(err))
			}
			return
		}
		var want struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(b, &want); err != nil || ix.TotalSize < 0 {
			t.Fatalf("accepted what is no index: %v", err)
		}
		used := map[string]bool{}
		for name, file := range ix.Weights {
			if file != want.WeightMap[name] || strings.ContainsAny(file, "\\\x00") || !filepath.IsLocal(file) ||
				slices.Contains(strings.Split(file, "/"), "..") {
				t.Fatalf("tensor %q is in %q", name, file)
			}
			used[file] = true
		}
		if !slices.IsSorted(ix.Shards) || len(used) != len(ix.Shards) || len(ix.Weights) != len(want.WeightMap) {
			t.Fatalf("shards are %q of %v", ix.Shards, ix.Weights)
		}
	})
}
