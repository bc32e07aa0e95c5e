// SPDX-License-Identifier: Apache-2.0

package place

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Place{
		"a/b":                   {Path: "a/b"},
		"./s3:/x":               {Path: "./s3:/x"},
		"/":                     {Path: "/"},
		"s3://":                 {},
		"s3://b":                {Bucket: "b"},
		"s3://b/":               {Bucket: "b"},
		"s3://b/k/l":            {Bucket: "b", Key: "k/l"},
		"s3://b//k":             {Bucket: "b", Key: "/k"},
		"s3://prod@b/k":         {Bucket: "b", Key: "k", Profile: "prod"},
		"s3://my profile@b/k@l": {Bucket: "b", Key: "k@l", Profile: "my profile"},
	} {
		got, err := Parse(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for s, text := range map[string]string{
		"": "is empty", "s3:///k": "names no bucket", "s3://a b/k": `the bucket "a b"`, "http://h/b": `the scheme "http"`,
		"s3://@b/k": "no profile", "a\x00b": "NUL", "s3://b/" + strings.Repeat("k", 1025): "1025 bytes",
		"s3://" + strings.Repeat("b", 300): "the bucket", "gs://b/k": `the scheme "gs"`,
	} {
		if _, err := Parse(s); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), text) || errs.FixOf(err) == "" {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestJoinStaysInTheFolder(t *testing.T) {
	dir := Place{Path: "/data/x"}
	if p, err := dir.Join("a/b.bin"); err != nil || p.Path != "/data/x/a/b.bin" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, key := range []string{"", "../a", "a/../../b", "/etc/passwd", "a//b", "a/./b", "a/", "a\x00", "..",
		strings.Repeat("n", 256)} {
		if p, err := dir.Join(key); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %+v, %v", key, p, err)
		}
	}
	bucket := Place{Bucket: "b", Key: "run"}
	if p, err := bucket.Join("../a"); err != nil || p.String() != "s3://b/run/../a" {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := bucket.Join(strings.Repeat("k", 1024)); !errs.Is(err, errs.Invalid) {
		t.Errorf("a long key: %v", err)
	}
	if p := bucket.AsFolder(); p.Key != "run/" || p.AsFolder() != p || p.Base() != "run" {
		t.Errorf("%+v", p)
	}
}

func FuzzParse(f *testing.F) {
	long := strings.Repeat("\xb8", 3000) + "://"
	for _, s := range []string{"a", "s3://b/k", "s3://p@b/k/", "s3://", "x://", "s3://b/\x00", long} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Fatal("an error repeats all of its input")
			}
			return
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Fatalf("%q: %+v becomes %+v, %v", s, p, again, err)
		}
		if p.Remote() != strings.HasPrefix(s, scheme) {
			t.Fatalf("%q: %+v", s, p)
		}
	})
}
