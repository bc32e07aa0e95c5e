// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/console/preview"
)

// objectReply describes one version of an object.
type objectReply struct {
	Key       string            `json:"key"`
	Version   string            `json:"version"`
	Size      int64             `json:"size"`
	ETag      string            `json:"etag"`
	Type      string            `json:"type"`
	Modified  *time.Time        `json:"modified"`
	Class     string            `json:"class"`
	Metadata  map[string]string `json:"metadata"`
	Tags      map[string]string `json:"tags"` // null if the user may not read them
	Checksums map[string]string `json:"checksums"`
	Parts     int               `json:"parts"`
	Lock      *objectLock       `json:"lock"`
	Preview   preview.Kind      `json:"preview"`
}

type objectLock struct {
	Mode      string `json:"mode"`
	Until     string `json:"until"`
	LegalHold bool   `json:"legal_hold"`
}

// object answers GET buckets/{bucket}/object.
func (c objectPage) object() (any, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	h, err := c.head(key, c.query("version"))
	if err != nil {
		return nil, err
	}
	out := describeObject(key, h)
	var tags tagging
	query := url.Values{"tagging": {""}}
	if v := c.query("version"); v != "" {
		query.Set("versionId", v)
	}
	switch _, err := c.s3(http.MethodGet, key, query, nil, &tags); {
	case err == nil, settingMissing(err):
		out.Tags = tags.values()
	case denied(err), unsupported(err):
	default:
		return nil, err
	}
	return out, nil
}

// head returns the headers of an object, or the reason of S3 why there are none. The reply to a HEAD has no reason, so
// a refused HEAD is repeated as a GET of one byte.
func (c *call) head(key, version string) (http.Header, error) {
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	query := url.Values{}
	if version != "" {
		query.Set("versionId", version)
	}
	r := request(http.MethodHead, c.name(), key, query, nil)
	r.Header.Set("X-Amz-Checksum-Mode", "ENABLED")
	resp, err := c.S3.Do(c.r.Context(), c.as(), r)
	if err == nil {
		_ = resp.Body.Close() // it is empty
		return resp.Header, nil
	}
	r = request(http.MethodGet, c.name(), key, query, nil)
	r.Header.Set("Range", "bytes=0-0")
	resp, why := c.S3.Do(c.r.Context(), c.as(), r)
	if why == nil {
		_ = resp.Body.Close() // only the reason of a failure is wanted
		return nil, err
	}
	return nil, why
}

// describeObject returns the description of an object by its headers.
func describeObject(key string, h http.Header) *objectReply {
	out := &objectReply{Key: key, Version: h.Get("X-Amz-Version-Id"), Size: -1, ETag: strings.Trim(h.Get("ETag"), `"`),
		Type: h.Get("Content-Type"), Class: h.Get("X-Amz-Storage-Class"), Metadata: map[string]string{},
		Checksums: map[string]string{}}
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil {
		out.Size = n
	}
	if t, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		out.Modified = &t
	}
	if n, err := strconv.Atoi(h.Get("X-Amz-Mp-Parts-Count")); err == nil {
		out.Parts = n
	}
	const meta, sum = "X-Amz-Meta-", "X-Amz-Checksum-"
	for name, values := range h {
		switch {
		case strings.HasPrefix(name, meta):
			out.Metadata[strings.ToLower(name[len(meta):])] = strings.Join(values, ", ")
		case strings.HasPrefix(name, sum) && name != sum+"Type":
			out.Checksums[strings.ToLower(name[len(sum):])] = values[0]
		}
	}
	mode, hold := h.Get("X-Amz-Object-Lock-Mode"), h.Get("X-Amz-Object-Lock-Legal-Hold") == "ON"
	if mode != "" || hold {
		out.Lock = &objectLock{Mode: mode, Until: h.Get("X-Amz-Object-Lock-Retain-Until-Date"), LegalHold: hold}
	}
	out.Preview = preview.KindOf(key, out.Type, out.Size)
	return out
}

// setTags answers PUT buckets/{bucket}/object/tags.
func (c objectPage) setTags() (any, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	return nil, c.putTags(key)
}
