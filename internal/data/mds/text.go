// SPDX-License-Identifier: Apache-2.0

package mds

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// This file makes JSON as Python's json.dumps(obj, sort_keys=True) makes it, so that shards and indexes are equal to
// those of mosaicml-streaming byte by byte.

// configText returns the configuration that stands in each shard.
func configText(s *Shard) []byte {
	return []byte(object(layoutMembers(s)))
}

// recordText returns the entry of a shard for the index.
func recordText(s *Shard) []byte {
	m := layoutMembers(s)
	m["raw_data"] = fileText(&s.Raw)
	m["samples"] = strconv.FormatInt(s.Samples, 10)
	m["zip_data"] = "null"
	if s.Zip != nil {
		m["zip_data"] = fileText(s.Zip)
	}
	return []byte(object(m))
}

// layoutMembers returns the members that the configuration of a shard and its entry in the index share.
func layoutMembers(s *Shard) map[string]string {
	var names, encodings, sizes []string
	for _, c := range s.Columns {
		names, encodings = append(names, quote(c.Name)), append(encodings, quote(c.Encoding))
		sizes = append(sizes, optional(c.Size))
	}
	hashes := make([]string, 0, len(s.Hashes))
	for _, h := range s.Hashes {
		hashes = append(hashes, quote(h))
	}
	compression := "null"
	if s.Compression != "" {
		compression = quote(s.Compression)
	}
	return map[string]string{
		"column_encodings": array(encodings), "column_names": array(names), "column_sizes": array(sizes),
		"compression": compression, "format": quote(format), "hashes": array(hashes),
		"size_limit": optional(s.SizeLimit), "version": strconv.Itoa(version),
	}
}

func fileText(f *File) string {
	hashes := make(map[string]string, len(f.Hashes))
	for name, sum := range f.Hashes {
		hashes[name] = quote(sum)
	}
	return object(map[string]string{"basename": quote(f.Basename), "bytes": strconv.FormatInt(f.Bytes, 10),
		"hashes": object(hashes)})
}

// object returns a JSON object with sorted keys. The values are JSON already.
func object(members map[string]string) string {
	list := make([]string, 0, len(members))
	for _, key := range slices.Sorted(maps.Keys(members)) {
		list = append(list, quote(key)+": "+members[key])
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func array(values []string) string { return "[" + strings.Join(values, ", ") + "]" }

// optional returns a number, or null for 0.
func optional(n int64) string {
	if n == 0 {
		return "null"
	}
	return strconv.FormatInt(n, 10)
}

// quote returns a JSON string in ASCII.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch short := strings.IndexRune("\"\\\n\r\t\f\b", c); {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\nrtfb`[short])
		case c >= ' ' && c <= '~':
			b.WriteRune(c)
		case c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
