// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestListsAreThoseOfTheUpstream compares pages of every kind with those of the store behind the upstream.
func TestListsAreThoseOfTheUpstream(t *testing.T) {
	for _, versioning := range []object.Versioning{object.VersioningOff, object.VersioningEnabled} {
		for _, prefix := range []string{"", "pre/", "a/b"} {
			t.Run(fmt.Sprintf("%s below %q", versioning, prefix), func(t *testing.T) { compareLists(t, versioning, prefix) })
		}
	}
}

func compareLists(t *testing.T, versioning object.Versioning, prefix string) {
	s := newThrough(t, prefix)
	ctx := t.Context()
	if err := s.CreateBucket(ctx, object.Bucket{Name: "b", Versioning: versioning}); err != nil {
		t.Fatal(err)
	}
	keys := []string{"a", "a/1", "a/2", "a//", "a b", "a+b", "a%20b", "b", "b/c/d", "b/c/e", "ü", "ü/x", "日本", "z&<>\"'",
		"zz\n"}
	for i, k := range keys {
		for range 1 + i%3 {
			if _, err := s.Put(ctx, object.Put{Bucket: "b", Key: k, Body: strings.NewReader("x"), Size: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if i%4 == 3 {
			if _, err := s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: k}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Keys beside the prefix are not seen.
	for _, k := range []string{"0", "pre", "pre0", "zzz"} {
		if prefix != "" && !strings.HasPrefix(k, prefix) {
			if _, err := s.Store.Put(ctx, object.Put{Bucket: valid("b"), Key: k, Body: strings.NewReader("x"),
				Size: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := 0
	for _, l := range []object.List{{}, {Prefix: "a"}, {Prefix: "a/"}, {Delimiter: "/"}, {Prefix: "b/", Delimiter: "/"},
		{Delimiter: " "}, {Delimiter: "b/"}, {Prefix: "nothing"}, {Versions: true}, {Versions: true, Delimiter: "/"},
		{Versions: true, Prefix: "a"}} {
		for _, limit := range []int{1, 2, 3, 1000} {
			for _, after := range []string{"", "a", "a/", "a/1", "b/c/d", "m", "ü/"} {
				l.Bucket, l.Limit, l.After, l.AfterVersion = "b", limit, after, ""
				n += walk(t, s, l, prefix)
			}
		}
	}
	t.Logf("%d pages are equal", n)
}

// walk compares a listing page by page, and returns the number of pages.
func walk(t *testing.T, s *through, l object.List, prefix string) int {
	t.Helper()
	below := l
	below.Bucket, below.Prefix = valid("b"), prefix+l.Prefix
	if l.After != "" {
		below.After = prefix + l.After
	}
	for n := 1; ; n++ {
		got, err := s.List(t.Context(), l)
		if err != nil {
			t.Fatalf("list %+v: %v", l, err)
		}
		want, err := s.Store.List(t.Context(), below)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := shown(&got, "", l.Versions), shown(&want, prefix, l.Versions); !slices.Equal(a, b) {
			t.Fatalf("list %+v: %q, expected %q", l, a, b)
		}
		if !want.Truncated {
			return n
		}
		l.After, l.AfterVersion, below.After, below.AfterVersion = got.Next, got.NextVersion, want.Next, want.NextVersion
	}
}

func shown(p *object.Page, prefix string, versions bool) []string {
	var out []string
	for _, o := range p.Objects {
		if !versions {
			o.Version = "" // a listing of current objects does not name versions
		}
		out = append(out, fmt.Sprintf("%s %s %v %v %d %s", strings.TrimPrefix(o.Key, prefix), o.Version, o.Latest, o.Marker,
			o.Size, o.ETag))
	}
	for _, g := range p.Prefixes {
		out = append(out, "prefix "+strings.TrimPrefix(g, prefix))
	}
	return append(out, fmt.Sprint(p.Truncated))
}
