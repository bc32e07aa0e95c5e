// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math"
	"net/url"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// blocksPath is the path of a request for blocks.
const blocksPath = "/v1/blocks"

// Largest lengths in bytes of the texts of an Identity in a request.
const (
	maxOrigin = 2048
	maxKey    = 1024
	maxOther  = 1024
)

// maxHeader is the largest size in bytes of the header of a request. Escapes make a text three times as long.
const maxHeader = 3*(maxOrigin+maxKey+2*maxOther) + 4096

// encodeRequest returns a request for blocks as the query of a URL.
func encodeRequest(id object.Identity, s Span) string {
	return url.Values{
		"origin": {id.Origin}, "key": {id.Key}, "version": {id.Version}, "etag": {id.ETag},
		"size":   {strconv.FormatInt(id.Size, 10)},
		"extent": {strconv.FormatInt(s.Extent, 10)}, "first": {strconv.FormatInt(s.First, 10)},
		"count": {strconv.FormatInt(s.Count, 10)},
	}.Encode()
}

// decodeRequest reads the query of a request for blocks. Each parameter must be given exactly once, and no other.
func decodeRequest(query string) (object.Identity, Span, error) {
	bad := func(format string, args ...any) (object.Identity, Span, error) {
		return object.Identity{}, Span{}, errs.New(errs.Invalid, "read", "a member's request", fmt.Sprintf(format, args...))
	}
	v, err := url.ParseQuery(query)
	if err != nil {
		return bad("%s", err)
	}
	var id object.Identity
	var s Span
	texts := map[string]struct {
		to   *string
		most int
	}{"origin": {&id.Origin, maxOrigin}, "key": {&id.Key, maxKey}, "version": {&id.Version, maxOther},
		"etag": {&id.ETag, maxOther}}
	numbers := map[string]*int64{"size": &id.Size, "extent": &s.Extent, "first": &s.First, "count": &s.Count}
	if len(v) != len(texts)+len(numbers) {
		return bad("has %d parameters; expected %d", len(v), len(texts)+len(numbers))
	}
	for name, all := range v {
		text := all[0]
		if len(all) != 1 {
			return bad("%q is given %d times; expected once", name, len(all))
		}
		if t, ok := texts[name]; ok {
			if len(text) > t.most {
				return bad("%q has %d bytes; expected at most %d", name, len(text), t.most)
			}
			*t.to = text
			continue
		}
		to, ok := numbers[name]
		if !ok {
			return bad("unknown parameter %q", name)
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64-object.Extent || strconv.FormatInt(n, 10) != text {
			return bad("%s is %q; expected a whole number of 0 or more", name, text)
		}
		*to = n
	}
	if err := s.Check(id); err != nil {
		return object.Identity{}, Span{}, err
	}
	return id, s, nil
}
