// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// makePair writes a new certificate and its key into a directory, as cert.pem and key.pem.
func makePair(t testing.TB, dir string, at time.Time) {
	t.Helper()
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = generate(dir, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), []string{"127.0.0.1"}, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// running is a server in this process.
type running struct {
	Started
	log    *logged
	reload chan struct{}
	notify *net.UnixConn
	stop   func() error
}

func runServer(t *testing.T, flags map[string]string) *running {
	t.Helper()
	flags["address"], flags["console_address"], flags["drain_timeout"] = "127.0.0.1:0", "127.0.0.1:0", "1s"
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{log: &logged{}, reload: make(chan struct{}), notify: manager}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan Started, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: settings(t, flags), Version: "test", Log: r.log, NotifySocket: socket,
			Reload:  r.reload,
			Started: func(s Started) { started <- s }})
	}()
	select {
	case r.Started = <-started:
	case err := <-ended:
		t.Fatalf("the server did not start: %v\n%s", err, r.log)
	}
	stopped := false
	r.stop = func() error {
		stopped = true
		cancel()
		defer manager.Close()
		return <-ended
	}
	t.Cleanup(func() {
		if !stopped {
			_ = r.stop()
		}
	})
	return r
}

// told is the next state that the server told its service manager.
func (r *running) told(t *testing.T) string {
	t.Helper()
	b := make([]byte, 4096)
	n, err := r.notify.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// handshake connects to an address and returns the certificate that it answers with.
func handshake(t *testing.T, url string) (*tls.Conn, string) {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestACertificateIsTakenWithoutARestart swaps the files as Kubernetes does, asks for a reload as systemd does, and
// looks at both addresses with real handshakes.
func TestACertificateIsTakenWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	makePair(t, filepath.Join(dir, "v1"), time.Now())
	makePair(t, filepath.Join(dir, "v2"), time.Now())
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	r := runServer(t, map[string]string{"data": filepath.Join(dir, "store"),
		"tls.cert": filepath.Join(dir, "..data", "cert.pem"), "tls.key": filepath.Join(dir, "..data", "key.pem")})
	if got := r.told(t); !strings.HasPrefix(got, "READY=1\n") {
		t.Fatalf("the service manager was told %q", got)
	}
	conn, first := handshake(t, r.Endpoint)

	link("v2")
	r.reload <- struct{}{}
	if got := r.told(t); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("the service manager was told %q", got)
	}
	if got := r.told(t); got != "READY=1" {
		t.Errorf("the service manager was told %q", got)
	}
	_, second := handshake(t, r.Endpoint)
	if _, console := handshake(t, r.Console); second == first || console != second {
		t.Errorf("certificates %s, then %s, and %s on the console", first, second, console)
	}
	// The connection of before goes on.
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || reply.StatusCode != http.StatusForbidden {
		t.Errorf("a connection from before the reload: %v, %v", reply, err)
	}

	// A broken pair leaves the old one in use, and says why and what to do.
	makePair(t, filepath.Join(dir, "v3"), time.Now())
	if err := os.WriteFile(filepath.Join(dir, "v3", "key.pem"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	link("v3")
	r.reload <- struct{}{}
	r.told(t)
	r.told(t)
	if _, third := handshake(t, r.Endpoint); third != second {
		t.Errorf("a broken pair replaced the certificate")
	}
	for _, want := range []string{"the new certificate cannot be used; the old one stays in use",
		"failed to find any PEM data in key input", "(fix: tls.cert and tls.key name PEM files that belong together)"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, r.log)
		}
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// TestChangedFilesAreFound looks at the files as the server does now and then by itself.
func TestChangedFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	makePair(t, dir, now)
	log := &logged{}
	c := settings(t, map[string]string{"data": dir, "tls.cert": filepath.Join(dir, "cert.pem"),
		"tls.key": filepath.Join(dir, "key.pem")})
	s := &server{Options: Options{Config: c}, log: newLog(log, "info", "json", false)}
	cert, err := loadCertificate(c, now)
	if err != nil {
		t.Fatal(err)
	}
	s.cert.Store(cert)
	r := &reloader{c: c, cert: s.cert.Load, use: s.cert.Store}
	r.seen = r.marks()
	used := func() string { return s.cert.Load().fingerprint }
	first := used()

	s.reload(r, now, false)
	if used() != first || log.String() != "" {
		t.Errorf("something was done without a change: %s", log)
	}
	// The key is replaced, its certificate follows: what is between the two is not worth a line.
	next := filepath.Join(dir, "next")
	makePair(t, next, now)
	move := func(name string) {
		t.Helper()
		if err := os.Rename(filepath.Join(next, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	move("key.pem")
	s.reload(r, now, false)
	if used() != first || log.String() != "" {
		t.Errorf("half of a change: %s", log)
	}
	move("cert.pem")
	s.reload(r, now, false)
	second := used()
	if second == first || !strings.Contains(log.String(), "took a new certificate") {
		t.Errorf("a changed certificate was not taken: %s", log)
	}
	// What stays broken is logged once, and the files are tried again although they do not change.
	old := now.Add(-2 * certificateLife)
	makePair(t, dir, old)
	for range 4 {
		s.reload(r, now, false)
	}
	if n := strings.Count(log.String(), "the old one stays"); n != 1 || used() != second ||
		!strings.Contains(log.String(), "expired at") {
		t.Errorf("%d lines on an expired certificate: %s", n, log)
	}
	s.reload(r, old.Add(time.Hour), false)
	if used() == second {
		t.Error("a certificate that has become good was not tried again")
	}
	// Missing files leave the old pair.
	third := used()
	if err := os.Remove(filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	s.reload(r, old.Add(time.Hour), true)
	if used() != third || !strings.Contains(log.String(), "key.pem: no such file") {
		t.Errorf("a missing key: %s", log)
	}
}
