// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestWarm: an account fetches only what it may read, and pins only in its own buckets.
func TestWarm(t *testing.T) {
	var pins []string
	w := start(t, nil, func(o *Options) {
		o.Warm = func(_ context.Context, ref object.Ref, pin *time.Time) ([]byte, error) {
			switch {
			case ref.Key == "local":
				return nil, errs.New(errs.Invalid, "warm", ref.Key, "the bucket is kept by this server")
			case ref.Key == "none":
				return nil, object.Fail("warm", ref.Key, object.ErrNoSuchKey, "")
			case pin != nil && pin.IsZero():
				pins = append(pins, "forever")
			case pin != nil:
				pins = append(pins, "some time")
			}
			return []byte(`{"whole":true}`), nil
		}
	})
	w.people("alice", "bob")
	w.as("alice", http.StatusOK, http.MethodPut, "/models", "")
	const path = "/.nebulaio/warm?bucket=models&key="
	if r := w.as("alice", http.StatusOK, http.MethodGet, path+"a", ""); string(r.body) != `{"whole":true}` {
		t.Errorf("%s", r.body)
	}
	w.as("alice", http.StatusOK, http.MethodGet, path+"a&pin=forever", "")
	w.as("alice", http.StatusOK, http.MethodGet, path+"a&pin=24h", "")
	if strings.Join(pins, ",") != "forever,some time" {
		t.Errorf("%v", pins)
	}
	w.as("alice", http.StatusBadRequest, http.MethodGet, path+"a&pin=often", "")
	w.as("alice", http.StatusBadRequest, http.MethodGet, path+"local", "")
	w.as("alice", http.StatusNotFound, http.MethodGet, path+"none", "")
	w.as("alice", http.StatusMethodNotAllowed, http.MethodPut, path+"a", "")
	w.as("bob", http.StatusForbidden, http.MethodGet, path+"a", "")
	if r, err := w.try("", "", http.MethodGet, path+"a", nil); err != nil || r.StatusCode != http.StatusForbidden {
		t.Errorf("without a signature: %v, %d", err, r.StatusCode)
	}
}
