// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/test/effort"
)

// newStoreDir makes an empty store and stops its server.
func newStoreDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	return dir
}

func TestUsersWithoutAServer(t *testing.T) {
	dir := newStoreDir(t)
	at := func(args ...string) []string { return append(args, "--data", dir) }
	run(t, at("user", "list")).want(t, 0, "no accounts")
	r := run(t, at("user", "add", "alice", "--json"))
	r.want(t, 0)
	if u := decode[userJSON](t, r); u.AccessKey != "alice" || len(u.Secret) < 20 || u.Role != "user" {
		t.Errorf("%+v", u)
	}
	run(t, at("user", "add", "bob", "--role", "userplus", "--secret", "-"), stdin("bobs-secret\r\n")).want(t, 0,
		"added     bob", "role      userplus")
	run(t, at("user", "add", "bob")).want(t, 2, "bob", "exists already")
	run(t, at("user", "list")).want(t, 0, "alice       user\n", "bob         userplus\n")
	run(t, at("user", "update", "bob", "--role", "admin")).want(t, 0, "changed   bob", "role      admin")
	if r := run(t, at("user", "update", "bob", "--generate")); !strings.Contains(r.out, "secret    ") {
		t.Error(r.out)
	}
	run(t, at("user", "update", "bob")).want(t, 2, "nothing to change")
	run(t, at("user", "remove", "alice")).want(t, 0, "removed   alice")
	run(t, at("user", "remove", "alice")).want(t, 3, "alice", "no such account")
	r = run(t, at("user", "list", "--json"))
	if u := decode[usersJSON](t, r); len(u.Users) != 1 || u.Users[0] != (node.User{AccessKey: "bob", Role: "admin"}) {
		t.Errorf("%+v", u)
	}
	run(t, at("user", "add", "x")).want(t, 2, `the access key has 1 characters, expected 3 to 128`)
	run(t, at("user", "add", "carol", "--secret", "visible-to-all")).want(t, 2,
		"--secret does not accept the secret itself")
	run(t, at("user", "add", "carol", "--secret", "-")).want(t, 2, "the first line is empty")
	run(t, at("user", "add", "carol", "--role", "king")).want(t, 2,
		`--role "king" is not accepted; expected user, userplus or admin`)
	run(t, at("user", "add")).want(t, 2, "no name given; expected the access key")
	run(t, []string{"user"}).want(t, 2,
		"no command given; expected add, grant, import, key, list, remove, revoke, session, show or update")
	run(t, []string{"user", "list", "--data", filepath.Join(dir, "elsewhere")}).want(t, 3, "holds no object store",
		"fix: name its directory")
}

func TestStoreIsCheckedScrubbedAndMeasured(t *testing.T) {
	effort.Slow(t)
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "bucket", "small", pattern(100))
	put(t, c, "bucket", "large", pattern(3<<20))
	put(t, c, "bucket", "other", pattern(2<<20))
	at := func(args ...string) []string { return append(args, "--data", dir) }

	// While the server runs.
	s := decode[node.Stats](t, run(t, at("store", "stats", "--json")))
	if s.Buckets != 1 || s.Objects != 3 || s.Bytes != 5<<20+100 || s.InlineBytes != 100 || s.Files != 2 ||
		s.FreeBytes <= 0 || s.LogSyncs == 0 {
		t.Errorf("%+v", s)
	}
	run(t, at("store", "scrub")).want(t, 0, "scrubbed  3 objects, 5.00 MiB", "result    clean")
	run(t, at("store", "check")).want(t, 2, dir)

	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	run(t, at("store", "stats")).want(t, 0, "objects         3\n",
		"content         5.00 MiB in 2 files and 100 B with the metadata",
		"handed out      0 B in 0 files that are gone but held, 0 B in 0 drafts")
	run(t, at("store", "check")).want(t, 0, "result    clean")
	run(t, at("store", "scrub", "--rate", "1GiB", "--json")).want(t, 0, `"damaged": 0`)

	flipByte(t, dir, 3<<20, 1<<20+5)
	r := run(t, at("store", "scrub", "--json"))
	if r.code != 5 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	found := decode[node.ScrubReport](t, r)
	if found.Damaged != 1 || len(found.Damage) != 1 || found.Damage[0].Bucket != "bucket" ||
		found.Damage[0].Key != "large" || found.Damage[0].What != "checksum" ||
		found.Damage[0].Offset != 1<<20 || found.Damage[0].File == "" {
		t.Errorf("%+v", found)
	}
	if err := os.Remove(found.Damage[0].File); err != nil {
		t.Fatal(err)
	}
	r = run(t, at("store", "check"))
	if r.code != 5 || !strings.Contains(r.out, "result    1 problem, 0 of them repaired") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.stderr)
	}

	// The server serves the rest, and says what is wrong.
	p = startServer(t, dir, nil)
	c = p.client(p.AccessKey, p.SecretKey)
	wantObject(t, c, "bucket", "other", pattern(2<<20))
	if o, err := c.GetObject(t.Context(), "bucket", "large", minio.GetObjectOptions{}); err == nil {
		if _, err := o.Stat(); err == nil {
			if _, err := o.Read(make([]byte, 1)); err == nil {
				t.Error("a file that is gone was served")
			}
		}
		_ = o.Close()
	}
	until(t, "the damage to be counted", func() bool {
		_, text := p.page("/metrics")
		return strings.Contains(text, `nebulaio_store_damage_total{what="missing"} `) &&
			!strings.Contains(text, `nebulaio_store_damage_total{what="missing"} 0`)
	})
	if !strings.Contains(p.log.String(), `"msg":"damage"`) || !strings.Contains(p.log.String(), `"key":"large"`) {
		t.Errorf("the log does not tell:\n%s", p.log)
	}
}

