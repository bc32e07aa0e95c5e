// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// TestAccessLogsFollowTheTargetsPolicy delivers the access log of a bucket to the bucket of another user. The policy of
// the target allows the delivery, then denies it, then allows it again.
func TestAccessLogsFollowTheTargetsPolicy(t *testing.T) {
	flags := map[string]string{"data": filepath.Join(t.TempDir(), "store"), "events.log_interval": "1h"}
	server := runServer(t, flags)
	admin, err := Administer(t.Context(), settings(t, flags))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	h := &hall{server: server, admin: admin}
	alice, bob := keys{"alice", "secret-of-alice"}, keys{"bob", "secret-of-bob"}
	for _, who := range []keys{alice, bob} {
		if err := admin.AddUser(t.Context(), iam.Account{AccessKey: who.access, Secret: who.secret,
			Role: iam.RoleUserPlus}); err != nil {
			t.Fatal(err)
		}
	}
	h.as(t, alice, http.MethodPut, "pictures", "", nil, "")
	h.as(t, bob, http.MethodPut, "logs", "", nil, "")
	const logging = `<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket><TargetPrefix>log/</TargetPrefix>` +
		`</LoggingEnabled></BucketLoggingStatus>`
	const allow = `{"Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject",` +
		`"Resource":"arn:aws:s3:::logs/log/*","Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pictures"},` +
		`"StringEquals":{"aws:SourceAccount":"alice"}}}`
	const deny = `{"Effect":"Deny","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:*",` +
		`"Resource":"arn:aws:s3:::logs/*"}`
	// Each PUT ?logging delivers the lines of earlier requests. A line is written after the reply to its request, so that
	// one request may not be enough.
	configure := func() (int, string) {
		return h.send(t, alice, http.MethodPut, "pictures?logging", "", nil, nil, logging)
	}
	delivered := func() int {
		_, text := h.send(t, bob, http.MethodGet, "logs", "", nil, nil, "")
		return strings.Count(text, "<Key>log/")
	}
	if status, text := configure(); status != http.StatusBadRequest ||
		!strings.Contains(text, "InvalidTargetBucketForLogging") {
		t.Errorf("a target of another user without a policy: %d %s", status, text)
	}
	h.as(t, bob, http.MethodPut, "logs?policy", "", nil, documentOf(allow))
	for delivered() == 0 {
		if status, text := configure(); status != http.StatusOK {
			t.Fatalf("a target that allows the delivery: %d %s", status, text)
		}
	}
	h.as(t, bob, http.MethodPut, "logs?policy", "", nil, documentOf(allow+","+deny))
	before := delivered()
	for !strings.Contains(server.log.String(), "lines of an access log were dropped") {
		if status, text := configure(); status != http.StatusBadRequest {
			t.Fatalf("a target that denies the delivery: %d %s", status, text)
		}
	}
	if got := server.log.String(); !strings.Contains(got, "the policy of the target bucket logs denies s3:PutObject to "+
		"logging.s3.amazonaws.com") {
		t.Errorf("the reason is missing in the log: %s", got)
	}
	if after := delivered(); after != before {
		t.Errorf("%d objects after a denial, expected %d", after, before)
	}
	// The user still writes: the denial is for the service.
	h.as(t, bob, http.MethodPut, "logs", "own", nil, "content")
	h.as(t, bob, http.MethodPut, "logs?policy", "", nil, documentOf(allow))
	for delivered() == before {
		if status, text := configure(); status != http.StatusOK {
			t.Fatalf("a target that allows the delivery again: %d %s", status, text)
		}
	}
}
