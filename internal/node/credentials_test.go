// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	signing "github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestTheFirstStartMakesKeys starts on an empty directory as a new service does, and again.
func TestTheFirstStartMakesKeys(t *testing.T) {
	dir := t.TempDir() // it exists and is empty, like a StateDirectory
	flags := map[string]string{"data": dir, "generate_root_keys": "true"}
	var before string
	for range 2 {
		r := runServer(t, flags)
		if r.SecretKey != "" || r.Keys != filepath.Join(dir, "root.env") {
			t.Fatalf("%+v", r.Started)
		}
		access, secret, err := config.RootKeysIn(r.Keys)
		if err != nil || access != r.AccessKey || len(secret) < 20 || secret == defaultPassword {
			t.Fatalf("%s, %d characters, %v", access, len(secret), err)
		}
		if before != "" && secret != before {
			t.Error("the second start made other keys")
		}
		before = secret
		if info, err := os.Stat(r.Keys); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		client, err := minio.New(strings.TrimPrefix(r.Endpoint, "http://"),
			&minio.Options{Creds: signing.NewStaticV4(access, secret, ""), Region: r.Region})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ListBuckets(t.Context()); err != nil {
			t.Errorf("the keys do not open the store: %v", err)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if log := r.log.String(); strings.Contains(log, secret) || !strings.Contains(log, "root.env") {
			t.Errorf("the log has the secret, or not the name of its file:\n%s", log)
		}
		if err := os.Chmod(r.Keys, 0o644); err != nil { // as a copy may be
			t.Fatal(err)
		}
	}
	// An administrator who is offline needs no keys, and makes none.
	empty := t.TempDir()
	st, err := openStore(t.Context(), settings(t, map[string]string{"data": empty}), events{})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := Administer(t.Context(), settings(t, map[string]string{"data": empty, "generate_root_keys": "true"}))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := os.Stat(filepath.Join(empty, "root.env")); err == nil {
		t.Error("keys were made without a server")
	}
}

func TestKeysThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                             "has no NEBULAIO_ROOT_USER",
		"NEBULAIO_ROOT_USER=someone\n": "has no NEBULAIO_ROOT_USER or no NEBULAIO_ROOT_PASSWORD",
		"NEBULAIO_ROOT_USER=someone\nNEBULAIO_ROOT_PASSWORD=hush\n":                           "PASSWORD has 4 characters",
		"export NEBULAIO_ROOT_USER=someone\n":                                                 "line 1 is neither",
		"NEBULAIO_ROOT_USER=someone\nNEBULAIO_ROOT_USER=someone\n":                            "given twice",
		"NEBULAIO_ROOT_USER=someone\nNEBULAIO_ROOT_PASSWORD=" + strings.Repeat("x", 5000):     "more than 4096 bytes",
		"NEBULAIO_ROOT_USER=some one\nNEBULAIO_ROOT_PASSWORD=something-that-is-long-enough\n": "line 1: NEBULAIO_ROOT_USER is no access key",
	} {
		file := filepath.Join(dir, rootFile)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := credentials{file: file}.keep()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(fix: ") {
			t.Errorf("%.60q: %v, expected %q and a fix", text, err, want)
		}
		if kept, _ := os.ReadFile(file); string(kept) != text {
			t.Errorf("%.60q was replaced", text)
		}
	}
}

// What is no file in the place of root.env is refused with a fix, and keeps its mode and its place.
func TestRootFileThatIsNoFile(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"directory": func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o755)) },
		"link loop": func(p string) error { return os.Symlink(rootFile, p) },
		"pipe":      func(p string) error { return errors.Join(unix.Mkfifo(p, 0o600), os.Chmod(p, 0o644)) },
	} {
		file := filepath.Join(t.TempDir(), rootFile)
		if err := make(file); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (credentials{file: file}).keep(); err == nil || !strings.Contains(errs.FixOf(err), "move it away") {
			t.Errorf("%s: %v, expected a fix", name, err)
		}
		if after, err := os.Lstat(file); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: mode %v became %v: %v", name, before.Mode(), after.Mode(), err)
		}
	}
}
