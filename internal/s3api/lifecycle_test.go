// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
)

const expireLogs = `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><ID>a rule</ID>` +
	`<Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule>` +
	`</LifecycleConfiguration>`

// TestLifecycleConfiguration puts, reads and deletes lifecycle rules as a client does.
func TestLifecycleConfiguration(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alicesecret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	w.must(200, "PUT", "/bucket?lifecycle", []byte(expireLogs))
	if r := w.must(200, "GET", "/bucket?lifecycle", nil); !strings.HasSuffix(string(r.body), expireLogs) {
		t.Errorf("the configuration comes back as %s", r.body)
	}
	for doc, want := range map[string]string{
		"<LifecycleConfiguration/>":                  "MalformedXML",
		"no document":                                "MalformedXML",
		strings.Replace(expireLogs, ">3<", ">0<", 1): "InvalidArgument",
	} {
		if r := w.do("PUT", "/bucket?lifecycle", []byte(doc)); r.StatusCode != 400 || r.code() != want {
			t.Errorf("%s: %d %s, expected %s", doc, r.StatusCode, r.body, want)
		}
	}
	move := strings.Replace(expireLogs, "<Expiration><Days>3</Days></Expiration>",
		"<Transition><Days>3</Days><StorageClass>GLACIER</StorageClass></Transition>", 1)
	if r := w.do("PUT", "/bucket?lifecycle", []byte(move)); r.StatusCode != 501 ||
		!strings.Contains(string(r.body), "GLACIER") {
		t.Errorf("a transition: %d %s", r.StatusCode, r.body)
	}
	if r, err := w.try("alice", "alicesecret", "PUT", "/bucket?lifecycle", []byte(expireLogs)); err != nil ||
		r.StatusCode != 403 {
		t.Errorf("a stranger puts rules: %+v %v", r, err)
	}
	if r := w.do("PUT", "/none?lifecycle", []byte(expireLogs)); r.StatusCode != 404 || r.code() != "NoSuchBucket" {
		t.Errorf("no bucket: %d %s", r.StatusCode, r.body)
	}

	const name = "X-Amz-Expiration"
	for _, request := range []struct{ method, path string }{{"PUT", "/bucket/logs/1"}, {"HEAD", "/bucket/logs/1"},
		{"GET", "/bucket/logs/1"}} {
		r := w.must(200, request.method, request.path, []byte("text"))
		if text := r.Header.Get(name); !strings.HasPrefix(text, `expiry-date="`) ||
			!strings.Contains(text, `rule-id="a+rule"`) {
			t.Errorf("%s: the header is %q", request.method, text)
		}
	}
	if r := w.must(200, "PUT", "/bucket/other", []byte("text")); r.Header.Get(name) != "" {
		t.Errorf("an object without a rule has the header %q", r.Header.Get(name))
	}
	w.must(http.StatusNoContent, "DELETE", "/bucket?lifecycle", nil)
	w.must(http.StatusNoContent, "DELETE", "/bucket?lifecycle", nil)
	if r := w.do("GET", "/bucket?lifecycle", nil); r.StatusCode != 404 || r.code() != "NoSuchLifecycleConfiguration" {
		t.Errorf("after the deletion: %d %s", r.StatusCode, r.body)
	}
	if r := w.must(200, "HEAD", "/bucket/logs/1", nil); r.Header.Get(name) != "" {
		t.Errorf("without rules there is the header %q", r.Header.Get(name))
	}
}
