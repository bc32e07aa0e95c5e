// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// TestModelsInBuckets saves a model to a server, looks at it and loads it, by
// its door and over HTTP.
func TestModelsInBuckets(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "door.sock")
	p := startServer(t, filepath.Join(t.TempDir(), "store"),
		[]string{"NEBULAIO_ROOT_USER=cli-user", "NEBULAIO_ROOT_PASSWORD=cli-password-1",
			"NEBULAIO_GPUDIRECT_ENABLED=true", "NEBULAIO_GPUDIRECT_SOCKET=" + socket})
	m, err := minio.New(strings.TrimPrefix(p.Endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4("cli-user", "cli-password-1", ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := env(map[string]string{"NEBULAIO_ENDPOINT": p.Endpoint, "NEBULAIO_ACCESS_KEY": "cli-user",
		"NEBULAIO_SECRET_KEY": "cli-password-1"})
	path := tinyModel(t)
	for _, door := range []string{"require", "off"} {
		url := "s3://box/" + door + "/model.safetensors"
		run(t, []string{"save", path, url, "--device", "host", "--door", door}, keys).want(t, 0, "path      "+url,
			"durable   yes: the server has acknowledged it", map[string]string{"require": "by way of door",
				"off": "by way of http"}[door])
		r := run(t, []string{"load", "s3://box/" + door, "--device", "host", "--door", door, "--json"}, keys)
		r.want(t, 0)
		v := decode[loadsJSON](t, r)
		if l := v.Loads[0]; l.Bytes != 5775 || l.Path != "s3://box/"+door ||
			(len(l.Refusals) > 0 && l.Refusals[0].What == "door") != (door == "off") {
			t.Errorf("%s: %+v", door, l)
		}
		run(t, []string{"inspect", "s3://box/" + door, "--door", door}, keys).want(t, 0, url)
	}
	dataInBuckets(t, m, keys)
	run(t, []string{"load", "s3://box/require", "--device", "host", "--verify"}, keys).want(t, 0, "s3://box/require")
	run(t, []string{"load", "s3://box/off", "--device", "host", "--verify", "--door", "off"}, keys).want(t, 3,
		"model.safetensors.crc64nvme")
	run(t, []string{"load", "s3://box/nothing/", "--device", "host"}, keys).want(t, 3, "s3://box/nothing/")
	run(t, []string{"inspect", "s3://box/require", "--checksum"}, keys).want(t, 9, "bucket")
	run(t, []string{"save", path, "s3://box/x.safetensors", "--device", "host", "--ceiling"}, keys).want(t, 2, "--ceiling")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("cli-password-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"load", "s3://box/require", "--device", "host", "--endpoint", p.Endpoint, "--access-key", "cli-user",
		"--secret-file", secret}).want(t, 0, "s3://box/require")
	run(t, []string{"load", "s3://box/require", "--device", "host", "--endpoint", p.Endpoint, "--access-key", "cli-user",
		"--secret-file", path}).want(t, 4)
	run(t, []string{"load", "s3://box/require", "--device", "host", "--door", "ajar"}, keys).want(t, 2, `"ajar"`,
		"auto, require, off")
	if code := p.stop(os.Interrupt); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// dataInBuckets looks at archives of a bucket and makes their indexes, as objects beside them.
func dataInBuckets(t *testing.T, m *minio.Client, keys func(*World)) {
	t.Helper()
	dir := archives(t, 2)
	for _, name := range []string{"t-0.tar", "t-1.tar"} {
		if _, err := m.FPutObject(t.Context(), "box", "shards/"+name, filepath.Join(dir, name),
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"s3://box/shards", "s3://box/shards/", "s3://box/shards/*.tar",
		"s3://box/shards/t-{0..1}.tar"} {
		run(t, []string{"inspect", name}, keys).want(t, 0, "format    tar\n", "samples   4\n")
	}
	found(t, run(t, []string{"index", "s3://box/shards", "--check"}, keys), 3, "2 missing")
	run(t, []string{"index", "s3://box/shards"}, keys).want(t, 0, "2 made")
	run(t, []string{"index", "s3://box/shards", "--check", "--door", "off"}, keys).want(t, 0, "2 present")
	if _, err := m.StatObject(t.Context(), "box", "shards/t-1.tar.nbx", minio.StatObjectOptions{}); err != nil {
		t.Error(err)
	}
	run(t, []string{"inspect", "s3://box/nothing"}, keys).want(t, 3, "s3://box/nothing")
	run(t, []string{"inspect", "s3://box/nothing", "--format", "tar"}, keys).want(t, 3, "s3://box/nothing")
}
