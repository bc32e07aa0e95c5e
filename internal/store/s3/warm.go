// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Warmth is what a NebulaIO node says about an object that it fetches into its cache.
type Warmth struct {
	ETag     string `json:"etag"`
	Size     int64  `json:"size"`
	Cached   int64  `json:"cached"`   // bytes in the cache
	Whole    bool   `json:"whole"`    // the whole object is in the cache
	Verified string `json:"verified"` // how the node compared the content; empty if it is not whole
	Pinned   bool   `json:"pinned"`
	Error    string `json:"error"` // why the node could not fetch it; empty if it could, or still tries
	Fix      string `json:"fix"`
}

// Warm asks a NebulaIO node to fetch an object of an upstream bucket into its cache, and returns how far it is. The
// first call begins the fetch. The pin is "", "forever" or a duration such as "24h". A server that is no such node, and
// a bucket that is no upstream bucket, give an error of kind Unsupported.
func (a Admin) Warm(ctx context.Context, bucket, key, pin string) (Warmth, error) {
	if err := checkName(bucket, key); err != nil {
		return Warmth{}, err
	}
	q := &call{op: "warm", method: http.MethodGet, bucket: ".nebulaio", key: "warm",
		query: url.Values{"bucket": {bucket}, "key": {key}}}
	if pin != "" {
		q.query.Set("pin", pin)
	}
	body, _, err := a.c.text(ctx, q, mostError)
	if err != nil {
		return Warmth{}, notWarmed(URL(bucket, key), err)
	}
	var w Warmth
	if err := json.Unmarshal(body, &w); err != nil || w.Size < 0 || w.Cached < 0 {
		return Warmth{}, notNode(URL(bucket, key), err)
	}
	w.Cached = min(w.Cached, w.Size)
	if w.Error != "" {
		return w, errs.New(errs.IO, "warm", URL(bucket, key), clip(w.Error)).WithFix(clip(w.Fix))
	}
	return w, nil
}

// notWarmed explains the refusal of a server.
func notWarmed(name string, err error) error {
	var f *Fault
	if !errors.As(err, &f) {
		return err
	}
	switch {
	case f.Code == "NoSuchKey" || f.Status == http.StatusForbidden || f.Status >= 500 &&
		f.Status != http.StatusNotImplemented:
		return &errs.Error{Kind: f.kind(), Op: "warm", Name: name, Err: f, Fix: f.fix()}
	case f.Code == "InvalidRequest":
		return &errs.Error{Kind: errs.Unsupported, Op: "warm", Name: name, Err: f,
			Fix: "name a bucket that the node has as an upstream bucket"}
	}
	return notNode(name, f)
}

func notNode(name string, cause error) error {
	return &errs.Error{Kind: errs.Unsupported, Op: "warm", Name: name, Msg: "the server is no NebulaIO node with a cache",
		Err: cause, Fix: "name the address of a NebulaIO server with upstream buckets"}
}