// flipByte changes one byte of the one data file of that size.
func flipByte(t *testing.T, dir string, size, off int64) {
	t.Helper()
	done := false
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "meta") {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Size() != size || done {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, off); err != nil {
			return err
		}
		b[0] ^= 1
		_, err = f.WriteAt(b, off)
		done = true
		return err
	})
	if err != nil || !done {
		t.Fatalf("no byte was changed: %v", err)
	}
}

func TestAdministrationEndsWithItsContext(t *testing.T) {
	dir := newStoreDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, err := config.Load(config.Inputs{Flags: map[string]string{"data": dir}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Administer(ctx, c); err == nil {
		t.Error("a store was opened after the context had ended")
	}
}

func TestConfigExplainsEveryValue(t *testing.T) {
	file := writeFile(t, "nebulaio.yaml", []byte("region: mars-1\n"))
	vars := env(map[string]string{"NEBULAIO_CONFIG": file, "NEBULAIO_ADDRESS": "127.0.0.1:7000",
		"NEBULAIO_ROOT_USER": "someone", "NEBULAIO_ROOT_PASSWORD": "do-not-show"})
	r := run(t, []string{"config", "--etag", "crc64nvme", "--access-log"}, vars)
	r.want(t, 0, "region = mars-1  ["+file+":1]", "address = 127.0.0.1:7000  [$NEBULAIO_ADDRESS]",
		"etag = crc64nvme  [--etag]", "access_log = true  [--access-log]",
		"verify_reads = first  [default]", "root_password = ********  [$NEBULAIO_ROOT_PASSWORD]",
		"NEBULAIO_LIMITS_IDLE, --limits-idle")
	if strings.Contains(r.out, "do-not-show") {
		t.Error("a secret is shown")
	}
	r = run(t, []string{"config", "--json"}, vars)
	r.want(t, 0)
	all := decode[configJSON](t, r)
	if len(all.Values) != len(config.Keys()) || strings.Contains(r.out, "do-not-show") {
		t.Errorf("%d values", len(all.Values))
	}
	run(t, []string{"config", "--inline-size", "1GiB"}).want(t, 2, `--inline-size: "1GiB" is out of range`)
	run(t, []string{"config", "--config", writeFile(t, "x.yaml", []byte("s3_express:\n  zones: [a]\n"))}).want(t, 0,
		"note: s3_express.zones is set and has no effect, because s3_express.enabled is false")
	run(t, []string{"config", "--config", writeFile(t, "x.yaml", []byte("rdma:\n  enabled: true\n"))}).want(t, 0,
		"rdma.enabled = true", "note: rdma.enabled is true, and there is no RDMA transport")
	run(t, []string{"config", "now"}).want(t, 2, `unknown argument "now"`)
}

func TestWhatTheServerPrints(t *testing.T) {
	var b strings.Builder
	printStarted(&b, node.Started{Version: "1", Endpoint: "http://127.0.0.1:9000", Console: "http://127.0.0.1:9001",
		Region: "r", Data: "d", AccessKey: "minioadmin", SecretKey: "minioadmin"})
	for _, want := range []string{"endpoint  http://127.0.0.1:9000", "AWS_SECRET_ACCESS_KEY=minioadmin",
		"aws --endpoint-url http://127.0.0.1:9000 s3 mb"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	b.Reset()
	printStarted(&b, node.Started{Endpoint: "https://h:1", AccessKey: "someone", Fingerprint: "AB:CD",
		CA: "d/tls/cert.pem"})
	for _, want := range []string{`AWS_SECRET_ACCESS_KEY="$NEBULAIO_ROOT_PASSWORD"`, "SHA-256 AB:CD",
		"--ca-bundle d/tls/cert.pem"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
