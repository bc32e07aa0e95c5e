// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/node"
)

// TestUserGrants grants and revokes through a running server and without one: both take effect at once.
func TestUserGrants(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	at := func(args ...string) []string { return append(args, "--data", dir) }
	p := startServer(t, dir, nil)
	root := p.client(p.AccessKey, p.SecretKey)
	if err := root.MakeBucket(t.Context(), "models", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, root, "models", "a/key", []byte("content"))
	run(t, at("user", "grant", "alice", "models")).want(t, 3, "alice", "no such account", "user add")
	made := decode[userJSON](t, run(t, at("user", "add", "alice", "--json")))
	run(t, at("user", "grant", "alice", "missing")).want(t, 3, "missing", "s3 mb s3://missing")
	run(t, at("user", "grant", p.AccessKey, "models")).want(t, 2, "may do everything already")
	run(t, at("user", "grant", "alice")).want(t, 2, "expected the access key of an account and the name of a bucket")
	if got := decode[grantJSON](t, run(t, at("user", "grant", "alice", "models", "--read", "--write",
		"--json"))); got.Access != "read-write" {
		t.Errorf("--read and --write together are both: %+v", got)
	}
	run(t, at("user", "revoke", "alice", "models")).want(t, 0, "revoked")
	run(t, at("user", "grant", "alice", "models", "--prefix", "a*")).want(t, 2, "patterns")

	alice := func() *minio.Client { return p.client("alice", made.Secret) }
	denied := func(err error) bool {
		var r minio.ErrorResponse
		return errors.As(err, &r) && r.Code == "AccessDenied"
	}
	write := func() error {
		_, err := alice().PutObject(t.Context(), "models", "b/key", strings.NewReader("x"), 1, minio.PutObjectOptions{})
		return err
	}
	if err := write(); !denied(err) {
		t.Fatalf("before a grant: %v", err)
	}
	run(t, at("user", "grant", "alice", "models", "--read")).want(t, 0, "granted", "alice", "read")
	run(t, at("user", "grant", "alice", "models", "--read")).want(t, 0, "unchanged")
	wantObject(t, alice(), "models", "a/key", []byte("content"))
	if err := write(); !denied(err) {
		t.Fatalf("with a grant to read: %v", err)
	}
	if got := decode[grantJSON](t, run(t, at("user", "grant", "alice", "models", "--json"))); !got.Changed ||
		got.Access != "read-write" {
		t.Errorf("%+v", got)
	}
	if err := write(); err != nil {
		t.Fatalf("with a grant to read and write: %v", err)
	}
	run(t, at("user", "show", "alice")).want(t, 0, "alice", "models", "read-write", "all")

	// The same without a server.
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	run(t, at("user", "revoke", "alice", "models", "--prefix", "elsewhere/")).want(t, 0, "unchanged")
	run(t, at("user", "revoke", "alice", "models")).want(t, 0, "revoked")
	run(t, at("user", "grant", "alice", "models", "--write", "--prefix", "b/")).want(t, 0, "granted", "b/")
	if got := decode[node.UserAccess](t, run(t, at("user", "show", "alice", "--json"))); len(got.Grants) != 1 ||
		got.Grants[0].Prefix != "b/" || got.Role != "user" {
		t.Errorf("%+v", got)
	}
	run(t, at("user", "show", "nobody")).want(t, 3, "user list")

	p = startServer(t, dir, nil)
	if err := write(); err != nil {
		t.Errorf("a grant that was made without a server: %v", err)
	}
	if _, err := alice().StatObject(t.Context(), "models", "a/key", minio.StatObjectOptions{}); err == nil {
		t.Error("a grant that was revoked without a server still holds")
	}
	// Who comes later with the same name finds nothing of the account that was removed.
	run(t, at("user", "remove", "alice")).want(t, 0)
	made = decode[userJSON](t, run(t, at("user", "add", "alice", "--json")))
	if err := write(); !denied(err) {
		t.Errorf("a new account has the grants of an old one: %v", err)
	}
}
