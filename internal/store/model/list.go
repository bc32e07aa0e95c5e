// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// MaxPage is the largest number of entries on a page.
const MaxPage = 1000

// limitOf returns the number of entries on a page that was requested with limit.
func limitOf(limit int) int {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return limit
}

// group returns the common prefix of key, and false if key is listed itself.
func group(key, prefix, delimiter string) (string, bool) {
	if delimiter == "" {
		return "", false
	}
	rest := key[len(prefix):]
	i := strings.Index(rest, delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(prefix)+i+len(delimiter)], true
}

// entry is one line of a listing: an object's version, or a common prefix.
type entry struct {
	prefix string
	info   object.Info
}

// List implements object.Lister. List computes the whole listing and cuts the page out of it.
func (s *Store) List(ctx context.Context, l object.List) (object.Page, error) {
	const op = "list"
	if err := s.enter(ctx, op, l.Bucket); err != nil {
		return object.Page{}, err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, l.Bucket)
	if err != nil {
		return object.Page{}, err
	}
	var all []entry
	for _, key := range slices.Sorted(maps.Keys(b.keys)) {
		if !strings.HasPrefix(key, l.Prefix) {
			continue
		}
		left := b.left(key, l)
		if len(left) == 0 {
			continue
		}
		if p, ok := group(key, l.Prefix, l.Delimiter); ok {
			if p != l.After && (len(all) == 0 || all[len(all)-1].prefix != p) {
				all = append(all, entry{prefix: p})
			}
			continue
		}
		for _, v := range left {
			i := b.describe(v)
			if !l.Attributes {
				i.Attributes, i.Parts = nil, nil
			}
			all = append(all, entry{info: i})
		}
	}
	var page object.Page
	if n := limitOf(l.Limit); len(all) > n {
		all = all[:n]
		page.Truncated = true
		last := all[n-1]
		page.Next = cmp.Or(last.prefix, last.info.Key)
		if l.Versions {
			page.NextVersion = last.info.Version
		}
	}
	for _, e := range all {
		if e.prefix != "" {
			page.Prefixes = append(page.Prefixes, e.prefix)
		} else {
			page.Objects = append(page.Objects, e.info)
		}
	}
	return page, nil
}

// left returns the versions of a key that l asks for and that lie behind its
// After. A version that is gone still marks its place; of a null version that
// is gone nobody knows the place, so that none is left out.
func (b *bucket) left(key string, l object.List) []*version {
	if l.After != "" && key < l.After {
		return nil
	}
	vs := b.keys[key]
	if !l.Versions {
		if vs[0].info.Marker || l.After == key {
			return nil
		}
		return vs[:1]
	}
	if l.After != key {
		return vs
	}
	if l.AfterVersion == "" {
		return nil
	}
	for i, v := range vs {
		if v.info.Version == l.AfterVersion {
			return vs[i+1:]
		}
	}
	if seq, ok := seqOf(l.AfterVersion); ok {
		return slices.DeleteFunc(slices.Clone(vs), func(v *version) bool { return v.seq >= seq })
	}
	return vs
}
