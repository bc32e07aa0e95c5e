// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// plainHeaders are the headers that are attributes as they are.
var plainHeaders = [...]struct{ attr, header string }{
	{object.AttrType, "Content-Type"}, {object.AttrEncoding, "Content-Encoding"},
	{object.AttrDisposition, "Content-Disposition"}, {object.AttrLanguage, "Content-Language"},
	{object.AttrCache, "Cache-Control"}, {object.AttrExpires, "Expires"},
	{object.AttrRedirect, "X-Amz-Website-Redirect-Location"}, {object.AttrClass, "X-Amz-Storage-Class"},
}

// algorithms are the checksums of S3 with their lengths in bytes. Those that can cover the content of a multipart
// object come first.
var algorithms = [...]struct {
	name string
	size int
}{
	{"CRC64NVME", 8}, {"CRC32C", 4}, {"CRC32", 4}, {"SHA256", 32}, {"SHA1", 20}, {"SHA512", 64}, {"MD5", 16},
	{"XXHASH64", 8}, {"XXHASH3", 8}, {"XXHASH128", 16},
}

const (
	metaHeader = "X-Amz-Meta-"
	sumHeader  = "X-Amz-Checksum-"
	fullObject = "FULL_OBJECT"

	standard     = "STANDARD" // the storage class of objects that have no other
	longestClass = 64         // length in bytes of the longest name of a storage class
)

// aboutOf reads the description of an object of size bytes from the headers of a reply.
func (b *Bucket) aboutOf(key, version string, h http.Header, size int64) (About, error) {
	a := About{Identity: object.Identity{Origin: b.origin, Key: key, Version: h.Get("x-amz-version-id"),
		ETag: unquote(h.Get("ETag")), Size: size}, Attributes: map[string]string{},
		Restore: h.Get("x-amz-restore"), Encryption: h.Get("x-amz-server-side-encryption")}
	if c := h.Get("x-amz-server-side-encryption-customer-algorithm"); c != "" {
		a.Encryption = "customer:" + c
	}
	if a.Identity.ETag == "" || len(a.Identity.ETag) > 1024 {
		return About{}, nonsense("look at", b.label(key), fmt.Sprintf("the reply has the ETag %.64q", h.Get("ETag")))
	}
	switch {
	case version != "" && a.Identity.Version == "":
		a.Identity.Version = version
	case version != "" && a.Identity.Version != version:
		return About{}, nonsense("look at", b.label(key), fmt.Sprintf("the upstream was asked for the version %.64q and "+
			"describes %.64q", version, a.Identity.Version))
	}
	a.Modified, _ = http.ParseTime(h.Get("Last-Modified"))
	for _, p := range plainHeaders {
		if v := h.Get(p.header); v != "" {
			a.Attributes[p.attr] = v
		}
	}
	if a.Attributes[object.AttrClass] == standard {
		delete(a.Attributes, object.AttrClass) // servers may name it or not
	}
	if kinds := strings.Split(a.Attributes[object.AttrEncoding], ","); strings.TrimSpace(kinds[0]) == "aws-chunked" {
		// Some servers keep the encoding of the request although they have decoded it.
		if rest := strings.TrimSpace(strings.Join(kinds[1:], ",")); rest != "" {
			a.Attributes[object.AttrEncoding] = rest
		} else {
			delete(a.Attributes, object.AttrEncoding)
		}
	}
	for k, v := range h {
		if name, ok := cutFold(k, metaHeader); ok && len(v) > 0 && name != "" {
			a.Attributes[object.AttrMeta+strings.ToLower(name)] = strings.Join(v, ",")
		}
	}
	a.addLock(h)
	a.addSums(h)
	a.Parts = partsOf(a.Identity.ETag, h.Get("x-amz-mp-parts-count"))
	return a, object.CheckAttributes("look at", b.label(key), a.Attributes)
}

// addClass adds the storage class of a document to attributes, if the document names one, and returns the attributes.
func addClass(attrs map[string]string, class string) map[string]string {
	if class != "" && class != standard && len(class) <= longestClass {
		attrs[object.AttrClass] = class
	}
	return attrs
}

func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}

// addLock reads the retention and the legal hold.
func (a *About) addLock(h http.Header) {
	switch strings.ToUpper(h.Get("x-amz-object-lock-legal-hold")) {
	case "ON":
		a.Attributes[object.AttrHold] = "1"
	case "OFF":
		a.Attributes[object.AttrHold] = "0"
	}
	if mode, until := h.Get("x-amz-object-lock-mode"), h.Get("x-amz-object-lock-retain-until-date"); mode != "" {
		if at, err := time.Parse(time.RFC3339, until); err == nil {
			a.Attributes[object.AttrRetention] = retention{Mode: mode, RetainUntilDate: &at}.encode()
		}
	}
}

