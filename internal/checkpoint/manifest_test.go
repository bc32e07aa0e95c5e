// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const goodManifest = `{"version":1,"id":"0123456789abcdef","format":"torch-dcp","created":"2026-01-02T03:04:05Z","step":7,"world":2,
"bytes":300,"metadata":{"name":".metadata","size":5,"crc64nvme":"0000000000000001"},
"files":[{"name":"__0_0_0123456789abcdef.distcp","size":100,"crc64nvme":"0000000000000002"},
{"name":"__1_0_0123456789abcdef.distcp","size":200,"crc64nvme":""}],
"items":[{"tensor":"model.w","file":1,"offset":64,"size":136,"dtype":"BF16","shape":[68],"at":[0]}]}`

func TestManifest(t *testing.T) {
	m, err := ParseManifest("m", []byte(goodManifest))
	if err != nil {
		t.Fatal(err)
	}
	step := int64(7)
	want := &Manifest{Version: 1, ID: "0123456789abcdef", Format: "torch-dcp",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Step:    &step, World: 2, Bytes: 300, Metadata: FileSum{".metadata", 5, "0000000000000001"},
		Files: files{{"__0_0_0123456789abcdef.distcp", 100, "0000000000000002"}, {"__1_0_0123456789abcdef.distcp", 200, ""}},
		Items: items{{"model.w", 1, 64, 136, "BF16", []int64{68}, []int64{0}}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v", m)
	}
	s, err := parseSummary("m", []byte(goodManifest))
	if err != nil || s.Items != nil || len(s.Files) != 2 || s.ID != m.ID {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestHostileManifests: each is refused, with what is wrong.
func TestHostileManifests(t *testing.T) {
	for _, x := range []struct{ from, to, says string }{
		{goodManifest, "", "truncated"},
		{goodManifest, "[]", "array"},
		{`"items":[{`, `"items":[{`, ""},
		{"}]}", "}]", "truncated"},
		{"}]}", "}]} {}", "something follows"},
		{`"version":1`, `"version":2`, "version"},
		{`"version":1`, `"version":"x"`, "number"},
		{`"version":1,`, ``, "version"},
		{`"id":"0123456789abcdef"`, `"id":"0123456789ABCDEF"`, "the id"},
		{`torch-dcp`, `zip`, "the format"},
		{`"step":7`, `"step":-1`, "the step"},
		{`"step":7`, `"step":1e30`, "step"},
		{`"world":2`, `"world":0`, "the world"},
		{`"world":2`, `"world":99999999999`, "the world"},
		{`"bytes":300`, `"bytes":301`, "bytes is 301, but the files have 300"},
		{`".metadata","size"`, `"metadata","size"`, "the metadata"},
		{`"crc64nvme":"0000000000000001"`, `"crc64nvme":""`, "no crc64nvme"},
		{`"crc64nvme":"0000000000000002"`, `"crc64nvme":"2"`, "16 hex digits"},
		{`"size":100`, `"size":-100`, "the size is -100"},
		{`"size":100`, `"size":9223372036854775807`, "2^63"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":"../../etc/passwd"`, "slash"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":".."`, "not a name"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":""`, "is empty"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":".metadata"`, "not a name"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":".hidden"`, "not used"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":"a\u0000b"`, "zero byte"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":"a\nb"`, "control"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":"a.crc64nvme"`, "not used"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":"` + strings.Repeat("x", 212) + `"`, "at most 211"},
		{`"name":"__0_0_0123456789abcdef.distcp"`, `"name":"__1_0_0123456789abcdef.distcp"`, "twice"},
		{`"files":[`, `"files":7,"more":[`, "files is not a list"},
		{`"file":1`, `"file":2`, "file 2, expected less than 2"},
		{`"file":1`, `"file":-1`, "negative"},
		{`"offset":64`, `"offset":65`, "end after the file"},
		{`"offset":64`, `"offset":9223372036854775807`, "end after the file"},
		{`"offset":64`, `"offset":1.5`, "offset"},
		{`"tensor":"model.w"`, `"tensor":""`, "the name of the tensor"},
		{`"tensor":"model.w"`, `"tensor":"` + strings.Repeat("x", 4097) + `"`, "the name of the tensor"},
		{`"dtype":"BF16"`, `"dtype":""`, "the dtype"},
		{`"shape":[68]`, `"shape":[` + strings.Repeat("1,", 64) + `1]`, "dimensions"},
	} {
		_, err := ParseManifest("m", []byte(strings.Replace(goodManifest, x.from, x.to, 1)))
		if x.says == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%.60s: %v, expected %q", x.to, err, x.says)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(goodManifest))
	f.Add([]byte(`{"version":1,"files":[{"name":"a","size":1}],"items":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest("m", b)
		if err != nil {
			if !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Unsupported) {
				t.Errorf("kind of %v", err)
			}
			return
		}
		for _, x := range m.Files {
			if strings.ContainsAny(x.Name, "/\x00") || x.Name == ".." || x.Size < 0 {
				t.Errorf("%+v", x)
			}
		}
		for _, it := range m.Items {
			if it.Offset+it.Size > m.Files[it.File].Size || it.Offset+it.Size < 0 {
				t.Errorf("%+v", it)
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseManifest("m", text); err != nil || again.ID != m.ID || len(again.Items) != len(m.Items) {
			t.Errorf("%v: %s", err, text)
		}
	})
}

// FuzzMetadata: whatever .metadata holds, the names that come out of it stay in the directory.
func FuzzMetadata(f *testing.F) {
	b, err := os.ReadFile("testdata/stock.metadata")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parseMetadata("m", b)
		if err != nil && !errs.Is(err, errs.Corrupt) {
			t.Errorf("kind of %v", err)
		}
		for _, x := range all {
			if strings.ContainsAny(x.file, "/\x00") || x.file == ".." || x.offset < 0 || x.size < 0 {
				t.Errorf("%+v", x)
			}
		}
	})
}

func TestMetadataOfPyTorch(t *testing.T) {
	b, err := os.ReadFile("testdata/stock.metadata")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseMetadata("m", b)
	want := []stored{{"step", "__0_0.distcp", 0, 1261}, {"name", "__0_0.distcp", 1261, 1261},
		{"model.w", "__0_0.distcp", 2522, 5545}, {"model.b", "__0_0.distcp", 8067, 1577}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	evil := strings.Replace(string(b), "\x8c\x0c__0_0.distcp", "\x8c\x0c../../passwd", 1)
	if _, err := parseMetadata("m", []byte(evil)); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "slash") {
		t.Errorf("a name that leads away: %v", err)
	}
}
