// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestOverTLS(t *testing.T) {
	s := newServer(t)
	s.Server.Close()
	s.Server = httptest.NewUnstartedServer(s)
	s.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Server.EnableHTTP2 = true
	s.Server.StartTLS()
	t.Cleanup(s.Server.Close)
	proto := ""
	s.odd = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		proto = r.Proto
		return false
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	data := noise(1<<20+7, 21)
	for name, change := range map[string]func(o *Options){
		"CA file": func(o *Options) { o.CAFile = ca }, "any certificate": func(o *Options) { o.InsecureTLS = true },
		"signed": func(o *Options) { o.CAFile, o.SignBodies = ca, true },
	} {
		c := s.client(change)
		if _, err := upload(t, c, Put{Bucket: "b", Key: "k"}, data, 300_000); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, _, err := readRange(c, 5, 900_000); err != nil || !bytes.Equal(got, data[5:900_005]) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if proto != "HTTP/1.1" {
		t.Errorf("spoke %s", proto)
	}
	_, err := s.client(nil).Head(bg, "b", "k", "")
	if !errs.Is(err, errs.Permission) || !strings.Contains(errs.FixOf(err), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
	plain := newServer(t)
	_, err = plain.client(func(o *Options) { o.Endpoint = strings.Replace(plain.URL, "http:", "https:", 1) }).Head(bg, "b",
		"k", "")
	if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.FixOf(err), "http://") {
		t.Errorf("a server without TLS: %v", err)
	}
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Endpoint: s.URL, CAFile: ca}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a file without certificates: %v", err)
	}
}
