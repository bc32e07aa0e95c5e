// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"
)

// signed returns the headers of a signed request, by signQuickly or by the SDK.
func signed(t *testing.T, s *Sender, address, region string, h http.Header, k Credentials, at time.Time,
	quick bool) (http.Header, bool) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: h.Clone()}
	r.Header.Set("X-Amz-Content-Sha256", emptyHash)
	if quick {
		return r.Header, s.signQuickly(r, k, region, emptyHash, at)
	}
	if err := plainSigner().SignHTTP(t.Context(), awsKeys(k), r, emptyHash, "s3", region, at); err != nil {
		t.Fatal(err)
	}
	return r.Header, true
}

func TestQuickSignaturesAreThoseOfTheSDK(t *testing.T) {
	var s Sender
	at := time.Date(2026, 11, 17, 23, 59, 59, 999, time.FixedZone("", 3600))
	keys := []Credentials{{AccessKey: "a", SecretKey: "b"}, {AccessKey: "A", SecretKey: "wJalrXUtnFEMI/K7MDENG"}}
	headers := []http.Header{
		{}, {"User-Agent": {"nebulaio"}}, {"X-Amz-Checksum-Mode": {"ENABLED"}},
		{"Range": {"bytes=0-9"}, "If-Match": {`"etag"`}, "If-None-Match": {`"e tag"`}, "User-Agent": {"nebulaio"}},
	}
	for _, address := range []string{"http://127.0.0.1:9000/b/k", "http://h/b/a%20b/../%C3%BC", "http://b.h:8080/"} {
		for _, region := range []string{"us-east-1", "eu-1"} {
			for _, k := range keys {
				for i, h := range headers {
					when := at.Add(time.Duration(i) * time.Second)
					got, ok := signed(t, &s, address, region, h, k, when, true)
					want, _ := signed(t, &s, address, region, h, k, when, false)
					if !ok || !maps.EqualFunc(got, want, slices.Equal[[]string]) {
						t.Errorf("%s %s %v: %v\n%v, want\n%v", address, region, h, ok, got, want)
					}
				}
			}
		}
	}
}

func TestOtherRequestsAreLeftToTheSDK(t *testing.T) {
	var s Sender
	k := Credentials{AccessKey: "a", SecretKey: "b"}
	session := Credentials{AccessKey: "a", SecretKey: "b", SessionToken: "c"}
	for _, c := range []struct {
		address string
		h       http.Header
		k       Credentials
	}{
		{"http://h/b/k?versionId=1", http.Header{}, k}, {"http://h:80/b/k", http.Header{}, k},
		{"http://h/b/k", http.Header{}, session}, {"http://h/b/k", http.Header{"X-Amz-Tagging": {"a=b"}}, k},
		{"http://h/b/k", http.Header{"Range": {"bytes=0-1", "bytes=2-3"}}, k},
		{"http://h/b/k", http.Header{"If-Match": {`"a  b"`}}, k}, {"http://h/b/k", http.Header{"If-Match": {" a"}}, k},
	} {
		h, ok := signed(t, &s, c.address, "us-east-1", c.h, c.k, time.Unix(0, 0), true)
		if ok || h.Get("Authorization") != "" || h.Get("X-Amz-Date") != "" {
			t.Errorf("%s %v: %v, signed with %v", c.address, c.h, ok, h)
		}
	}
}
