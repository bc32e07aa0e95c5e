// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// askMinIO sends a request to MinIO's administration, which `mc admin cluster iam` uses.
func askMinIO(t *testing.T, u *upstreams.Upstream, method, what string, body []byte) ([]byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, u.Endpoint+"/minio/admin/v3/"+what, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	resp, err := http.DefaultClient.Do(signer.SignV4(*r, upstreams.Access, upstreams.Secret, "", ""))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %q", what, resp.Status, text)
	}
	return text, err
}

// importedByMinIO lets MinIO import an archive, and returns the archive that MinIO exports then. After its start, MinIO
// reads its accounts from the disk once more, and forgets for a moment what an import has just added. The import then
// fails, because it does not find the user of a service account, or it leaves accounts out without an error. So the
// import is repeated until all is there.
func importedByMinIO(t *testing.T, u *upstreams.Upstream, archive []byte) []byte {
	t.Helper()
	var why error
	for range 300 {
		var out []byte
		if out, why = importOnce(t, u, archive); why == nil {
			return out
		}
		time.Sleep(100 * time.Millisecond) // MinIO gives no other sign
	}
	t.Fatalf("MinIO did not import the accounts: %v", why)
	return nil
}

// importOnce lets MinIO import an archive and export its accounts. An account that is missing in the export is an
// error.
func importOnce(t *testing.T, u *upstreams.Upstream, archive []byte) ([]byte, error) {
	t.Helper()
	if _, err := askMinIO(t, u, http.MethodPut, "import-iam", archive); err != nil {
		return nil, err
	}
	out, err := askMinIO(t, u, http.MethodGet, "export-iam", nil)
	if err != nil {
		return nil, err
	}
	z, err := zip.NewReader(bytes.NewReader(out), int64(len(out)))
	if err != nil {
		t.Fatal(err)
	}
	for name, entries := range map[string][]string{"policies": {"models"}, "users": {"alice", "bob"}, "groups": {"team"},
		"group_mappings": {"team"}, "svcaccts": {"trainer"}} {
		text, err := fs.ReadFile(z, "iam-assets/"+name+".json")
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if !bytes.Contains(text, []byte(`"`+entry+`"`)) {
				return nil, fmt.Errorf("%s has no %s: %s", name, entry, text)
			}
		}
	}
	return out, nil
}

// TestUsersFromMinIO moves users, groups, policies and service accounts. MinIO imports them itself first, so that the
// archive is one that a real server wrote.
func TestUsersFromMinIO(t *testing.T) {
	needsUpstreams(t)
	u, err := upstreams.Start(t.Context(), upstreams.MinIO, tempDir(t))
	if err != nil {
		skipOrFail(t, err)
	}
	defer u.Stop()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"policies": `{"models":{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],` +
			`"Resource":["arn:aws:s3:::models/*"]}]}}`,
		"users": `{"alice":{"secretKey":"alicesecret","status":"enabled"},` +
			`"bob":{"secretKey":"bobssecret","status":"disabled"}}`,
		"groups":         `{"team":{"version":1,"status":"enabled","members":["alice"]}}`,
		"group_mappings": `{"team":{"version":1,"policy":"models"}}`,
		"user_mappings":  `{}`, "stsuser_mappings": `{}`,
		"svcaccts": `{"trainer":{"parent":"alice","accessKey":"trainer","secretKey":"trainersecret","groups":["team"],` +
			`"claims":{},"sessionPolicy":{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],` +
			`"Resource":["arn:aws:s3:::models/a/*"]}]},"status":"on","name":"trainer","description":"nightly"}}`,
	} {
		f, err := w.Create("iam-assets/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	file := filepath.Join(dir, "minio-iam-info.zip")
	if err := os.WriteFile(file, importedByMinIO(t, u, b.Bytes()), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, dir, "")
	root := n.client(t)
	if err := root.MakeBucket(t.Context(), "models", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/key", "b/key"} {
		if _, err := root.Client.PutObject(t.Context(), "models", key, bytes.NewReader([]byte("x")), 1,
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "user", "import", file, "--json", "--data",
		filepath.Join(dir, "data")).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	type counts struct{ Added, Present int }
	var got struct {
		Policies, Users, Groups counts
		Keys                    counts `json:"service_accounts"`
		Skipped                 []struct{ What, Name string }
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Policies.Added != 1 || got.Users != (counts{Added: 1}) ||
		got.Groups != (counts{Added: 1}) || got.Keys != (counts{Added: 1}) {
		t.Fatalf("%v %s", err, out)
	}
	for _, c := range []struct {
		access, secret, key string
		allowed             bool
	}{
		{"alice", "alicesecret", "a/key", true}, {"alice", "alicesecret", "b/key", true},
		{"trainer", "trainersecret", "a/key", true}, {"trainer", "trainersecret", "b/key", false},
		{"bob", "bobssecret", "a/key", false},
	} {
		_, err := client(t, n.host, c.access, c.secret).Client.StatObject(t.Context(), "models", c.key,
			minio.StatObjectOptions{})
		if (err == nil) != c.allowed {
			t.Errorf("%s reads %s: %v, expected allowed %v", c.access, c.key, err, c.allowed)
		}
	}
	t.Logf("%s", out)
}
