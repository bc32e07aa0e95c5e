// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"net/http"
)

// MostSetting is the largest reply to a request about the settings of a bucket, in bytes.
const MostSetting = 1 << 20

// Ask sends a request without large content, and returns the text and the header of the reply. The text has at most
// limit bytes. Ask retries like every request of a Client, so the request must be safe to repeat. The parameter op
// names the request in errors. r.Body must be nil.
func (a Admin) Ask(ctx context.Context, op string, r Request, limit int64) ([]byte, http.Header, error) {
	q := &call{op: op, method: r.Method, bucket: r.Bucket, key: r.Key, query: r.Query}
	if r.Text != nil {
		q.sends(r.Text)
	}
	for name, values := range r.Header {
		if q.header == nil {
			q.header = http.Header{}
		}
		q.header[name] = values
	}
	return a.c.text(ctx, q, limit)
}
