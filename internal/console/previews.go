// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/console/preview"
)

// mostPreviews is the largest number of previews that are made at the same time.
const mostPreviews = 2

// preview answers GET buckets/{bucket}/preview.
func (c objectPage) preview() (any, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	select {
	case c.previews <- struct{}{}:
		defer func() { <-c.previews }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	version := c.query("version")
	h, err := c.head(key, version)
	if err != nil {
		return nil, err
	}
	o := describeObject(key, h)
	if o.Size < 0 {
		return &preview.Result{Kind: preview.None, Why: "the server does not name the size of the object"}, nil
	}
	etag := h.Get("ETag")
	return preview.Of(ctx, o.Preview, key, o.Size, func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		query := url.Values{}
		if version != "" {
			query.Set("versionId", version)
		}
		r := request(http.MethodGet, c.name(), key, query, nil)
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
		if etag != "" {
			r.Header.Set("If-Match", etag) // all reads are of the same content
		}
		resp, err := c.S3.Do(ctx, c.as(), r)
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	})
}
