// SPDX-License-Identifier: Apache-2.0

package s3api

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

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
)

// versitygw compares patterns with names byte by byte and knows one spelling of an action. In S3, ? stands for one
// character of a key, and the case of an action does not matter. So the policy that versitygw judges by is written in a
// form in which its comparison gives S3's result:
//
//   - An action that matches in another case is added in versitygw's spelling. What was written stays there.
//   - A resource becomes patterns of the bucket and patterns of its keys. The bucket of a key's pattern is written as
//     as many ? as its name has bytes, by which NormalizeObjectKey tells a pattern from a key.
//   - NormalizeObjectKey writes a key as its characters, the byte keySeparator and its bytes. All characters have the
//     same length. Only a key beyond ASCII has them: for the others a byte is a character.

// keySeparator stands between the characters and the bytes of a key. No text in UTF-8 has it.
const keySeparator = "\xff"

// Kinds of patterns for keys, which stand before the pattern.
const (
	byBytes      = 'p' // a pattern without ?, for all keys
	byASCII      = 'a' // a pattern with ?, for keys of ASCII
	byCharacters = 'u' // a pattern with ?, for keys beyond ASCII
)

// charLength is how many bytes a character takes among the characters of a key.
const charLength = 4

// appendChar appends a character in a fixed length. Its first byte never stands elsewhere in one, and none is a wildcard.
func appendChar(to []byte, r rune) []byte {
	return append(to, 0xc0|byte(r>>18), 0x80|byte(r>>12&0x3f), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
}

// ascii says whether a text has no character beyond ASCII.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// NormalizeObjectKey returns the form of a key in which versitygw compares it with policies. It also takes the pattern
// of a policy's resource, which a bucket name of question marks announces.
func (b *backend) NormalizeObjectKey(bucket, key string) string {
	key = reveal(key)
	if bucket != "" && strings.Trim(bucket, "?") == "" {
		return comparedPattern(key)
	}
	return comparedKey(key)
}

// comparedKey returns a key in the form that patterns are compared with.
func comparedKey(key string) string {
	if ascii(key) {
		return keySeparator + key
	}
	out := make([]byte, 0, charLength*utf8.RuneCountInString(key)+1+len(key))
	for _, r := range key {
		out = appendChar(out, r)
	}
	out = append(out, keySeparator...)
	// Only a key of an older version has the separator in it: it is no UTF-8. No pattern has the other byte either.
	return string(append(out, strings.ReplaceAll(key, keySeparator, "\xfe")...))
}

// comparedPattern returns a pattern for keys, behind its kind, in the form that keys are compared with.
func comparedPattern(pattern string) string {
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

// comparedResources returns the resources of a statement as versitygw is to compare them.
func comparedResources(raw json.RawMessage, bucket string) (json.RawMessage, error) {
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

// keysARN returns the resource of the keys that match a pattern of a kind.
func keysARN(bucket string, kind rune, pattern string) string {
	return auth.ResourceArnPrefix + strings.Repeat("?", len(bucket)) + "/" + string(kind) + pattern
}

// keyPatterns returns the patterns that the keys of a bucket have to match, for a pattern of bucket and key. There are
// more than one where a * stands before the first slash.
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
	at := add(nil, 0) // where in the pattern the comparison may stand
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
	// What a * matches, a later * matches too, and so does what stands right behind it.
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

// mendDenied mends the messages of a reply that may name what was denied.
func mendDenied(rctx *fasthttp.RequestCtx) {
	if rctx.Response.StatusCode() != fasthttp.StatusForbidden && !deletesMany(rctx) || rctx.Response.IsBodyStream() {
		return
	}
	if body := rctx.Response.Body(); bytes.Contains(body, []byte(`\xff`)) { // as a message quotes the separator
		rctx.Response.SetBody(mendDenials(body))
	}
}

// mendDenials takes the form in which keys are compared out of the messages of a reply. versitygw names the resource
// that was denied in the form that it has compared.
func mendDenials(body []byte) []byte {
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
		_ = xml.EscapeText(&escaped, []byte(mendDenial(html.UnescapeString(string(rest[at:at+n]))))) // to memory
		out = append(out, escaped.Bytes()...)
		rest = rest[at+n:]
	}
	return append(out, rest...)
}

// mendDenial is mendDenials for one message.
func mendDenial(text string) string {
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
	separator := strings.Index(arn, keySeparator)
	slash := strings.IndexByte(arn, '/')
	if separator < 0 || slash < 0 || slash > separator {
		return text
	}
	return text[:at] + strconv.Quote(arn[:slash+1]+arn[separator+1:]) + text[at+len(quoted):]
}
