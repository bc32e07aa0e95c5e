// SPDX-License-Identifier: Apache-2.0

package attacks_test

import (
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/console/started"
)

// benchmarks returns a directory of benchmarks with a link that leads out of it, beside a file with a secret.
func benchmarks(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "results"), 0o755),
		os.WriteFile(filepath.Join(dir, "secret.json"), []byte(`{"tool":"nebulaio bench","a-secret":1}`), 0o600),
		os.Symlink("../secret.json", filepath.Join(dir, "results", "link.json"))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "results")
}

// paths are the attempts to reach files, buckets or keys that a path must not reach.
func paths() []attempt {
	none := func(browser func(*world) *started.Browser, secret string, paths ...string) func(*world) string {
		return func(w *world) string {
			for _, path := range paths {
				r := browser(w).Send(started.Request{Method: "GET", Path: path})
				if r.Status == http.StatusOK && strings.Contains(string(r.Body), secret) {
					return path + " was answered: " + string(r.Body[:min(len(r.Body), 100)])
				}
			}
			return ""
		}
	}
	victim := func(w *world) *started.Browser { return w.victim }
	root := func(w *world) *started.Browser { return w.root }
	return []attempt{
		{"files of the machine as pages", none(victim, "root:", "/console/../../../../etc/passwd",
			"/console/static/..%2f..%2f..%2f..%2fetc%2fpasswd", "/console/%2e%2e/%2e%2e/etc/passwd",
			"/console/static//etc/passwd", `/console/static/..\..\etc\passwd`, "/console/static/....//....//etc/passwd")},
		{"the folder of the pages", none(victim, "package ui", "/console/ui.go", "/console/static/", "/console/../ui.go")},
		{"keys of the administrator as benchmarks", none(root, "a-secret", "benchmarks/..%2fsecret.json",
			"benchmarks/link.json", "benchmarks/%2e%2e%2fsecret.json", "benchmarks-compare?a=../secret.json&b=../secret.json",
			"benchmarks-compare?a=link.json&b=link.json", "benchmarks/.%2f..%2fsecret.json", "benchmarks")},
		{"another bucket by the name of a bucket", func(w *world) string {
			for _, name := range []string{"..", ".", "other%2F..%2Fprivate", "%2e%2e%2fprivate", ".nebulaio", "private%3Fx",
				"private%23", "%00", "private%5C", "private%252Fx"} {
				r := w.attacker.Send(started.Request{Method: "GET", Path: "buckets/" + name + "/content?key=secret.txt"})
				if r.Status < 300 || strings.Contains(string(r.Body), "the secret") {
					return name + " was answered"
				}
			}
			return ""
		}},
		{"another bucket by a key", func(w *world) string {
			w.put("../private/secret.txt", "overwritten", "text/plain")
			r := w.victim.JSON("GET", "buckets/private/content?key=secret.txt", nil)
			if string(r.Body) != "the secret" {
				return "the key left its bucket"
			}
			return expect(w.victim.JSON("GET", "buckets/other/content?"+key("../private/secret.txt"), nil), 200, "")
		}},
		{"another bucket by an encoded key", func(w *world) string {
			for _, k := range []string{"..%2Fprivate%2Fsecret.txt", "%2e%2e/private/secret.txt", "/../private/secret.txt",
				"x/../../private/secret.txt"} {
				r := w.victim.JSON("GET", "buckets/other/content?"+key(k), nil)
				if r.Status == http.StatusOK {
					return k + " was answered"
				}
			}
			return ""
		}},
		{"parameters of S3 in a key", func(w *world) string {
			r := w.attacker.JSON("GET", "buckets/other/content?"+key("page.html?acl"), nil)
			return either(expect(r, 403, "AccessDenied"), expect(w.victim.JSON("GET", "buckets/other/content?"+
				key("page.html?versionId=null"), nil), 404, "NoSuchKey"))
		}},
		{"a key that is no text", func(w *world) string {
			return expect(w.victim.JSON("GET", "buckets/other/content?key=%ff%fe", nil), 400, "InvalidRequest")
		}},
		{"a key with a zero byte", func(w *world) string {
			if r := w.victim.JSON("GET", "buckets/other/content?key=page.html%00.txt", nil); r.Status < 400 {
				return "the rest of the key was cut off"
			}
			return ""
		}},
		{"a key that is too long", func(w *world) string {
			return expect(w.victim.JSON("GET", "buckets/other/object?key="+strings.Repeat("k", 1025), nil), 400,
				"InvalidRequest")
		}},
		{"fix scripts of other paths", func(w *world) string {
			return expect(w.root.JSON("GET", "machine/fix?path="+url.QueryEscape("/etc/shadow"), nil), 404, "NoDiagnosis")
		}},
		{"a user by a path", func(w *world) string {
			r := w.root.JSON("GET", "users/"+url.PathEscape("../users/victim"), nil)
			return expect(r, 404, "NoSuchAccount")
		}},
		{"S3 on the console's address", func(w *world) string {
			r := w.root.Send(started.Request{Method: "GET", Path: "/private/secret.txt"})
			if r.Status != http.StatusNotFound {
				return "the console answers as S3"
			}
			return ""
		}},
	}
}

