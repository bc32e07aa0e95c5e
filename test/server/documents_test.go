// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/test/effort"
)

// peak returns the largest memory of the server so far, in bytes.
func (s *server) peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestDocumentsCostLittle sends many long documents at once. A single document of 14 MiB once took 512 MiB.
func TestDocumentsCostLittle(t *testing.T) {
	effort.Slow(t)
	s := start(t, t.TempDir())
	c := bucketOn(t, s, "documents")
	send := func(keys int) (int, string, error) {
		doc := []byte("<Delete>" + strings.Repeat("<Object><Key>"+strings.Repeat("k", 20)+"</Key></Object>", keys) +
			"</Delete>")
		u, err := c.Presign(t.Context(), http.MethodPost, "documents", "", time.Minute, url.Values{"delete": {""}})
		if err != nil {
			return 0, "", err
		}
		req, err := http.NewRequest(http.MethodPost, u.String(), bytes.NewReader(doc))
		if err != nil {
			return 0, "", err
		}
		sum := md5.Sum(doc)
		req.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), err
	}
	if status, text, err := send(1000); err != nil || status != http.StatusOK {
		t.Fatalf("1,000 keys: %d %s %v", status, text, err)
	}
	before := s.peak(t)
	var all sync.WaitGroup
	for i := range 12 {
		keys, code := 300_000, "MaxMessageLengthExceeded" // 14 MiB
		if i%2 == 0 {
			keys, code = 80_000, "MalformedXML" // just below 4 MiB
		}
		all.Go(func() {
			status, text, err := send(keys)
			if err != nil && code == "MaxMessageLengthExceeded" {
				return // the connection was closed while the client still sent what was refused
			}
			if err != nil || status != http.StatusBadRequest && status != http.StatusServiceUnavailable ||
				status == http.StatusBadRequest && !strings.Contains(text, code) {
				t.Errorf("%d keys: %d %.200s %v, expected 400 %s or 503", keys, status, text, err, code)
			}
		})
	}
	all.Wait()
	if grown := s.peak(t) - before; grown > 192<<20 {
		t.Errorf("12 long documents at once cost %d MiB, expected at most 192", grown>>20)
	}
	if status, text, err := send(1000); err != nil || status != http.StatusOK {
		t.Errorf("1,000 keys afterwards: %d %s %v", status, text, err)
	}
	s.stop(t)
}
