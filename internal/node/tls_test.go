// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func settings(t testing.TB, flags map[string]string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Inputs{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAGeneratedCertificateIsKept(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	c := settings(t, map[string]string{"data": dir, "tls.generate": "true", "tls.hosts": "store.example,10.1.2.3",
		"domains": "s3.example"})
	first, err := loadCertificate(c, now)
	if err != nil || !first.made {
		t.Fatalf("%+v, %v", first, err)
	}
	leaf, err := x509.ParseCertificate(first.pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"store.example", "10.1.2.3", "127.0.0.1", "s3.example", "bucket.s3.example"} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "store.example", CurrentTime: now}); err != nil {
		t.Errorf("who trusts the file does not trust the server: %v", err)
	}
	for _, name := range []string{"cert.pem", "key.pem"} {
		if info, err := os.Stat(filepath.Join(dir, "tls", name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// A copy of a data directory may have lost the modes.
	for name, mode := range map[string]os.FileMode{"tls": 0o755, "tls/key.pem": 0o644} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	again, err := loadCertificate(c, now.Add(time.Hour))
	for name, want := range map[string]os.FileMode{"tls": 0o700, "tls/key.pem": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, expected mode %o", name, info.Mode(), err, want)
		}
	}
	if err != nil || again.made || again.fingerprint != first.fingerprint || len(first.fingerprint) != 32*3-1 {
		t.Errorf("%+v, %v", again, err)
	}
	renamed, err := loadCertificate(settings(t, map[string]string{"data": dir, "tls.generate": "true",
		"tls.hosts": "other.example"}), now)
	if err != nil || !renamed.made || renamed.fingerprint == first.fingerprint {
		t.Errorf("a name is missing and the certificate was kept: %v", err)
	}
	late, err := loadCertificate(c, now.Add(certificateLife+time.Hour))
	if err != nil || !late.made {
		t.Errorf("an expired certificate was kept: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "tls", ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestACertificateThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	c := settings(t, map[string]string{"data": dir, "tls.cert": filepath.Join(dir, "missing.pem"),
		"tls.key": filepath.Join(dir, "missing.key")})
	if _, err := loadCertificate(c, time.Now()); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(err.Error(), "missing.pem") {
		t.Errorf("%v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cert.pem", "key.pem"} {
		if err := os.WriteFile(filepath.Join(dir, "tls", name), []byte("not PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c = settings(t, map[string]string{"data": dir, "tls.generate": "true"})
	if _, err := loadCertificate(c, time.Now()); !errs.Is(err, errs.Corrupt) {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "tls", "key.pem")); string(got) != "not PEM" {
		t.Error("a key that could not be read was replaced")
	}
}

// A certificate that no authority has signed is one that clients have to be given, whoever made it.
func TestASelfSignedCertificateIsKnown(t *testing.T) {
	dir := t.TempDir()
	made, err := loadCertificate(settings(t, map[string]string{"data": dir, "tls.generate": "true"}), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := loadCertificate(settings(t, map[string]string{"data": dir, "tls.cert": made.certFile,
		"tls.key": made.keyFile}), time.Now())
	if err != nil || !own.selfSigned() {
		t.Errorf("a self-signed certificate of the operator: %v", err)
	}
	own.pair.Leaf.RawIssuer = []byte("an authority")
	if own.selfSigned() {
		t.Error("a certificate of an authority counts as self-signed")
	}
}
