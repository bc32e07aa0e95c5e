// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadModels(t *testing.T) {
	const two = `{"left":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"right":{"dtype":"F32","shape":[4],"data_offsets":[%]}}`
	right := func(offsets string) string { return strings.Replace(two, "%", offsets, 1) }
	for _, c := range []struct {
		name    string
		content []byte
		want    []string
	}{
		{"empty", nil, []string{"0 bytes"}},
		{"shorter than its length field", []byte{1, 2, 3}, []string{"3 bytes"}},
		{"header longer than the file", append([]byte{0, 0, 0, 1, 0, 0, 0, 0}, "{}"...), []string{"16777216"}},
		{"header over the limit", []byte{255, 255, 255, 255, 255, 255, 255, 127, '{', '}'}, []string{"9223372036854775807"}},
		{"data truncated", rawModel(right("16,32"), 20), []string{`tensor "right"`, "end at 32, expected at most 20"}},
		{"trailing bytes", rawModel(right("16,32"), 40), []string{"byte 157", "165, the file size", "8 trailing bytes"}},
		{"overlap", rawModel(right("8,24"), 24), []string{`tensor "right"`, "begin at 8, expected 16", `"left"`, "overlaps"}},
		{"hole", rawModel(right("24,40"), 40), []string{`tensor "right"`, "begin at 24, expected 16"}},
		{"range of another size than the shape", rawModel(right("16,20"), 20),
			[]string{`tensor "right"`, "[16,20] span 4 bytes", "expected 16"}},
		{"unknown dtype", rawModel(`{"w":{"dtype":"F128","shape":[1],"data_offsets":[0,16]}}`, 16),
			[]string{`tensor "w"`, `"F128"`, "expected one of BOOL, "}},
		{"duplicate",
			rawModel(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
				1), []string{`"w"`}},
		{"no JSON", rawModel(`{"w":`, 0), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, "bad.safetensors", c.content)
			for _, command := range []string{"load", "inspect"} {
				r := run(t, []string{command, path})
				r.want(t, 5, append(c.want, path)...)
				if r.out != "" {
					t.Errorf("%s printed %q", command, r.out)
				}
			}
			r := run(t, []string{"load", path, "--json"})
			r.want(t, 5, path)
			e := decode[errorJSON](t, r).Error
			if e.Kind != "corrupt" || !strings.Contains(e.Message, path) || strings.Contains(e.Message, "(fix:") {
				t.Errorf("error %+v", e)
			}
			if !strings.HasPrefix(r.stderr, "nebulaio: "+e.Message+"\n") {
				t.Errorf("stderr %q does not say %q", r.stderr, e.Message)
			}
		})
	}
}

func TestMissingModels(t *testing.T) {
	dir := t.TempDir()
	several := t.TempDir()
	one := `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}` // in both: nobody says which is meant
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		if err := os.WriteFile(filepath.Join(several, name), rawModel(one, 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	numbered := t.TempDir()
	for _, name := range []string{"a-00001-of-00002.safetensors", "b.safetensors"} {
		if err := os.WriteFile(filepath.Join(numbered, name), rawModel("{}", 0), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path string
		code       int
		want       []string
	}{
		{"no such file", filepath.Join(dir, "none.safetensors"), 3,
			[]string{"none.safetensors", "no such file", "fix: correct the path"}},
		{"a URL that is none of ours", "gs://bucket/model.safetensors", 3,
			[]string{"gs://bucket", "fix: objects are named s3://BUCKET/KEY"}},
		{"a slash too few", "s3:/bucket/model.safetensors", 3, []string{"fix: objects are named s3://BUCKET/KEY"}},
		{"no such directory", filepath.Join(dir, "no", "dir"), 3, []string{"no/dir", "no such file"}},
		{"directory without a model", dir, 3, []string{dir, "model.safetensors"}},
		{"directory with two of one tensor", several, 2, []string{several, "a.safetensors"}},
		{"a numbered shard beside another model", numbered, 2, []string{numbered, "b.safetensors"}},
		{"device file", "/dev/null", 2, []string{"/dev/null", "expected a regular file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, command := range []string{"load", "inspect"} {
				run(t, []string{command, c.path}).want(t, c.code, c.want...)
			}
		})
	}
}

func TestIndexWithoutShard(t *testing.T) {
	dir, files := shardedModel(t)
	if err := os.Remove(files[1].Path); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"load", dir}).want(t, 3, filepath.Base(files[1].Path))
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads files of mode 000")
	}
	path := tinyModel(t)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"load", "inspect"} {
		run(t, []string{command, path}).want(t, 4, path, "permission denied")
	}
}
