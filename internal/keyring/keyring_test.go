// SPDX-License-Identifier: Apache-2.0

package keyring_test

import (
	"bytes"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/test/transit"
)

func text(b byte) string { return hex.EncodeToString(bytes.Repeat([]byte{b}, seal.KeySize)) }

func master(t *testing.T, lines ...string) keyring.Master {
	t.Helper()
	m, err := keyring.ParseMaster([]byte(strings.Join(lines, "\n")), "test")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ring(t *testing.T, records object.Records, m keyring.Master) *keyring.Ring {
	t.Helper()
	r, err := keyring.Open(t.Context(), records, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// secretOf wraps a secret, so that a later ring can show that it has the same key.
func secretOf(t *testing.T, r *keyring.Ring, name string) (wrapped []byte, generation int) {
	t.Helper()
	w, n, err := r.Newest(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return w.Wrap([]byte("secret"), name), n
}

func opens(t *testing.T, r *keyring.Ring, name string, generation int, wrapped []byte) {
	t.Helper()
	w, err := r.Generation(t.Context(), name, generation)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Unwrap(wrapped, name); err != nil || string(got) != "secret" {
		t.Fatalf("%s, generation %d: %v", name, generation, err)
	}
}

// TestRotationsKeepOldKeysReadable rotates a key of the ring and the master key, and removes the old master key.
func TestRotationsKeepOldKeysReadable(t *testing.T) {
	store := model.New()
	r := ring(t, store, master(t, text(1)))
	if err := r.Create(t.Context(), "payroll"); err != nil {
		t.Fatal(err)
	}
	if err := r.Create(t.Context(), "payroll"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("made twice: %v", err)
	}
	first, one := secretOf(t, r, "payroll")
	if err := r.Rotate(t.Context(), "payroll"); err != nil {
		t.Fatal(err)
	}
	second, two := secretOf(t, r, "payroll")
	if one != 1 || two != 2 {
		t.Errorf("generations %d and %d", one, two)
	}
	if _, _, err := r.Newest(t.Context(), "none"); !errors.Is(err, object.ErrNoSuchEncryptionKey) {
		t.Errorf("%v", err)
	}
	if err := r.Rotate(t.Context(), "none"); !errors.Is(err, object.ErrNoSuchEncryptionKey) {
		t.Errorf("%v", err)
	}
	secretOf(t, r, keyring.S3)

	r = ring(t, store, master(t, text(2), text(1)))
	if keys, err := r.List(t.Context()); err != nil || len(keys) != 2 || keys[1].Name != "payroll" ||
		keys[1].Generations != 2 ||
		keys[1].Current {
		t.Fatalf("%+v %v", keys, err)
	}
	if n, err := r.Rewrap(t.Context()); err != nil || n != 2 {
		t.Fatalf("%d %v", n, err)
	}
	if n, err := r.Rewrap(t.Context()); err != nil || n != 0 {
		t.Fatalf("a second time: %d %v", n, err)
	}
	r = ring(t, store, master(t, text(2)))
	opens(t, r, "payroll", one, first)
	opens(t, r, "payroll", two, second)
	if err := ring(t, store, master(t, text(1))).Check(t.Context()); errs.KindOf(err) != errs.Permission {
		t.Errorf("the old master key alone: %v", err)
	}
	for _, name := range []string{"", "a b", "ä", strings.Repeat("x", 129)} {
		if err := r.Create(t.Context(), name); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestMasterKeyFilesAreChecked reads key files that nobody may use, and never shows their text.
func TestMasterKeyFilesAreChecked(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"short": {"abcd1234", 0o600, "64 hexadecimal digits"}, "empty": {"# only a comment\n", 0o600, "has no key"},
		"open": {text(1), 0o644, "mode 0644"}, "twice": {text(1) + "\n" + text(1), 0o600, "repeats"},
		"good": {"# a comment\n\n" + text(1) + "\n", 0o600, ""},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := keyring.ReadMaster(path)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "abcd1234") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
	if _, err := keyring.ReadMaster(filepath.Join(dir, "none")); errs.KindOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := keyring.RunMaster(t.Context(), []string{"/bin/echo", text(3)}); err != nil {
		t.Error(err)
	}
	if _, err := keyring.RunMaster(t.Context(), []string{"/bin/sh", "-c", "echo broken >&2; exit 3"}); err == nil ||
		!strings.Contains(err.Error(), "broken") {
		t.Errorf("a command that fails: %v", err)
	}
}

// TestAMasterKeyInVault keeps the master key in a server with the transit engine: over TLS, rotated, sealed, with a new
// token, and after a key file.
func TestAMasterKeyInVault(t *testing.T) {
	vault := transit.New("token-1", "nebulaio")
	server := httptest.NewTLSServer(vault)
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := keyring.Transit{Address: server.URL, Key: "nebulaio", TokenFile: write("token", "token-1\n"),
		CAFile: write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))}
	open := func() keyring.Master {
		m, err := keyring.NewTransit(o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	store := model.New()
	inFile := master(t, text(1))
	old := ring(t, store, inFile)
	wrapped, n := secretOf(t, old, keyring.S3)

	// The store moves from a key file to Vault.
	r := ring(t, store, keyring.Successor(open(), inFile))
	if changed, err := r.Rewrap(t.Context()); err != nil || changed != 1 {
		t.Fatalf("%d %v", changed, err)
	}
	r = ring(t, store, open())
	opens(t, r, keyring.S3, n, wrapped)
	before := vault.Asked()
	for range 10 {
		opens(t, r, keyring.S3, n, wrapped)
	}
	if vault.Asked() != before {
		t.Error("Vault was asked again for a key that is open")
	}

	vault.Rotate("nebulaio")
	if keys, err := r.List(t.Context()); err != nil || keys[0].Current {
		t.Errorf("%+v %v", keys, err)
	}
	if changed, err := r.Rewrap(t.Context()); err != nil || changed != 1 {
		t.Errorf("%d %v", changed, err)
	}

	vault.Seal(true)
	opens(t, r, keyring.S3, n, wrapped) // a server that runs goes on
	if err := ring(t, store, open()).Check(t.Context()); !errors.Is(err, object.ErrKeyService) {
		t.Errorf("a sealed Vault: %v", err)
	}
	vault.Seal(false)
	vault.SetToken("token-2")
	if err := ring(t, store, open()).Check(t.Context()); errs.KindOf(err) != errs.Permission {
		t.Errorf("an old token: %v", err)
	}
	m := open()
	write("token", "token-2")
	opens(t, ring(t, store, m), keyring.S3, n, wrapped) // the token is read for each request

	server.Close()
	if err := ring(t, store, open()).Check(t.Context()); !errors.Is(err, object.ErrKeyService) {
		t.Errorf("a Vault that is gone: %v", err)
	}
	for _, bad := range []keyring.Transit{{Address: "vault:8200"},
		{Address: server.URL, TokenFile: filepath.Join(dir, "none")},
		{Address: server.URL, TokenFile: write("empty", "\n")},
		{Address: server.URL, TokenFile: o.TokenFile, CAFile: o.TokenFile}} {
		if _, err := keyring.NewTransit(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// FuzzMaster reads arbitrary key files. A file is refused, or its key wraps and unwraps.
func FuzzMaster(f *testing.F) {
	f.Add([]byte(text(1)))
	f.Add([]byte("# c\n" + text(1) + "\n" + text(2)))
	f.Add([]byte("AAAA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := keyring.ParseMaster(b, "fuzz")
		if err != nil {
			return
		}
		wrapped, err := m.Wrap(t.Context(), []byte("secret"), "n")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Unwrap(t.Context(), wrapped, "n"); err != nil || string(got) != "secret" {
			t.Fatal(err)
		}
	})
}
