// SPDX-License-Identifier: Apache-2.0

package express

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// Request is what a signature covers of a request.
type Request struct {
	Method string
	Path   string // path without escapes, as the client signed it
	// Query holds the arguments without escapes; the argument X-Amz-Signature is left out.
	Query [][2]string
	// Values returns the values of a header. The name is in lower case.
	Values func(name string) [][]byte
	// Names calls f with the name of each header of the request that begins with x-amz-, in any case.
	Names   func(f func(name []byte))
	Payload string // the payload's SHA-256 in hex, or another value of x-amz-content-sha256
}

// Verify compares the signature with the one that the key makes. Verify refuses a request with x-amz headers that are
// not signed, because anybody on the way could have added them.
func (s *Signature) Verify(r *Request, key []byte) error {
	unsigned := ""
	r.Names(func(name []byte) {
		if lower := strings.ToLower(string(name)); unsigned == "" && !slices.Contains(s.Signed, lower) {
			unsigned = lower
		}
	})
	if unsigned != "" {
		return refuse(http.StatusForbidden, "AccessDenied",
			"There were headers present in the request which were not signed: "+unsigned)
	}
	sum := sha256.Sum256(s.canonical(r))
	text := algorithm + "\n" + s.Date + "\n" + s.Scope() + "\n" + hex.EncodeToString(sum[:])
	given, err := hex.DecodeString(s.Value)
	if err != nil || !hmac.Equal(given, sign(key, text)) {
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"The request signature we calculated does not match the signature you provided. Check your key and signing method.")
	}
	return nil
}

// canonical returns the request in the form that is signed.
func (s *Signature) canonical(r *Request) []byte {
	b := make([]byte, 0, 1024)
	b = append(append(b, r.Method...), '\n')
	b = append(appendEscaped(b, r.Path, true), '\n')
	b = append(appendQuery(b, r.Query), '\n')
	for _, name := range s.Signed {
		b = append(append(b, name...), ':')
		for i, v := range r.Values(name) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendSpaced(b, v)
		}
		b = append(b, '\n')
	}
	b = append(b, '\n')
	for i, name := range s.Signed {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, name...)
	}
	b = append(b, '\n')
	return append(b, r.Payload...)
}

// appendQuery appends the arguments, escaped and in order.
func appendQuery(b []byte, args [][2]string) []byte {
	if len(args) == 0 {
		return b
	}
	all := make([]string, len(args))
	for i, a := range args {
		p := appendEscaped(nil, a[0], false)
		p = append(p, '=')
		all[i] = string(appendEscaped(p, a[1], false))
	}
	slices.Sort(all)
	for i, a := range all {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(b, a...)
	}
	return b
}

// appendEscaped appends s with everything escaped except letters, digits, "-._~" and, in a path, slashes.
func appendEscaped(b []byte, s string, path bool) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' ||
			c == '~' || path && c == '/' {
			b = append(b, c)
			continue
		}
		b = append(b, '%', digits[c>>4], digits[c&15])
	}
	return b
}

// appendSpaced appends a header's value without outer spaces, and with one space for each run of spaces.
func appendSpaced(b, v []byte) []byte {
	v = bytes.TrimSpace(v)
	for i, c := range v {
		if c == ' ' && v[i-1] == ' ' {
			continue
		}
		b = append(b, c)
	}
	return b
}
