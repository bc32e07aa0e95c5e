// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestPresignedURLs(t *testing.T) {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	keys := Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	endpoint, err := url.Parse("http://127.0.0.1:9000")
	if err != nil {
		t.Fatal(err)
	}
	link, err := PresignGet(t.Context(), endpoint, "b", "a b/../ü", "v1", keys, "us-east-1", at, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil || !strings.HasPrefix(link, "http://127.0.0.1:9000/b/a%20b/../%C3%BC?") ||
		u.Query().Get("X-Amz-Expires") != "3600" || u.Query().Get("versionId") != "v1" ||
		u.Query().Get("X-Amz-Signature") == "" || strings.Contains(link, "wJalr") {
		t.Errorf("%s %v", link, err)
	}
	for _, d := range []time.Duration{0, -time.Hour, MaxPresign + time.Second} {
		if _, err := PresignGet(t.Context(), endpoint, "b", "k", "", keys, "us-east-1", at, d); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

func TestASignedRequestHasItsHash(t *testing.T) {
	for hash, want := range map[string]string{"": emptyHash, UnsignedPayload: UnsignedPayload} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/b", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := SignRequest(t.Context(), r, Credentials{AccessKey: "a", SecretKey: "b"}, "us-east-1", hash,
			time.Unix(0, 0)); err != nil || r.Header.Get("X-Amz-Content-Sha256") != want ||
			!strings.Contains(r.Header.Get("Authorization"), "Credential=a/19700101/us-east-1/s3/") {
			t.Errorf("%v %v", err, r.Header)
		}
	}
}
