// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// probed is the record of an upstream without any ability.
func probed(o *upstream.Options) { o.Capabilities.Probed = time.Unix(1, 0) }

// TestRefusedContentNeverArrivesWhole refuses content in Finish. The upstream must not see its last byte.
func TestRefusedContentNeverArrivesWhole(t *testing.T) {
	for _, size := range []int{1, 100, 70_000, len(something)} {
		var whole atomic.Bool
		ended := make(chan struct{})
		b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			got, err := io.ReadAll(r.Body)
			whole.Store(err == nil && len(got) == size)
			w.Header().Set("ETag", `"x"`)
		}, probed)
		mine := errors.New("refused by the test")
		_, err := b.Through("local", nil).Put(t.Context(), object.Put{Bucket: "local", Key: "k", Size: int64(size),
			Body:   bytes.NewReader(something[:size]),
			Finish: func(object.Written) (map[string]string, error) { return nil, mine }})
		if err != mine { //nolint:errorlint // the contract says unchanged
			t.Errorf("%d bytes: %v", size, err)
		}
		b.Close()
		if size > 4096 { // a smaller request may never have been sent
			<-ended
		}
		if whole.Load() {
			t.Errorf("%d bytes arrived although they were refused", size)
		}
	}
}

// TestWritesAndWrongReplies sends replies to a PUT that do not acknowledge it.
func TestWritesAndWrongReplies(t *testing.T) {
	reply := func(status int, header, value, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    error
		kind    errs.Kind
		code    string // of the refusal for the client
	}{
		"no ETag": {reply(200, "", "", ""), upstream.ErrUnavailable, errs.IO, "ServiceUnavailable"},
		"another checksum": {reply(200, "X-Amz-Checksum-Crc64nvme", "AAAAAAAAAAA=", ""), upstream.ErrUnavailable, errs.IO,
			"ServiceUnavailable"},
		"precondition": {reply(412, "", "", ""), object.ErrPrecondition, errs.Invalid, ""},
		"no such bucket": {reply(404, "", "", "<Error><Code>NoSuchBucket</Code></Error>"), object.ErrNoSuchBucket,
			errs.NotFound, ""},
		"denied": {reply(403, "", "", "<Error><Code>AccessDenied</Code></Error>"), nil, errs.Permission,
			"AccessDenied"},
		"our keys": {reply(403, "", "", "<Error><Code>InvalidAccessKeyId</Code></Error>"), nil, errs.Permission,
			"ServiceUnavailable"},
		"slow down": {reply(503, "", "", "<Error><Code>SlowDown</Code></Error>"), nil, errs.IO, "SlowDown"},
		"its own code": {reply(409, "", "", "<Error><Code>OddCode</Code><Message>m</Message></Error>"), nil, errs.Invalid,
			"OddCode"},
		"gateway": {reply(502, "", "", "<html>"), upstream.ErrUnavailable, errs.IO, "ServiceUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := hostile(t, test.handler, probed)
			_, err := b.Through("local", nil).Put(t.Context(), object.Put{Bucket: "local", Key: "k", Size: 3,
				Body: strings.NewReader("abc")})
			if err == nil || test.want != nil && !errors.Is(err, test.want) || errs.KindOf(err) != test.kind {
				t.Fatalf("error %v of kind %v, expected kind %v", err, errs.KindOf(err), test.kind)
			}
			var r *object.Refusal
			if errors.As(err, &r) != (test.code != "") || r != nil && r.Code != test.code {
				t.Errorf("the client gets %+v, expected the code %q", r, test.code)
			}
		})
	}
}

// TestAppendsAreNeverForwarded looks at every header of a write: none asks for an append or a rename.
func TestAppendsAreNeverForwarded(t *testing.T) {
	b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, name := range []string{"X-Amz-Write-Offset-Bytes", "X-Amz-Rename-Source"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s is sent", name)
			}
		}
		w.Header().Set("ETag", `"x"`)
	}, probed)
	i, err := b.Through("local", nil).Put(t.Context(),
		object.Put{Bucket: "local", Key: "k", Size: 3, Body: strings.NewReader("abc"),
			Attributes: map[string]string{"write-offset-bytes": "3", object.AttrMeta + "a": "b"}})
	if err != nil || i.ETag != "x" {
		t.Errorf("%+v, error %v", i, err)
	}
}
