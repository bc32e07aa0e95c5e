// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// line is one entry of a listing as the tests expect it: a common prefix, or a version of a key.
type line struct {
	prefix, key, version string
}

// name is what a listing orders its lines by.
func (l line) name() string { return l.prefix + l.key }

// bruteForce makes the listing that l asks for out of all versions, in their
// order, by the words of the contract and without any of a store's cleverness.
func bruteForce(all []object.Info, l object.List) []line {
	seen := map[string]bool{}
	past := l.AfterVersion == "" // past the version that After and AfterVersion name
	var out []line
	for _, i := range all {
		if !l.Versions && (!i.Latest || i.Marker) {
			continue
		}
		if i.Key == l.After && l.Versions && l.AfterVersion != "" {
			if !past {
				past = i.Version == l.AfterVersion
				continue
			}
		} else if l.After != "" && i.Key <= l.After {
			continue
		}
		rest, ok := strings.CutPrefix(i.Key, l.Prefix)
		if !ok {
			continue
		}
		if before, _, ok := strings.Cut(rest, l.Delimiter); ok && l.Delimiter != "" {
			p := l.Prefix + before + l.Delimiter
			if !seen[p] && p != l.After {
				seen[p] = true
				out = append(out, line{prefix: p})
			}
			continue
		}
		out = append(out, line{key: i.Key, version: i.Version})
	}
	return out
}

// linesOf turns a page into lines in their order.
func linesOf(p object.Page) []line {
	var out []line
	for _, x := range p.Prefixes {
		out = append(out, line{prefix: x})
	}
	for _, o := range p.Objects {
		out = append(out, line{key: o.Key, version: o.Version})
	}
	slices.SortStableFunc(out, func(a, b line) int { return strings.Compare(a.name(), b.name()) })
	return out
}

// lists ends the test unless the page that l asks for is that of bruteForce.
func (f *fixture) lists(all []object.Info, l object.List) object.Page {
	f.Helper()
	p, err := f.s.List(f.ctx, l)
	f.ok(err, "list %+v", l)
	want := bruteForce(all, l)
	limit := l.Limit
	if limit == 0 {
		limit = 1000
	}
	truncated := len(want) > limit
	if truncated {
		want = want[:limit]
	}
	if got := linesOf(p); !slices.Equal(got, want) || p.Truncated != truncated {
		f.Fatalf("list %+v:\n  got      %q truncated %v\n  expected %q truncated %v", l, got, p.Truncated, want, truncated)
	}
	if !slices.IsSorted(p.Prefixes) || !slices.IsSortedFunc(p.Objects,
		func(a, b object.Info) int { return strings.Compare(a.Key, b.Key) }) {
		f.Fatalf("list %+v: not in order: %q, %+v", l, p.Prefixes, p.Objects)
	}
	if truncated {
		last := want[len(want)-1]
		same(f, p.Next, last.name(), "Next of %+v", l)
		if l.Versions {
			same(f, p.NextVersion, last.version, "NextVersion of %+v", l)
		}
	}
	for _, o := range p.Objects {
		n := slices.IndexFunc(all, func(i object.Info) bool { return i.Key == o.Key && i.Version == o.Version })
		i := all[n]
		if !l.Attributes {
			i.Attributes, i.Parts, o.Attributes, o.Parts = nil, nil, nil, nil
		}
		if got, want := show(o, true), show(i, true); got != want {
			f.Fatalf("list %+v: %s, expected %s", l, got, want)
		}
	}
	return p
}

// pages walks a listing page by page, and ends the test unless the whole comes of it.
func (f *fixture) pages(all []object.Info, l object.List) {
	f.Helper()
	want := bruteForce(all, l)
	var got []line
	for range len(want) + 2 {
		p := f.lists(all, l)
		got = append(got, linesOf(p)...)
		if !p.Truncated {
			break
		}
		l.After, l.AfterVersion = p.Next, p.NextVersion
	}
	if !slices.Equal(got, want) {
		f.Fatalf("the pages of %+v have %q, expected %q", l, got, want)
	}
}

var listKeys = []string{
	"a", "a/", "a//", "a//b", "a/b", "a/b/c", "a/b/d", "a/c", "a0", "ab", "b", "b/", "b/a", "b/a/a", "b\x00", "b\x00/",
	"b\x00/x", "b\xff", "b\xff/x", "b\xff\xff", "b\xff\xff/y",
	"c/1", "c/2", "c/3", "c-1", "c-2/x", "d/\xff", "d/\xff\xff", "d0", "/", "//", "/x", "\x00", "\x00/", "\xff", "\xff/",
	"\xff\xff", "e/--/1", "e/--/2", "e/-", "😀/a", "😀/b",
}

