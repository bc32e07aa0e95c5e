// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Version is one version of an object with everything that a copy of it keeps.
type Version struct {
	Entry
	// Header has the headers of a request that writes the copy: type, metadata, tags and locks.
	Header http.Header
	// Parts are the sizes of the parts of a multipart object. Parts is nil if the object has none, or if the server does
	// not tell them.
	Parts []int64
	// SumName, Sum and SumType are the checksum of the content as the server keeps it, such as "crc32c". SumName is empty
	// if there is none.
	SumName, Sum, SumType string
	// Summed reports whether the ETag is a digest of the content: MD5, or MD5 of the MD5s of the parts.
	Summed bool
	// Left names what a copy cannot keep, such as a storage class.
	Left []string
}

// plainHeaders are the headers that a copy keeps as they are.
var plainHeaders = []string{"Content-Type", "Content-Encoding", "Content-Disposition", "Content-Language",
	"Cache-Control", "Expires", "X-Amz-Website-Redirect-Location", "X-Amz-Object-Lock-Legal-Hold"}

// sumNames are the checksums of S3, in the order in which they are looked for.
var sumNames = []string{"crc64nvme", "crc32c", "crc32", "sha256", "sha1"}

// metaPrefix begins the headers of user metadata.
const metaPrefix = "X-Amz-Meta-"

// Describe returns what a copy of a version keeps. now decides whether a retention is over; a copy cannot have such a
// retention, and needs none. Describe only reads.
func (s *Server) Describe(ctx context.Context, bucket string, e Entry, now time.Time) (*Version, error) {
	r := s3.Request{Method: http.MethodHead, Bucket: bucket, Key: e.Key, Query: versionQuery(&e),
		Header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}
	_, h, err := s.Admin().Ask(ctx, "head", r, s3.MostSetting)
	if err != nil {
		return nil, err
	}
	if got := strings.Trim(h.Get("ETag"), `"`); got != e.ETag {
		return nil, object.Fail("head", s3.URL(bucket, e.Key), object.ErrChanged,
			fmt.Sprintf("ETag %q, listed as %q", got, e.ETag))
	}
	v := &Version{Entry: e, Header: http.Header{}}
	v.keep(h, now)
	if n, _ := strconv.Atoi(h.Get("X-Amz-Tagging-Count")); n > 0 {
		if err := s.tags(ctx, bucket, v); err != nil {
			return nil, err
		}
	}
	if strings.Contains(e.ETag, "-") {
		if v.Parts, err = s.parts(ctx, bucket, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func versionQuery(e *Entry) url.Values {
	if e.Version == "" {
		return url.Values{}
	}
	return url.Values{"versionId": {e.Version}}
}

// keep takes over the headers of a reply.
func (v *Version) keep(h http.Header, now time.Time) {
	for _, name := range plainHeaders {
		if value := h.Get(name); value != "" {
			v.Header.Set(name, value)
		}
	}
	for name, values := range h {
		if strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), metaPrefix) {
			v.Header[name] = []string{strings.Join(values, ",")}
		}
	}
	if until, err := time.Parse(time.RFC3339, h.Get("X-Amz-Object-Lock-Retain-Until-Date")); err == nil {
		if until.After(now) {
			v.Header.Set("X-Amz-Object-Lock-Mode", h.Get("X-Amz-Object-Lock-Mode"))
			v.Header.Set("X-Amz-Object-Lock-Retain-Until-Date", until.UTC().Format("2006-01-02T15:04:05.000Z"))
		} else {
			v.Left = append(v.Left, "a retention that is over")
		}
	}
	if class := h.Get("X-Amz-Storage-Class"); class != "" && class != "STANDARD" {
		v.Left = append(v.Left, "the storage class "+class)
	}
	encryption := h.Get("X-Amz-Server-Side-Encryption")
	v.Summed = encryption != "aws:kms" && encryption != "aws:kms:dsse" &&
		h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") == ""
	for _, name := range sumNames {
		if sum := h.Get("X-Amz-Checksum-" + name); sum != "" {
			v.SumName, v.Sum, v.SumType = name, sum, h.Get("X-Amz-Checksum-Type")
			if v.SumType == "" {
				v.SumType = "FULL_OBJECT"
				if strings.Contains(sum, "-") {
					v.SumType = "COMPOSITE"
				}
			}
			break
		}
	}
}

// tags reads the tags of a version into the header of the copy.
func (s *Server) tags(ctx context.Context, bucket string, v *Version) error {
	q := versionQuery(&v.Entry)
	q.Set("tagging", "")
	body, _, err := s.Admin().Ask(ctx, "read tags of",
		s3.Request{Method: http.MethodGet, Bucket: bucket, Key: v.Key, Query: q}, s3.MostSetting)
	if err != nil {
		return err
	}
	text, err := ParseTags(body)
	if err != nil {
		return errs.Wrap("read tags of", s3.URL(bucket, v.Key), err)
	}
	if text != "" {
		v.Header.Set("X-Amz-Tagging", text)
	}
	return nil
}

// ParseTags reads the document of an object's tags, and returns them in the form of the header x-amz-tagging. ParseTags
// fails with kind Corrupt if the document is no list of tags.
func ParseTags(body []byte) (string, error) {
	var x struct {
		XMLName xml.Name `xml:"Tagging"`
		Tags    []struct {
			Key, Value string
		} `xml:"TagSet>Tag"`
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return "", errs.New(errs.Corrupt, "read tags", "", "the reply is no list of tags: "+err.Error()).
			WithFix("check that the endpoint is one of S3")
	}
	var pairs []string
	for _, t := range x.Tags {
		pairs = append(pairs, url.QueryEscape(t.Key)+"="+url.QueryEscape(t.Value))
	}
	return strings.Join(pairs, "&"), nil
}

// parts asks for the sizes of the parts of a multipart object. Parts of a server that does not number them are unknown.
func (s *Server) parts(ctx context.Context, bucket string, v *Version) ([]int64, error) {
	var sizes []int64
	var total int64
	for n, count := 1, 1; n <= count; n++ {
		q := versionQuery(&v.Entry)
		q.Set("partNumber", strconv.Itoa(n))
		_, h, err := s.Admin().Ask(ctx, "head", s3.Request{Method: http.MethodHead, Bucket: bucket, Key: v.Key, Query: q},
			s3.MostSetting)
		if err != nil {
			return nil, err
		}
		count, err = strconv.Atoi(h.Get("X-Amz-Mp-Parts-Count"))
		off, size, whole, ok := s3.ParseContentRange(h.Get("Content-Range"))
		if err != nil || count > object.MaxParts || !ok && count > 1 {
			return nil, nil
		}
		if count == 1 {
			return []int64{v.Size}, nil
		}
		if off != total || whole != v.Size {
			return nil, nil
		}
		sizes = append(sizes, size)
		total += size
	}
	if total != v.Size {
		return nil, nil
	}
	return sizes, nil
}

// TagsDocument returns the document of an object's tags from the form of the header x-amz-tagging. TagsDocument fails
// with kind Invalid if the text has another form.
func TagsDocument(text string) ([]byte, error) {
	pairs, err := url.ParseQuery(text)
	if err != nil {
		return nil, errs.New(errs.Invalid, "read tags", text, "expected the form of a query")
	}
	type tag struct {
		Key, Value string
	}
	var x struct {
		XMLName xml.Name `xml:"Tagging"`
		Tags    []tag    `xml:"TagSet>Tag"`
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		x.Tags = append(x.Tags, tag{key, pairs.Get(key)})
	}
	return xml.Marshal(x)
}
