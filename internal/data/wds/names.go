// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// naming is webdataset's own expression for the key and the extension of a member.
var naming = regexp.MustCompile(`^((?:.*/|)[^.]+)[.]([^/]*)$`)

// split returns the key and the extension of a member, as it is written. The result ok is false if webdataset drops
// the name.
func split(name string) (key, ext string, ok bool) {
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[base:], '.')
	switch {
	case dot < 0:
		return "", "", false
	case dot > 0 && strings.IndexByte(name, '\n') < 0: // all usual names, without the cost of the expression
		return name[:base+dot], name[base+dot+1:], true
	}
	m := naming.FindStringSubmatch(name)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// isMetadata reports whether webdataset skips the name because its first component is such as "__x__".
func isMetadata(name string) bool {
	if !strings.HasPrefix(name, "__") {
		return false
	}
	first, _, nested := strings.Cut(name, "/")
	if !nested && strings.HasSuffix(name, "__") {
		return true
	}
	// webdataset matches the name with a regular expression that ends in $. In Python, $ also matches before a final
	// newline.
	if !nested {
		first = strings.TrimSuffix(first, "\n")
	}
	return len(first) >= 4 && strings.HasSuffix(first, "__")
}

// lower returns an extension in lower case. Bytes that are not UTF-8 stay as they are.
func lower(ext string) string {
	if utf8.ValidString(ext) {
		return strings.ToLower(ext)
	}
	b := []byte(ext)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// SplitName returns the key and the extension of a member, with the extension in lower case. The result ok is false if
// webdataset drops a member with this name.
func SplitName(name string) (key, ext string, ok bool) {
	key, ext, ok = split(name)
	return key, lower(ext), ok
}

// WrongName returns why a Writer would refuse a part, or "". All refused names would be read back differently by
// webdataset, or not at all.
func WrongName(key, ext string) string {
	why, _ := wrongName(key, ext)
	return why
}