var (
	listPrefixes = []string{"", "a", "a/", "a/b", "a//", "b", "b\x00", "b\xff", "c", "c/", "d/\xff", "\xff", "\x00",
		"e/", "none", "zz", strings.Repeat("a", 1024)}
	listDelimiters = []string{"", "/", "//", "a", "\x00", "\xff", "--/", "none", "b/", "/b/"}
	listAfters     = []string{"", "a", "a/", "a/b", "a/b/", "a/b/c", "a/zzz", "a0", "a\xff", "b\xff", "b\xff\xff",
		"b\xff\xff/", "c/2", "c/3", "c/", "c0", "\xff\xff", "\xff\xff\xff", "\x00", "none", "😀/",
		strings.Repeat("\xff", 1024)}
)

// fillList makes a bucket with all of listKeys, in the state of versioning, and returns all of its versions.
func (f *fixture) fillList(v object.Versioning) []object.Info {
	f.bucket("b", v, object.ETagMD5)
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 3 {
		for _, n := range r.Perm(len(listKeys)) {
			k := listKeys[n]
			switch {
			case round > 0 && v == object.VersioningOff:
			case round > 0 && r.IntN(3) == 0:
				f.remove("b", k, "")
			case round == 0 || r.IntN(2) == 0:
				f.put("b", k, []byte(fmt.Sprint(k, round)),
					func(p *object.Put) { p.Attributes = map[string]string{"round": fmt.Sprint(round)} })
			}
		}
	}
	p, err := f.s.List(f.ctx, object.List{Bucket: "b", Versions: true, Attributes: true})
	f.ok(err, "list")
	same(f, p.Truncated, false, "Truncated")
	if v == object.VersioningOff {
		same(f, len(p.Objects), len(listKeys), "objects")
	}
	return p.Objects
}

// everyPage compares every combination with the answer by brute force.
func everyPage(v object.Versioning, versions bool) func(f *fixture) {
	return func(f *fixture) {
		all := f.fillList(v)
		for _, prefix := range listPrefixes {
			for _, delimiter := range listDelimiters {
				for _, after := range listAfters {
					for _, limit := range []int{0, 1, 3} {
						f.lists(all, object.List{Bucket: "b", Prefix: prefix, Delimiter: delimiter, After: after, Limit: limit,
							Versions: versions})
					}
				}
				for _, limit := range []int{1, 2, 7} {
					f.pages(all, object.List{Bucket: "b", Prefix: prefix, Delimiter: delimiter, Limit: limit, Versions: versions,
						Attributes: limit == 2})
				}
			}
		}
		if !versions {
			return
		}
		for _, i := range all {
			for _, delimiter := range []string{"", "/"} {
				f.lists(all, object.List{Bucket: "b", Delimiter: delimiter, After: i.Key, AfterVersion: i.Version, Limit: 2,
					Versions: true})
			}
		}
	}
}

var listTests = []test{
	{"every page of current objects", everyPage(object.VersioningOff, false)},
	{"every page of current objects among versions", everyPage(object.VersioningEnabled, false)},
	{"every page of versions", everyPage(object.VersioningEnabled, true)},
	{"every page of versions while suspended", everyPage(object.VersioningSuspended, true)},
	{"of versions without versioning", everyPage(object.VersioningOff, true)},
	{"empty", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, l := range []object.List{{Bucket: "b"}, {Bucket: "b", Prefix: "x", Delimiter: "/", Versions: true},
			{Bucket: "b", After: "x", Limit: 1}} {
			f.lists(nil, l)
		}
	}},
	{"limit of a page", func(f *fixture) {
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for n := range 1001 {
			f.put("b", fmt.Sprintf("%04d", n), nil)
		}
		p, err := f.s.List(f.ctx, object.List{Bucket: "b"})
		f.ok(err, "list")
		same(f, len(p.Objects), 1000, "objects of a page without a limit")
		same(f, p.Truncated, true, "Truncated")
		same(f, p.Next, "0999", "Next")
		p, err = f.s.List(f.ctx, object.List{Bucket: "b", After: p.Next})
		f.ok(err, "list")
		same(f, len(p.Objects), 1, "objects of the last page")
		same(f, p.Truncated, false, "Truncated")
		p, err = f.s.List(f.ctx, object.List{Bucket: "b", Limit: 1000, After: "0000"})
		f.ok(err, "list")
		same(f, len(p.Objects), 1000, "objects")
		same(f, p.Truncated, false, "Truncated of a page that is just full")
	}},
	{"delete page by page", func(f *fixture) {
		// What clients do to empty a bucket: the version that a page ended with is gone when the next is asked for.
		f.fillList(object.VersioningEnabled)
		f.versioning("b", object.VersioningSuspended)
		for _, k := range listKeys[:10] {
			f.put("b", k, []byte("null"))
		}
		l := object.List{Bucket: "b", Versions: true, Limit: 3}
		for {
			p, err := f.s.List(f.ctx, l)
			f.ok(err, "list")
			for _, i := range p.Objects {
				f.remove("b", i.Key, i.Version)
			}
			if !p.Truncated {
				break
			}
			l.After, l.AfterVersion = p.Next, p.NextVersion
		}
		all := f.versions("b")
		if len(all) != 0 {
			f.Fatalf("left over: %+v", all)
		}
		f.ok(f.s.DeleteBucket(f.ctx, "b"), "delete bucket")
	}},
}
