// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"html"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/versity/versitygw/auth"
)

// versitygw compares patterns with names byte by byte, and knows one spelling of each action. In S3, ? matches one
// character of a key, and the case of an action does not matter. So we rewrite the policy so that versitygw's
// comparison gives the same result as S3:
//
//   - If an action matches a known action in another case, we add the known action. The original action stays.
//   - A resource becomes patterns for the bucket and patterns for its keys. A pattern for keys has one ? for each byte
//     of the bucket's name in place of the bucket. By these marks, Comparable recognizes a pattern.
//   - Comparable writes a key in two forms, with the byte keySeparator between them. The first form gives every
//     character the same number of bytes, so that ? matches one character. The second form is the key itself. A key
//     of ASCII has only the second form: each of its bytes is a character.

// keySeparator separates the characters and the bytes of a key. Valid UTF-8 never contains this byte.
const keySeparator = "\xff"

// keyStar stands for the character * of a key. Valid UTF-8 never contains this byte, so only wildcards match it.
const keyStar = "\xfd"

// Kinds of patterns for keys. The kind is the first byte of the pattern.
const (
	byBytes      = 'p' // a pattern without ?, for all keys
	byASCII      = 'a' // a pattern with ?, for keys of ASCII
	byCharacters = 'u' // a pattern with ?, for keys beyond ASCII
)

// charLength is the number of bytes of a character before the separator.
const charLength = 4

// appendChar appends a character in charLength bytes. The first byte has values that no other byte has, and no byte is
// a wildcard.
func appendChar(to []byte, r rune) []byte {
	return append(to, 0xc0|byte(r>>18), 0x80|byte(r>>12&0x3f), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
}

// ascii reports whether a text is ASCII alone.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Comparable returns a key in the form in which the S3 library versitygw compares keys with a rewritten policy.
// Comparable also converts a resource pattern of a rewritten policy, which it recognizes by a bucket name of
// question marks.
func Comparable(bucket, key string) string {
	if bucket != "" && strings.Trim(bucket, "?") == "" {
		return comparablePattern(key)
	}
	return comparableKey(key)
}

// comparableKey replaces each * of a key. In a pattern, * is always a wildcard; versitygw takes it for the * of a key,
// and the rest of the key then matches nothing.
func comparableKey(key string) string {
	if ascii(key) {
		return keySeparator + strings.ReplaceAll(key, "*", keyStar)
	}
	out := make([]byte, 0, charLength*utf8.RuneCountInString(key)+1+len(key))
	for _, r := range key {
		out = appendChar(out, r)
	}
	out = append(out, keySeparator...)
	// Only a key of an older version is not UTF-8 and can contain the separator. No pattern contains 0xfe either.
	return string(out) + strings.NewReplacer(keySeparator, "\xfe", "*", keyStar).Replace(key)
}

// comparablePattern returns a pattern in the form that comparableKey produces. The first byte of the pattern is its
// kind.
func comparablePattern(pattern string) string {
	if pattern == "" {
		return pattern
	}
	kind, pattern := pattern[0], pattern[1:]
	switch kind {
	case byBytes:
		return "*" + keySeparator + pattern
	case byASCII:
		return keySeparator + pattern
	}
	var out []byte
	for _, r := range pattern {
		switch r {
		case '*':
			out = append(out, '*')
		case '?':
			out = append(out, "????"...) // charLength of them
		default:
			out = appendChar(out, r)
		}
	}
	return string(out) + keySeparator + "*"
}

// comparableResources returns the resources of a statement in the form that versitygw compares.
func comparableResources(raw json.RawMessage, bucket string) (json.RawMessage, error) {
	names, err := stringsOf(raw)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		rest := strings.TrimPrefix(name, auth.ResourceArnPrefix)
		if match, err := path.Match(rest, bucket); rest == bucket || match && err == nil {
			out = append(out, auth.ResourceArnPrefix+bucket)
		}
		for _, keys := range keyPatterns(rest, bucket) {
			if !strings.Contains(keys, "?") {
				out = append(out, keysARN(bucket, byBytes, keys))
				continue
			}
			out = append(out, keysARN(bucket, byCharacters, keys))
			if ascii(keys) {
				out = append(out, keysARN(bucket, byASCII, keys))
			}
		}
	}
	if out == nil {
		out = []string{keysARN(bucket, byBytes, "")} // a key is never empty
	}
	return json.Marshal(out)
}

// keysARN returns the resource for the keys that match a pattern of the given kind.
func keysARN(bucket string, kind rune, pattern string) string {
	return auth.ResourceArnPrefix + strings.Repeat("?", len(bucket)) + "/" + string(kind) + pattern
}

// keyPatterns turns a pattern for "bucket/key" into patterns for the keys of one bucket. A key matches the original
// pattern if it matches one of the returned patterns. A * before the first slash gives several patterns.
func keyPatterns(pattern, bucket string) []string {
	add := func(to []int, i int) []int {
		for ; !slices.Contains(to, i); i++ {
			to = append(to, i)
			if i == len(pattern) || pattern[i] != '*' {
				break
			}
		}
		return to
	}
	at := add(nil, 0) // possible positions of the comparison in the pattern
	for _, c := range []byte(bucket + "/") {
		var next []int
		for _, i := range at {
			switch {
			case i == len(pattern):
			case pattern[i] == '*':
				next = add(next, i)
			case pattern[i] == '?' || pattern[i] == c:
				next = add(next, i+1)
			}
		}
		at = next
	}
	// A later * matches everything that an earlier * matches, and so does the pattern right behind the later *.
	last := -2
	for _, i := range at {
		if i < len(pattern) && pattern[i] == '*' {
			last = max(last, i)
		}
	}
	var out []string
	for _, i := range at {
		if i >= last && i != last+1 {
			out = append(out, pattern[i:])
		}
	}
	return out
}

// Original returns a resource of versitygw with the key that the client sent, instead of the form of Comparable.
func Original(resource string) string {
	separator := strings.Index(resource, keySeparator)
	slash := strings.IndexByte(resource, '/')
	if separator < 0 || slash < 0 || slash > separator {
		return resource
	}
	return resource[:slash+1] + strings.ReplaceAll(resource[separator+1:], keyStar, "*")
}

// RestoreMessages replaces the rewritten object keys in the error messages of an XML reply by the keys that the
// client sent. When the S3 library versitygw denies a request, its error message contains the key in the form of
// Comparable, which no client understands.
func RestoreMessages(body []byte) []byte {
	const open, end = "<Message>", "</Message>"
	var out []byte
	rest := body
	for {
		at := bytes.Index(rest, []byte(open))
		if at < 0 {
			break
		}
		at += len(open)
		n := bytes.Index(rest[at:], []byte(end))
		if n < 0 {
			break
		}
		out = append(out, rest[:at]...)
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(RestoreMessage(html.UnescapeString(string(rest[at:at+n]))))) // to memory
		out = append(out, escaped.Bytes()...)
		rest = rest[at+n:]
	}
	return append(out, rest...)
}

// RestoreMessage replaces the rewritten object key in one error message by the key that the client sent.
func RestoreMessage(text string) string {
	at := strings.Index(text, `"`+auth.ResourceArnPrefix)
	if at < 0 {
		return text
	}
	quoted, err := strconv.QuotedPrefix(text[at:])
	if err != nil {
		return text
	}
	arn, err := strconv.Unquote(quoted)
	if err != nil {
		return text
	}
	return text[:at] + strconv.Quote(Original(arn)) + text[at+len(quoted):]
}
