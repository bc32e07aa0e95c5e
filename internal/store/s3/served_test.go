// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// TestAnObjectTellsHowItsRepliesWereServed reads two ranges that the server got in different ways.
func TestAnObjectTellsHowItsRepliesWereServed(t *testing.T) {
	ways := []string{"hit", "upstream", "hit"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"0011"`)
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "10")
			return
		}
		way := ways[0]
		ways = ways[1:]
		w.Header().Set("x-nebulaio-cache", way)
		w.Header().Set("x-nebulaio-cache-age", strconv.Itoa(len(way)))
		w.Header().Set("x-nebulaio-verified", "md5")
		w.Header().Set("Content-Range", "bytes 0-4/10")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, "12345")
	}))
	defer s.Close()
	c, err := New(Options{Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o, err := c.Open(t.Context(), "models", "a", "")
	if err != nil {
		t.Fatal(err)
	}
	f := o.File()
	if got := vfs.ServedBy(f); got != nil || vfs.Via(f) != "http" {
		t.Errorf("%+v before the first reply, via %q", got, vfs.Via(f))
	}
	for range 3 {
		r, err := o.Fetch(t.Context(), 0, 5)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
	}
	if got := vfs.ServedBy(f); !slices.Equal(got, []vfs.Served{{From: "hit", Age: 3, Verified: "md5"},
		{From: "upstream", Age: 8, Verified: "md5"}}) {
		t.Errorf("%+v", got)
	}
}
