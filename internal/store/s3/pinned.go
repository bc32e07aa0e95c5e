// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Kept returns the checksum of the whole content that the server keeps: its algorithm, "crc64nvme", "crc32c" or
// "crc32", and its value. If the server keeps no such checksum, the algorithm is empty.
func (i Info) Kept() (algorithm string, sum uint64) { return i.kept.algorithm, i.kept.sum }

// MD5 returns the MD5 of the content in hexadecimal digits, if the ETag is one. The ETag of an object in parts is no
// MD5. The ETag of an object that is encrypted with a key of a key service or of the client is no MD5 either. If the
// ETag is no MD5, MD5 returns "".
func (i Info) MD5() string {
	if b, err := hex.DecodeString(i.ETag); err != nil || len(b) != 16 || i.opaque {
		return ""
	}
	return i.ETag
}

// opaqueTag reports whether the ETag of a reply cannot be the MD5 of the content.
func opaqueTag(h http.Header) bool {
	s := h.Get("x-amz-server-side-encryption")
	return s != "" && s != "AES256" || h.Get("x-amz-server-side-encryption-customer-algorithm") != ""
}

// Slowed returns how often the server has answered that the client sends too many requests.
func (c *Client) Slowed() int64 { return c.slowed.Load() }

// Endpoint returns the URL of the server.
func (c *Client) Endpoint() string { return c.base.String() }

// Pinned returns an Object for a description that the caller has, without a request. All reads of the Object return
// the content with the ETag and the size of the description, or fail. The Object compares no checksums.
func (c *Client) Pinned(i Info) *Object {
	return &Object{c: c, info: i, notes: map[string]int{}, trusted: true}
}

// GetInto reads a whole object into buf with one request, and returns its description from the reply. The object must
// have the ETag and len(buf) bytes, as a listing said; an empty ETag means any. GetInto compares no checksums: the
// caller has them in the description. If the object is another one by now, the error is of kind IO.
func (c *Client) GetInto(ctx context.Context, bucket, key, etag string, buf []byte) (Info, error) {
	if err := checkName(bucket, key); err != nil {
		return Info{}, err
	}
	q := &call{op: "get", method: http.MethodGet, bucket: bucket, key: key,
		header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}
	if etag != "" {
		q.header["If-Match"] = []string{`"` + etag + `"`}
	}
	r := &reader{o: c.Pinned(Info{Bucket: bucket, Key: key, ETag: etag, Size: int64(len(buf))}), end: int64(len(buf))}
	for t := c.tries(); ; {
		resp, err := c.do(ctx, q, t)
		if err != nil {
			if code := CodeOf(err); etag != "" && (code == "PreconditionFailed" || code == "InvalidRange") {
				return Info{}, r.changed(err)
			}
			return Info{}, err
		}
		if resp.ContentLength >= 0 && resp.ContentLength != int64(len(buf)) {
			resp.Body.Close()
			return Info{}, r.changed(errs.New(errs.IO, "", "", fmt.Sprintf("the reply has %d bytes", resp.ContentLength)))
		}
		if err = r.check(resp); err == nil {
			_, err = io.ReadFull(resp.Body, buf)
		} else if !transient(err) || CodeOf(err) != "" || errs.Is(err, errs.Unsupported) {
			resp.Body.Close()
			return Info{}, err
		}
		resp.Body.Close()
		if err == nil {
			return infoOf(bucket, key, resp.Header, int64(len(buf))), nil
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if err := t.again(ctx, q.op, q.name(), err); err != nil {
			return Info{}, err
		}
	}
}
