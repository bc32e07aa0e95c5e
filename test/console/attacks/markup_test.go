// SPDX-License-Identifier: Apache-2.0

package attacks_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strings"

	"github.com/nebulaio/nebulaio/test/console/started"
)

// markup are the attempts to run a script in the victim's browser.
func markup() []attempt {
	get := func(path string) func(*world) *started.Reply {
		return func(w *world) *started.Reply { return w.victim.JSON("GET", path, nil) }
	}
	jsonOf := func(make func(*world), path string) func(*world) string {
		return func(w *world) string {
			if make != nil {
				make(w)
			}
			return inert(get(path)(w))
		}
	}
	named := func(k string) func(*world) { return func(w *world) { w.put(k, "x", "text/plain") } }
	const image = `"><img src=x onerror=alert(1)>`
	return []attempt{
		{"an HTML document as an object", func(w *world) string {
			w.put("page.html", "<html>"+script, "text/html")
			return saved(get("buckets/other/content?key=page.html")(w))
		}},
		{"an SVG image as an object", func(w *world) string {
			w.put("i.svg", `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, "image/svg+xml")
			return saved(get("buckets/other/content?key=i.svg")(w))
		}},
		{"S3's parameters for the type of a reply", func(w *world) string {
			return saved(get("buckets/other/content?key=page.html&response-content-type=text/html&" +
				"response-content-disposition=inline")(w))
		}},
		{"a script in an object's name", jsonOf(named(script), "buckets/other/objects?delimiter=")},
		{"an image in a folder's name", jsonOf(named(image+"/x"), "buckets/other/objects?delimiter=/")},
		{"a script in the name of a version", jsonOf(named(script), "buckets/other/versions?prefix=")},
		{"a script in the prefix of a listing", jsonOf(nil, "buckets/other/objects?prefix="+url.QueryEscape(script))},
		{"a script in a search", jsonOf(nil, "buckets/other/objects?search="+url.QueryEscape(script))},
		{"a script in metadata", func(w *world) string {
			meta := base64.StdEncoding.EncodeToString([]byte(`{"x":"` + script + `"}`))
			w.victim.Put("other", "m", "x", map[string]string{"X-Object-Metadata": meta})
			return inert(get("buckets/other/object?key=m")(w))
		}},
		{"a line break in metadata", func(w *world) string {
			meta := base64.StdEncoding.EncodeToString([]byte(`{"x":"a\r\nSet-Cookie: a=b"}`))
			return expect(w.victim.Put("other", "m2", "x", map[string]string{"X-Object-Metadata": meta}), 400, "InvalidRequest")
		}},
		{"a header as the name of metadata", func(w *world) string {
			return expect(w.victim.JSON("POST", "buckets/other/uploads", map[string]any{"key": "k", "size": 1,
				"metadata": map[string]string{"a: b\r\nx-amz-acl": "public-read"}}), 400, "InvalidRequest")
		}},
		{"a line break in the type of an upload", func(w *world) string {
			w.victim.Must("POST", "buckets/other/uploads", map[string]any{"key": "k", "size": 1,
				"type": "text/html\r\nx-amz-acl: public-read"})
			return inert(get("buckets/other/uploads?key=k")(w))
		}},
		{"a script as a tag of an object", func(w *world) string {
			r := w.victim.JSON("PUT", "buckets/other/object/tags?key=m", map[string]any{"tags": map[string]string{"a": script}})
			return either(inert(r), inert(get("buckets/other/object?key=m")(w)))
		}},
		{"a script as a tag of a bucket", func(w *world) string {
			r := w.victim.JSON("PUT", "buckets/other/tags", map[string]any{"tags": map[string]string{script: "a"}})
			return either(inert(r), inert(get("buckets/other")(w)))
		}},
		{"a script as the name of a new bucket", func(w *world) string {
			r := w.victim.JSON("POST", "buckets", map[string]any{"name": script})
			return either(expect(r, 400, ""), inert(r))
		}},
		{"a script as a bucket in the path", func(w *world) string {
			return inert(get("buckets/" + url.PathEscape(script))(w))
		}},
		{"a script as a route", func(w *world) string {
			r := get(url.PathEscape(script))(w)
			return either(expect(r, 404, ""), inert(r))
		}},
		{"a script as a page", func(w *world) string {
			r := w.victim.Send(started.Request{Method: "GET", Path: "/console/" + url.PathEscape(script) + ".html"})
			return either(expect(r, 404, ""), inert(r))
		}},
		{"a script as an access key", func(w *world) string {
			r := w.root.JSON("POST", "users", map[string]string{"access_key": script, "role": "user"})
			return either(expect(r, 400, ""), inert(r))
		}},
		{"a script in a policy", func(w *world) string {
			return inert(w.victim.JSON("POST", "buckets/other/policy/validate", map[string]string{"policy": script}))
		}},
		{"a script in the preview of a text", jsonOf(func(w *world) { w.put("t.txt", script, "text/html") },
			"buckets/other/preview?key=t.txt")},
		{"a script as the name of a tensor", jsonOf(func(w *world) { w.put("t.safetensors", tensorFile(), "") },
			"buckets/other/preview?key=t.safetensors")},
		{"a script as the key of a sample", jsonOf(func(w *world) { w.put("t.tar", tarFile(w), "") },
			"buckets/other/preview?key=t.tar")},
		{"a line break in the name of a download", func(w *world) string {
			const k = "a\r\nSet-Cookie: stolen=1\r\n\r\n<script>"
			w.put(k, "x", "text/html")
			r := get("buckets/other/content?" + key(k))(w)
			if r.Header.Get("Set-Cookie") != "" {
				return "a header was added"
			}
			return saved(r)
		}},
		{"a quote in the name of a download", func(w *world) string {
			const k = `a"; filename="evil.html`
			w.put(k, "x", "text/html")
			r := get("buckets/other/content?" + key(k))(w)
			if strings.Contains(r.Header.Get("Content-Disposition"), `"`) {
				return r.Header.Get("Content-Disposition")
			}
			return saved(r)
		}},
		{"a script in the list of transfers", jsonOf(nil, "transfers")},
		{"a callback for JSONP", func(w *world) string { return inert(get("session?callback=alert&jsonp=alert")(w)) }},
		{"a page that runs scripts of others", func(w *world) string {
			r := w.victim.Send(started.Request{Method: "GET", Path: "/console/"})
			policy := r.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "base-uri 'none'", "form-action 'none'",
				"require-trusted-types-for 'script'"} {
				if !strings.Contains(policy, want) {
					return "the policy lacks " + want
				}
			}
			if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
				return policy
			}
			return expect(r, http.StatusOK, "")
		}},
	}
}

// either returns the first that is not empty.
func either(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// tensorFile returns a safetensors file whose names are markup.
func tensorFile() string {
	header := `{"__metadata__":{"` + script + `":"` + script + `"},"` + script +
		`":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + "\x00\x00\x00\x00"
}

// tarFile returns an archive whose names are markup.
func tarFile(w *world) string {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	if err := t.WriteHeader(&tar.Header{Name: script + "0.jpg", Size: 1, Mode: 0o644}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := t.Write([]byte("x")); err != nil {
		w.t.Fatal(err)
	}
	if err := t.Close(); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}
