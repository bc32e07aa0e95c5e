// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	algorithmV4 = "AWS4-HMAC-SHA256"
	stampLayout = "20060102T150405Z"
)

// dayKey is the key that a secret makes for one day and one region.
type dayKey struct {
	secret, day, region string
	key                 []byte
}

// signQuickly signs a request without content and without arguments, with the signature that the SDK would make. The
// key of a day is made once. signQuickly returns false, and has changed nothing, if it leaves the request to the SDK.
func (s *Sender) signQuickly(r *http.Request, k Credentials, region, hash string, at time.Time) bool {
	port := r.URL.Port()
	if r.URL.RawQuery != "" || r.ContentLength != 0 || k.SessionToken != "" || port == "80" || port == "443" {
		return false // the SDK leaves out usual ports, and adds arguments and headers
	}
	stamp := at.UTC().Format(stampLayout)
	day := stamp[:8]
	lines := make([]string, 0, 8) // "name:value\n" of signed headers
	lines = append(lines, "host:"+r.Host+"\n", "x-amz-date:"+stamp+"\n")
	for name, values := range r.Header {
		switch name {
		case "User-Agent":
			continue // proxies change it
		case "Range", "If-Match", "If-None-Match", "X-Amz-Checksum-Mode", "X-Amz-Content-Sha256":
		default:
			return false
		}
		if len(values) != 1 || strings.Contains(values[0], "  ") || strings.TrimSpace(values[0]) != values[0] {
			return false // the signature has such values in another form
		}
		lines = append(lines, strings.ToLower(name)+":"+values[0]+"\n")
	}
	slices.Sort(lines)
	text := make([]byte, 0, 1024)
	text = append(append(append(text, r.Method...), '\n'), r.URL.EscapedPath()...)
	text = append(text, "\n\n"...)
	var names []byte
	for _, l := range lines {
		text = append(text, l...)
		name, _, _ := strings.Cut(l, ":")
		names = append(append(names, name...), ';')
	}
	names = names[:len(names)-1]
	text = append(append(append(append(text, '\n'), names...), '\n'), hash...)
	sum := sha256.Sum256(text)
	scope := day + "/" + region + "/s3/aws4_request"
	text = append(text[:0], algorithmV4+"\n"+stamp+"\n"+scope+"\n"...)
	text = hex.AppendEncode(text, sum[:])
	signature := authenticate(s.keyOf(k.SecretKey, day, region), text)
	text = append(text[:0], algorithmV4+" Credential="+k.AccessKey+"/"+scope+", SignedHeaders="...)
	text = append(append(text, names...), ", Signature="...)
	r.Header["X-Amz-Date"] = []string{stamp}
	r.Header["Authorization"] = []string{string(hex.AppendEncode(text, signature))}
	return true
}

// keyOf returns the key of a day.
func (s *Sender) keyOf(secret, day, region string) []byte {
	if d := s.day.Load(); d != nil && d.day == day && d.region == region && d.secret == secret {
		return d.key
	}
	key := authenticate([]byte("AWS4"+secret), []byte(day))
	for _, part := range [...]string{region, "s3", "aws4_request"} {
		key = authenticate(key, []byte(part))
	}
	s.day.Store(&dayKey{secret: secret, day: day, region: region, key: key})
	return key
}

// authenticate returns the HMAC-SHA256 of a text.
func authenticate(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}
