// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/node"
)

// TestSIGHUPReloads sends the signal of systemctl reload to a server's process: before there is anything to reload it
// goes on, and then it takes a certificate that another server made.
func TestSIGHUPReloads(t *testing.T) {
	dir := t.TempDir()
	made := startServer(t, filepath.Join(dir, "other"), []string{"NEBULAIO_TLS_GENERATE=true"})
	if code := made.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, made.log)
	}
	again := startServer(t, filepath.Join(dir, "another"), []string{"NEBULAIO_TLS_GENERATE=true"})
	if code := again.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, again.log)
	}
	live := filepath.Join(dir, "live")
	if err := os.Symlink(filepath.Join(dir, "other", "tls"), live); err != nil {
		t.Fatal(err)
	}
	p := startServer(t, filepath.Join(dir, "store"), nil, "--tls-cert", filepath.Join(live, "cert.pem"), "--tls-key",
		filepath.Join(live, "key.pem"))
	if p.Fingerprint != made.Fingerprint {
		t.Fatalf("%s, expected %s", p.Fingerprint, made.Fingerprint)
	}
	if err := os.Symlink(filepath.Join(dir, "another", "tls"), live+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(live+".new", live); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, "the new certificate", func() bool { return strings.Contains(p.log.String(), again.Fingerprint) })
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.Endpoint, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

// TestLinesToPaste: what is printed for a shell is one word of it, whatever it holds.
func TestLinesToPaste(t *testing.T) {
	for text, want := range map[string]string{"/srv/a b": `'/srv/a b'`, "it's": `'it'\''s'`,
		"http://127.0.0.1:9000": "http://127.0.0.1:9000", "": "''", "$(id)": "'$(id)'"} {
		if got := shellWord(text); got != want {
			t.Errorf("%q is written %s, expected %s", text, got, want)
		}
	}
	var b strings.Builder
	printStarted(&b, node.Started{Endpoint: "http://h:1", AccessKey: "nebulaio-root", Region: "r",
		Keys: "/srv/my data/root.env"})
	for _, want := range []string{"secret    in /srv/my data/root.env", "\n  . '/srv/my data/root.env'\n",
		`AWS_SECRET_ACCESS_KEY="$NEBULAIO_ROOT_PASSWORD"`, "s3 cp - s3://first/hello.txt"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
