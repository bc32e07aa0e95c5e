// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	access = "expressbench"
	secret = "expressbench-secret"
	region = "us-east-1"
)

// keys sign requests.
type keys struct{ access, secret, token, service string }

// bucket sends requests for one bucket, on one connection.
type bucket struct {
	endpoint, name string
	keys           keys
	key            []byte // signing key, and the day for which it was made
	day            string
	client         *http.Client
	ends           time.Time // of the session
}

// newBucket creates a bucket.
func newBucket(endpoint, name string, directory bool) (*bucket, error) {
	b := &bucket{endpoint: endpoint, name: name, keys: keys{access: access, secret: secret, service: "s3"},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}}}
	if directory {
		b.keys.service = "s3express"
		if err := b.renew(); err != nil {
			return nil, err
		}
	}
	return b, b.send(http.MethodPut, "", nil, http.StatusOK)
}

// renew begins a session.
func (b *bucket) renew() error {
	b.keys, b.day = keys{access: access, secret: secret, service: "s3express"}, ""
	body, err := b.do(http.MethodGet, "", "session=", nil, http.StatusOK)
	if err != nil {
		return err
	}
	var reply struct {
		Credentials struct{ SessionToken, SecretAccessKey, AccessKeyId string }
	}
	if err := xml.Unmarshal(body, &reply); err != nil {
		return err
	}
	c := reply.Credentials
	b.keys, b.day = keys{c.AccessKeyId, c.SecretAccessKey, c.SessionToken, "s3express"}, ""
	b.ends = time.Now().Add(4 * time.Minute)
	return nil
}

// send sends a request and expects a status.
func (b *bucket) send(method, key string, body []byte, want int) error {
	if b.keys.token != "" && time.Now().After(b.ends) {
		if err := b.renew(); err != nil {
			return err
		}
	}
	_, err := b.do(method, key, "", body, want)
	return err
}

func (b *bucket) do(method, key, query string, body []byte, want int) ([]byte, error) {
	path := "/" + b.name
	if key != "" {
		path += "/" + key
	}
	r, err := http.NewRequest(method, b.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.URL.RawQuery = query
	b.sign(r)
	reply, err := b.client.Do(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close() // it was read
	if err == nil && reply.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, path, reply.Status, text)
	}
	return text, err
}

// sign signs a request with version 4, without its body.
func (b *bucket) sign(r *http.Request) {
	now := time.Now().UTC()
	date, day := now.Format("20060102T150405Z"), now.Format("20060102")
	r.Header.Set("X-Amz-Date", date)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	signed := "host;x-amz-content-sha256;x-amz-date"
	headers := "host:" + r.URL.Host + "\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:" + date + "\n"
	if b.keys.token != "" {
		r.Header.Set("X-Amz-S3session-Token", b.keys.token)
		signed += ";x-amz-s3session-token"
		headers += "x-amz-s3session-token:" + b.keys.token + "\n"
	}
	canonical := strings.Join([]string{r.Method, (&url.URL{Path: r.URL.Path}).EscapedPath(), r.URL.RawQuery, headers, signed,
		"UNSIGNED-PAYLOAD"}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	scope := day + "/" + region + "/" + b.keys.service + "/aws4_request"
	if b.day != day {
		b.day, b.key = day, []byte("AWS4"+b.keys.secret)
		for _, part := range []string{day, region, b.keys.service, "aws4_request"} {
			b.key = mac(b.key, part)
		}
	}
	signature := mac(b.key, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+hex.EncodeToString(sum[:]))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+b.keys.access+"/"+scope+", SignedHeaders="+signed+
		", Signature="+hex.EncodeToString(signature))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// profile writes a processor profile of the server while it answers the requests of a row.
func (s *server) profile(r *row, requests int, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		reply, err := http.Get(s.console + "/debug/pprof/profile?seconds=5")
		if err != nil {
			done <- err
			return
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close() // it was read
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(r.name, " ", "-")+".pprof"), text, 0o644)
		}
		done <- err
	}()
	for i := 0; ; i++ {
		select {
		case err := <-done:
			return err
		default:
		}
		if err := r.do(i % requests); err != nil {
			return err
		}
	}
}
