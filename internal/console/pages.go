// SPDX-License-Identifier: Apache-2.0

package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// page is one file of the pages.
type page struct {
	content []byte
	kind    string
	etag    string
}

// pages returns the handler of the files of the pages.
func (c *Console) pages() http.Handler {
	all, err := readPages(c.opts.Pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err != nil || len(all) == 0 {
			refuse(w, http.StatusNotFound, "NoPages", "this server has no pages of the console", "")
			return
		}
		if !safe(r.Method) {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "a page can only be read", "")
			return
		}
		name := strings.TrimPrefix(r.URL.Path, Path)
		if name == "" || path.Ext(name) == "" {
			name = "index.html" // routes of the pages
		}
		p, ok := all[name]
		if !ok {
			refuse(w, http.StatusNotFound, "NoSuchPage", "there is no such page", "")
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Content-Type", p.kind)
		h.Set("ETag", p.etag)
		h.Set("Cache-Control", "no-cache")
		if r.Header.Get("If-None-Match") == p.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(p.content) // a client that disconnected needs no reply
	})
}

// readPages reads all files of the pages. Only their exact names are served, so no path leads anywhere else.
func readPages(files fs.FS) (map[string]page, error) {
	all := map[string]page{}
	if files == nil {
		return all, nil
	}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		all[name] = page{content: b, kind: pageType(name), etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
		return nil
	})
	return all, err
}

// pageType returns the content type of a file of the pages. The list is fixed, because the machine's own list could
// change what a browser does with a file.
func pageType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json", ".webmanifest":
		return "application/json"
	case ".png":
		return "image/png"
	case ".ico":
		return "image/x-icon"
	case ".woff2":
		return "font/woff2"
	}
	return "text/plain; charset=utf-8"
}
