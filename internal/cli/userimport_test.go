// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestUsersOfMinIO imports an export with and without a server, twice, and asks over S3.
func TestUsersOfMinIO(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	at := func(line string, more ...string) []string {
		return append(append(strings.Fields(line), more...), "--data", dir)
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	allowed := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],` +
		`"Resource":["arn:aws:s3:::models/*"]}]}`
	for name, text := range map[string]string{
		"policies": `{"models":` + allowed + `,"broken":{"Statement":[{"Effect":"Maybe"}]},"readonly":` + allowed +
			`,"consoleAdmin":{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["admin:*"]}]}}`,
		"users": `{"alice":{"secretKey":"alicesecret","status":"enabled"},"bob":{"secretKey":"bobssecret",` +
			`"status":"disabled"},"carol":{"secretKey":"carolsecret","status":"enabled"},"no/name":{"secretKey":"12345678"}}`,
		"groups":         `{"team":{"status":"enabled","members":["alice","bob"]}}`,
		"group_mappings": `{"team":{"policy":"models"}}`,
		"user_mappings":  `{"carol":{"policy":"consoleAdmin"},"alice":{"policy":"broken"}}`,
		"svcaccts": `{"trainer":{"parent":"alice","secretKey":"trainersecret","status":"on"},` +
			`"orphan":{"parent":"minioadmin","secretKey":"orphansecret","status":"on"}}`,
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
	file := writeFile(t, "minio-iam-info.zip", b.Bytes())

	p := startServer(t, dir, nil)
	root := p.client(p.AccessKey, p.SecretKey)
	if err := root.MakeBucket(t.Context(), "models", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, root, "models", "key", []byte("content"))
	dry := decode[importJSON](t, run(t, at("user import", file, "--dry-run", "--json")))
	if !dry.DryRun || dry.Users.Added != 3 || dry.Keys.Added != 1 {
		t.Errorf("%+v", dry)
	}
	run(t, at("user list")).want(t, 0) // nothing was changed
	first := run(t, at("user import", file))
	first.want(t, 0, "policies          1 added, 1 there already", "users             2 added",
		"groups            1 added",
		"service accounts  1 added", "user bob", "disabled", "user no/name", "'/'", "policy broken", "policy consoleAdmin",
		"service account orphan", "minioadmin", "its member bob", "the policy broken")
	again := decode[importJSON](t, run(t, at("user import", file, "--json")))
	if again.Policies != (importCounts{Present: 2}) || again.Users != (importCounts{Present: 2}) ||
		again.Groups != (importCounts{Present: 1}) || again.Keys != (importCounts{Present: 1}) {
		t.Errorf("a second import: %+v", again)
	}
	for access, secret := range map[string]string{"alice": "alicesecret", "trainer": "trainersecret",
		"carol": "carolsecret"} {
		wantObject(t, p.client(access, secret), "models", "key", []byte("content"))
	}
	run(t, at("user list")).want(t, 0, "carol", "admin")
	run(t, at("user import", writeFile(t, "x.zip", []byte("no archive")))).want(t, 5, "x.zip", "no ZIP archive",
		"mc admin cluster iam export")
	run(t, at("user import", filepath.Join(dir, "missing.zip"))).want(t, 3, "missing.zip")
	run(t, at("user import", dir)).want(t, 2, "is no file")
}
