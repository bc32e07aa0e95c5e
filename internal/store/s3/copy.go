// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MostCopied is the size in bytes of the largest object that Copy copies.
const MostCopied = 5 << 30

// Copy makes the server copy an object to another key or bucket, and returns the description of the new object. The
// server copies only the content with the ETag of src; if the source has another ETag by now, the error is of kind
// Invalid. Without p.Metadata and p.ContentType, the new object keeps those of the source. Copy fails with kind
// Unsupported for a source of more than MostCopied bytes.
func (c *Client) Copy(ctx context.Context, src Info, p Put) (Info, error) {
	const op = "copy to"
	if err := checkName(src.Bucket, src.Key); err != nil {
		return Info{}, err
	}
	u, err := c.NewUpload(p)
	if err != nil {
		return Info{}, err
	}
	if src.Size > MostCopied {
		return Info{}, errs.New(errs.Unsupported, op, u.Name(), "the source is too large for one copy inside the server")
	}
	h := u.header()
	h.Set("X-Amz-Copy-Source", escape("/"+src.Bucket+"/"+src.Key, true))
	if src.Version != "" {
		h.Set("X-Amz-Copy-Source", h.Get("X-Amz-Copy-Source")+"?versionId="+escape(src.Version, false))
	}
	if src.ETag != "" {
		h.Set("X-Amz-Copy-Source-If-Match", `"`+src.ETag+`"`)
	}
	if len(p.Metadata) > 0 || p.ContentType != "" {
		h.Set("X-Amz-Metadata-Directive", "REPLACE")
	}
	u.conditions(h)
	q := &call{op: op, method: http.MethodPut, bucket: p.Bucket, key: p.Key, header: h}
	body, _, err := c.text(ctx, q, mostError)
	if err != nil {
		return Info{}, err
	}
	// The status is 200 before the server is done, so that the reply can be an error all the same.
	if f, ok := parseFault(body); ok {
		f.Status = http.StatusInternalServerError
		return Info{}, failure(op, q.name(), &f)
	}
	var x struct {
		XMLName xml.Name `xml:"CopyObjectResult"`
		ETag    string   `xml:"ETag"`
	}
	if err := xml.Unmarshal(body, &x); err != nil || x.ETag == "" || len(x.ETag) > 1024 {
		return Info{}, errs.New(errs.Corrupt, op, q.name(), "the reply names no ETag of the copy").
			WithFix("check that the endpoint is one of S3")
	}
	made, err := c.Head(ctx, p.Bucket, p.Key, "")
	if err != nil {
		return Info{}, err
	}
	if made.Size != src.Size || made.ETag != unquote(x.ETag) {
		return Info{}, errs.New(errs.IO, op, q.name(),
			"the object was replaced right after the copy").WithFix("copy it again")
	}
	return made, nil
}