// retention is the value of object.AttrRetention.
type retention struct {
	Mode            string
	RetainUntilDate *time.Time
}

func (r retention) encode() string {
	doc, err := json.Marshal(r)
	if err != nil {
		return "" // cannot happen: times come from a parser
	}
	return string(doc)
}

// addSums reads the checksums. A checksum counts as one of the whole content only if the upstream says so, or if the
// object was written in one request.
func (a *About) addSums(h http.Header) {
	kind := strings.ToUpper(h.Get("x-amz-checksum-type"))
	single := partsOf(a.Identity.ETag, h.Get("x-amz-mp-parts-count")) == 0
	for _, algo := range algorithms {
		value := h.Get(sumHeader + algo.name)
		sum, parts, _ := strings.Cut(value, "-")
		raw, err := base64.StdEncoding.DecodeString(sum)
		if value == "" || err != nil || len(raw) != algo.size {
			continue
		}
		whole := parts == "" && (kind == fullObject || kind == "" && single)
		of := kind
		switch {
		case whole:
			of = fullObject
		case parts != "":
			of = "COMPOSITE"
		case of == "":
			continue // nobody knows what the checksum covers
		}
		if whole && algo.name == "CRC64NVME" {
			a.CRC64, a.HasCRC64 = binary.BigEndian.Uint64(raw), true
			continue
		}
		if whole && algo.name == "CRC32C" {
			a.CRC32C, a.HasCRC32C = binary.BigEndian.Uint32(raw), true
		}
		if whole && algo.name == "CRC32" {
			a.CRC32, a.HasCRC32 = binary.BigEndian.Uint32(raw), true
		}
		if _, have := a.Attributes[object.AttrSum]; !have {
			a.Attributes[object.AttrSumAlgo], a.Attributes[object.AttrSumType], a.Attributes[object.AttrSum] = algo.name, of,
				value
		}
	}
}

// partsOf returns the number of parts of a multipart object, from the header or the ETag.
func partsOf(etag, header string) int {
	if n, err := strconv.Atoi(header); err == nil && n > 0 && n <= object.MaxParts {
		return n
	}
	if i := strings.LastIndexByte(etag, '-'); i >= 0 {
		if n, err := strconv.Atoi(etag[i+1:]); err == nil && n > 0 && n <= object.MaxParts {
			return n
		}
	}
	return 0
}

// headersOf returns the headers of a request that gives an object its attributes. It fails for attributes that no
// header can carry.
func headersOf(op, name string, attrs map[string]string) (http.Header, error) {
	h := http.Header{}
	for k, v := range attrs {
		if bad := strings.IndexFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); bad >= 0 &&
			k != object.AttrTags && k != object.AttrRetention {
			return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("attribute %q has the value %.64q, expected no control "+
				"characters", k, v))
		}
		if meta, ok := strings.CutPrefix(k, object.AttrMeta); ok {
			h[metaHeader+meta] = []string{v}
		}
	}
	for _, p := range plainHeaders {
		if v := attrs[p.attr]; v != "" {
			h.Set(p.header, v)
		}
	}
	if doc := attrs[object.AttrTags]; doc != "" {
		tags, err := decodeTags(op, name, doc)
		if err != nil {
			return nil, err
		}
		values := url.Values{}
		for k, v := range tags {
			values.Set(k, v)
		}
		if len(values) > 0 {
			h.Set("X-Amz-Tagging", values.Encode())
		}
	}
	if attrs[object.AttrHold] == "1" {
		h.Set("X-Amz-Object-Lock-Legal-Hold", "ON")
	}
	if doc := attrs[object.AttrRetention]; doc != "" {
		var r retention
		if err := json.Unmarshal([]byte(doc), &r); err != nil || r.RetainUntilDate == nil {
			return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("retention %.64q, expected a mode and a date", doc))
		}
		h.Set("X-Amz-Object-Lock-Mode", r.Mode)
		h.Set("X-Amz-Object-Lock-Retain-Until-Date", r.RetainUntilDate.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	return h, nil
}

func encodeTags(tags map[string]string) string {
	doc, err := json.Marshal(tags)
	if err != nil {
		return "" // cannot happen: texts can always be encoded
	}
	return string(doc)
}

func decodeTags(op, name, doc string) (map[string]string, error) {
	tags := map[string]string{}
	if doc == "" {
		return tags, nil
	}
	if err := json.Unmarshal([]byte(doc), &tags); err != nil {
		return nil, errs.New(errs.Invalid, op, name, "tags: "+err.Error())
	}
	return tags, nil
}

// HeadersOf returns the headers of a request that gives an object its attributes: content type, user metadata, tags and
// locks. HeadersOf fails with kind Invalid for attributes that no header can carry. The parameter name is for errors.
func HeadersOf(name string, attrs map[string]string) (http.Header, error) {
	return headersOf("copy", name, attrs)
}
