// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// TestPoliciesGroupsAndKeys makes them by commands, with and without a server, and asks over S3.
func TestPoliciesGroupsAndKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	at := func(line string, more ...string) []string {
		return append(append(strings.Fields(line), more...), "--data", dir)
	}
	p := startServer(t, dir, nil)
	root := p.client(p.AccessKey, p.SecretKey)
	if err := root.MakeBucket(t.Context(), "models", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, root, "models", "a/key", []byte("content"))
	made := decode[userJSON](t, run(t, at("user add alice --json")))
	file := writeFile(t, "models.json", []byte(`{"Version":"2012-10-17","Statement":[`+
		`{"Effect":"Allow","Action":["s3:GetObject","s3:GetObjet"],"Resource":"arn:aws:s3:::models/*"}]}`))

	if r := run(t, at("policy set models", file)); r.code != 0 || !strings.Contains(r.stderr, "the actions s3:GetObjet") {
		t.Errorf("%+v", r)
	}
	// denied asks a test whose answer is no: a result with exit code 4, and no error.
	denied := func(access, reason string) {
		t.Helper()
		if r := run(t, at("policy test", access, "s3:GetObject", "models/a/key")); r.code != 4 || r.stderr != "" ||
			!strings.HasPrefix(r.out, "denied ") || !strings.Contains(r.out, reason) {
			t.Errorf("%+v", r)
		}
	}
	run(t, at("policy set models", writeFile(t, "bad.json", []byte(`{"Statement":[{"Effect":"Maybe"}]}`)))).want(t, 2,
		"statement 1", `"Maybe"`, "expected Allow or Deny")
	run(t, at("policy set models", filepath.Join(dir, "missing.json"))).want(t, 3, "missing.json")
	run(t, at("policy attach models")).want(t, 2, "--user and --group")
	run(t, at("policy attach nothing --user alice")).want(t, 3, "nothing", "no such policy", "policy list")
	run(t, at("policy attach models --user nobody")).want(t, 3, "nobody", "no such account")
	run(t, at("policy attach models --group nobody")).want(t, 3, "nobody", "no such group")
	run(t, at("group add research alice nobody")).want(t, 3, "nobody")
	run(t, at("group add research alice")).want(t, 0, "added", "alice", "research")
	run(t, at("group add research alice")).want(t, 0, "unchanged")
	denied("alice", "nor the bucket allows it")
	run(t, at("policy attach models --group research")).want(t, 0, "attached", "models")
	run(t, at("policy test alice s3:GetObject models/a/key")).want(t, 0, "allowed", "policy models of group research")
	run(t, at("policy test alice s3:GetObjet models/a/key")).want(t, 2, "s3:GetObjet")
	run(t, at("policy test alice s3:GetObject models/a/key --condition x")).want(t, 2, "expected KEY=VALUE")
	wantObject(t, p.client("alice", made.Secret), "models", "a/key", []byte("content"))

	key := decode[keyJSON](t, run(t, at("user key add alice --expires 1h --json")))
	wantObject(t, p.client(key.AccessKey, key.Secret), "models", "a/key", []byte("content"))
	run(t, at("user key add alice --expires soon")).want(t, 2, `"soon"`, "24h")
	run(t, at("user key add nobody")).want(t, 3, "nobody")
	run(t, at("user key list alice")).want(t, 0, key.AccessKey, "T", "Z")
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}

	// The same without a server.
	run(t, at("policy test", key.AccessKey, "s3:GetObject", "models/a/key")).want(t, 0, "allowed")
	none := writeFile(t, "none.json", []byte(`{"Statement":{"Effect":"Allow","Action":"s3:PutObject","Resource":"*"}}`))
	run(t, at("user key update", key.AccessKey, "--policy", none)).want(t, 0, "changed")
	run(t, at("user key update", key.AccessKey)).want(t, 2, "nothing to change")
	denied(key.AccessKey, "session policy")
	run(t, at("policy remove models")).want(t, 2, `"research"`, "policy detach")
	run(t, at("user show alice")).want(t, 0, "groups", "research")
	if g := decode[iam.Group](t, run(t, at("group show research --json"))); len(g.Members) != 1 ||
		g.Policies[0] != "models" {
		t.Errorf("%+v", g)
	}
	run(t, at("group list")).want(t, 0, "research", "alice", "models")
	if all := decode[policiesJSON](t, run(t, at("policy list --json"))); len(all.Policies) != 4 {
		t.Errorf("%+v", all)
	}
	run(t, at("policy show models")).want(t, 0, "s3:GetObject", "research")
	run(t, at("policy show nothing")).want(t, 3, "policy list")

	p = startServer(t, dir, nil)
	client := p.client(key.AccessKey, key.Secret)
	_, err := client.StatObject(t.Context(), "models", "a/key", minio.StatObjectOptions{})
	var r minio.ErrorResponse
	if !errors.As(err, &r) || r.Code != "AccessDenied" {
		t.Errorf("a policy that was set without a server: %v", err)
	}
	run(t, at("policy detach models --group research")).want(t, 0, "detached")
	run(t, at("policy remove models")).want(t, 0, "removed")
	run(t, at("group drop research alice")).want(t, 0, "dropped")
	run(t, at("group remove research")).want(t, 0, "removed")
	run(t, at("group show research")).want(t, 3, "group list")
	run(t, at("user key remove", key.AccessKey)).want(t, 0, "removed")
	run(t, at("user key remove", key.AccessKey)).want(t, 3, "no such account")
}
