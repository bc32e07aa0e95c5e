// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

func TestPlainPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/b/k": "b k", "/b/a/k": "b a/k", "/b/a-b_c.d~e": "b a-b_c.d~e",
		"": "", "/": "", "/b": "", "/b/": "", "//k": "", "/b//k": "", "/b/k/": "", "/b/./k": "", "/b/../k": "", "/b/.k": "",
		"/.b/k": "", "/b/a%20b": "", "/b/a+b": "", "/b/ü": "", "/b/a b": "", "b/k": "",
	} {
		bucket, key, ok := plainPath([]byte(path))
		got := bucket + " " + key
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("%q is %q, expected %q", path, got, want)
		}
	}
}

// about returns what a reply says, without what differs between any two replies.
func about(r *reply) string {
	text := fmt.Sprintln(r.StatusCode, r.code())
	for _, k := range slices.Sorted(maps.Keys(r.Header)) {
		switch strings.ToLower(k) {
		case "date", "x-amz-request-id", "x-amz-id-2", "last-modified", "content-length":
		default:
			text += fmt.Sprintln(k, r.Header[k])
		}
	}
	return text
}

// A PUT on the fast path has the same reply and makes the same object as one through versitygw.
func TestFastPutsAreOrdinaryPuts(t *testing.T) {
	st, err := disk.Open(t.Context(), disk.Options{Dir: t.TempDir(), Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, st, nil)
	t.Cleanup(func() { _ = st.Close() })
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "bob", Secret: "bobssecret", Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	w.must(http.StatusOK, "PUT", "/plain", nil)
	w.must(http.StatusOK, "PUT", "/versioned", nil)
	w.must(http.StatusOK, "PUT", "/versioned?versioning", []byte("<VersioningConfiguration><Status>Enabled</Status>"+
		"</VersioningConfiguration>"))
	w.must(http.StatusOK, "PUT", "/locked", nil, "x-amz-bucket-object-lock-enabled", "true")
	w.must(http.StatusOK, "PUT", "/bobs", nil)
	w.must(http.StatusNoContent, "PUT", "/bobs?policy",
		[]byte(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},`+
			`"Action":"s3:*","Resource":["arn:aws:s3:::bobs","arn:aws:s3:::bobs/*"]}]}`))
	large := []byte(strings.Repeat("large", 30_000))
	for name, c := range map[string]struct {
		bucket  string
		body    []byte
		user    string
		payload string // another X-Amz-Content-Sha256
		header  []string
		refused bool
	}{
		"small":     {bucket: "plain", body: []byte("hello")},
		"empty":     {bucket: "plain"},
		"large":     {bucket: "plain", body: large},
		"typed":     {bucket: "plain", body: []byte("x"), header: []string{"Content-Type", "text/plain"}},
		"versioned": {bucket: "versioned", body: []byte("hello")},
		"locked":    {bucket: "locked", body: []byte("hello")},
		"checksum": {bucket: "plain", body: []byte("hello"),
			header: []string{"x-amz-checksum-crc32", "NhCmhg=="}},
		"wrong checksum": {bucket: "plain", body: []byte("hallo"), header: []string{"x-amz-checksum-crc32", "NhCmhg=="},
			refused: true},
		"malformed checksum": {bucket: "plain", body: []byte("hello"), header: []string{"x-amz-checksum-crc32", "N"},
			refused: true},
		"unsigned payload":     {bucket: "plain", body: []byte("hello"), payload: unsignedPayload},
		"wrong payload":        {bucket: "plain", body: []byte("hello"), payload: strings.Repeat("0", 64), refused: true},
		"no such bucket":       {bucket: "nowhere", body: []byte("hello"), refused: true},
		"granted by a policy":  {bucket: "bobs", body: []byte("hello"), user: "bob"},
		"not granted":          {bucket: "plain", body: []byte("hello"), user: "bob", refused: true},
		"granted, then cached": {bucket: "bobs", body: large, user: "bob"},
	} {
		key, secret := rootKey, rootSecret
		if c.user != "" {
			key, secret = c.user, c.user+"ssecret"
		}
		if c.payload == "" {
			sum := sha256.Sum256(c.body)
			c.payload = hex.EncodeToString(sum[:])
		}
		put := func(object string, header ...string) (string, string) {
			req := w.request("PUT", "/"+c.bucket+"/"+object, c.body, append(header, c.header...)...)
			sign(t, req, key, secret, c.payload)
			r := w.sent(req)
			if r.StatusCode == http.StatusOK {
				got := w.must(http.StatusOK, "GET", "/"+c.bucket+"/"+object, nil)
				if string(got.body) != string(c.body) {
					t.Errorf("%s: %d bytes came back, expected %d", name, len(got.body), len(c.body))
				}
			}
			if c.refused != (r.StatusCode >= 400) {
				t.Errorf("%s: status %d: %s", name, r.StatusCode, r.body)
			}
			said, head := about(r), about(w.do("HEAD", "/"+c.bucket+"/"+object, nil))
			if version := r.Header.Get("X-Amz-Version-Id"); version != "" {
				said, head = strings.ReplaceAll(said, version, "V"), strings.ReplaceAll(head, version, "V")
			}
			return said, head
		}
		fast, fastHead := put("object")
		slow, slowHead := put("other", "X-Not-Plain", "1")
		if fast != slow || fastHead != slowHead {
			t.Errorf("%s: the fast path replies\n%s%sand versitygw\n%s%s", name, fast, fastHead, slow, slowHead)
		}
	}
	w.server.verifier.mu.RLock()
	defer w.server.verifier.mu.RUnlock()
	if len(w.server.verifier.keys) != 2 {
		t.Errorf("the fast path knows %d accounts, expected root and bob", len(w.server.verifier.keys))
	}
}

// A read-only server refuses a PUT on the fast path too.
func TestAReadOnlyServerTakesNoFastPut(t *testing.T) {
	st := model.New()
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: "plain", Owner: rootKey}); err != nil {
		t.Fatal(err)
	}
	w := start(t, st, func(o *Options) { o.ReadOnly = true })
	w.must(http.StatusForbidden, "PUT", "/plain/key", []byte("hello"))
}
