// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/node"
)

// A running server is backed up, restored elsewhere, damaged, checked and salvaged by commands alone.
func TestStoreIsBackedUpRestoredAndSalvaged(t *testing.T) {
	root := t.TempDir()
	dir, out, back, saved := filepath.Join(root, "store"), filepath.Join(root, "backup"), filepath.Join(root,
		"back"), filepath.Join(root, "saved")
	p := startServer(t, dir, nil)
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "bucket", "small", pattern(100))
	put(t, c, "bucket", "large", pattern(3<<20))
	run(t, []string{"user", "add", "alice", "--data", dir}).want(t, 0)
	run(t, []string{"store", "backup", out, "--verify", "--data", dir}).want(t, 0,
		"copied    the metadata, 1 file, 3.00 MiB", "match their checksums", "to        "+out)
	deep := filepath.Join(root, "missing", "deep")
	run(t, []string{"store", "backup", deep, "--data", dir}).want(t, 3, filepath.Dir(deep)+" does not exist",
		"make that directory first")
	if _, err := os.Stat(filepath.Dir(deep)); err == nil {
		t.Errorf("%s was made", filepath.Dir(deep))
	}
	again := run(t, []string{"store", "backup", out, "--data", dir})
	again.want(t, 2, "exists already", "\n  fix: name a directory that does not exist\n")
	if strings.Count(again.stderr, "fix:") != 1 || strings.Count(again.stderr, "back up store") != 1 {
		t.Errorf("the running server's error says it twice: %s", again.stderr)
	}
	run(t, []string{"store", "restore", out + "-none", "--data", dir + "-none"}).want(t, 3, "there is no such directory")
	run(t, []string{"store", "restore", out, "--data", dir}).want(t, 2, "is not empty")
	run(t, []string{"store", "restore", dir, "--data", back}).want(t, 3, "is no backup")
	put(t, c, "bucket", "later", pattern(10))
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	run(t, []string{"store", "restore", out, "--verify", "--data", back}).want(t, 0, "copied")
	run(t, []string{"store", "check", "--data", back}).want(t, 0, "result    clean")
	run(t, []string{"user", "list", "--data", back}).want(t, 0, "alice")
	r := startServer(t, back, nil)
	wantObject(t, r.client(r.AccessKey, r.SecretKey), "bucket", "large", pattern(3<<20))
	if code := r.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.log)
	}

	// A stopped store is backed up the same way.
	run(t, []string{"store", "backup", out + "2", "--json", "--data", dir}).want(t, 0, `"files": 1`)

	// The log goes: what was in it is lost, and all commands say so.
	logs, err := filepath.Glob(filepath.Join(dir, "meta", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	for _, l := range logs {
		if err := os.Remove(l); err != nil {
			t.Fatal(err)
		}
	}
	run(t, []string{"store", "stats", "--data", dir}).want(t, 5, "the metadata is damaged", "store salvage")
	if r := run(t, []string{"store", "check", "--data", dir}); r.code != 5 ||
		!strings.Contains(r.out, "the log is missing") || !strings.Contains(r.out, "store salvage") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.stderr)
	}
	run(t, []string{"store", "salvage", dir}).want(t, 2, "--to")
	run(t, []string{"store", "salvage", dir, "--to", out}).want(t, 2, "is not empty")
	s := run(t, []string{"store", "salvage", dir, "--to", saved, "--json"})
	if s.code != 5 {
		t.Errorf("exit code %d\n%s%s", s.code, s.out, s.stderr)
	}
	if report := decode[node.SalvageReport](t, s); report.Problems != 0 || report.Objects < 2 ||
		len(report.Warnings) == 0 || len(report.Saved) != int(report.Objects) {
		t.Errorf("%+v", report)
	}
	run(t, []string{"store", "check", "--data", saved}).want(t, 0, "result    clean")
}