// limits are the attempts to exhaust the server.
func limits() []attempt {
	huge := func(n uint64, rest string) string { return string(binary.LittleEndian.AppendUint64(nil, n)) + rest }
	nothing := func(name, content string) func(*world) string {
		return func(w *world) string {
			w.put(name, content, "")
			var in struct{ Kind, Why string }
			w.victim.Must("GET", "buckets/other/preview?"+key(name), nil).Into(&in)
			if in.Kind != "none" || in.Why == "" {
				return "it has a preview"
			}
			return ""
		}
	}
	return []attempt{
		{"a header of 2^63 bytes in a safetensors file", nothing("h1.safetensors", huge(1<<63, "{}"))},
		{"a header of 99 MB in a safetensors file", nothing("h2.safetensors", huge(99_000_000, "{}"))},
		{"nested JSON in a safetensors file", nothing("h3.safetensors", huge(100_000, strings.Repeat("[", 100_000)))},
		{"a tensor with more bytes than there are", nothing("h4.safetensors", huge(64,
			`{"a":{"dtype":"F32","shape":[9007199254740993],"data_offsets":[0,4]}}`[:64]))},
		{"a body that is too long", func(w *world) string {
			return expect(w.victim.JSON("POST", "buckets", map[string]any{"name": strings.Repeat("a", 3<<20)}), 413, "")
		}},
		{"deeply nested JSON", func(w *world) string {
			text := `{"name":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}"
			r := w.victim.Send(started.Request{Method: "POST", Path: "buckets", Body: strings.NewReader(text),
				Size: int64(len(text)), Header: map[string]string{"Content-Type": "application/json"}})
			return expect(r, 400, "InvalidRequest")
		}},
		{"two JSON values", func(w *world) string {
			const text = `{"name":"forged-one"}{"name":"forged-two"}`
			r := w.victim.Send(started.Request{Method: "POST", Path: "buckets", Body: strings.NewReader(text),
				Size: int64(len(text)), Header: map[string]string{"Content-Type": "application/json"}})
			return expect(r, 400, "InvalidRequest")
		}},
		{"an upload without a size", func(w *world) string {
			r := w.victim.Send(started.Request{Method: "PUT", Path: "buckets/other/content?key=x", Body: strings.NewReader("x"),
				Size: -1})
			return expect(r, 411, "MissingContentLength")
		}},
		{"a deletion of too many objects", func(w *world) string {
			all := make([]map[string]string, 1001)
			for i := range all {
				all[i] = map[string]string{"key": "k"}
			}
			return expect(w.victim.JSON("POST", "buckets/other/delete", map[string]any{"objects": all}), 400, "InvalidRequest")
		}},
		{"a page with too many rows", func(w *world) string {
			return expect(w.victim.JSON("GET", "buckets/other/objects?limit=1000000", nil), 400, "InvalidRequest")
		}},
	}
}
