// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

// warmOf returns the function with which the S3 front end fetches objects of upstream buckets, or nil if the store has
// none.
func warmOf(st store) s3api.Warm {
	u, ok := st.(*withUpstreams)
	if !ok {
		return nil
	}
	return func(ctx context.Context, ref object.Ref, pin *time.Time) ([]byte, error) {
		w, err := u.Warm(ctx, ref, pin)
		if err != nil {
			return nil, err
		}
		return json.Marshal(w)
	}
}
