// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

const (
	access = "expressbench"
	secret = "expressbench-secret"
	region = "us-east-1"
)

// signer signs requests with version 4. A token makes the signature one of a session.
type signer struct{ access, secret, token, service string }

// head returns the request line and the signed headers of a request whose body has n bytes. The signature does not
// cover the body. The path must contain only characters that need no escape.
func (s *signer) head(method, host, path, query string, n int) []byte {
	now := time.Now().UTC()
	date, day := now.Format("20060102T150405Z"), now.Format("20060102")
	signed := "host;x-amz-content-sha256;x-amz-date"
	headers := "host:" + host + "\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:" + date + "\n"
	if s.token != "" {
		signed += ";x-amz-s3session-token"
		headers += "x-amz-s3session-token:" + s.token + "\n"
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{method, path, query, headers, signed, "UNSIGNED-PAYLOAD"}, "\n")))
	scope := day + "/" + region + "/" + s.service + "/aws4_request"
	key := []byte("AWS4" + s.secret)
	for _, part := range []string{day, region, s.service, "aws4_request"} {
		key = mac(key, part)
	}
	signature := mac(key, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+hex.EncodeToString(sum[:]))
	var b strings.Builder
	b.WriteString(method + " " + path)
	if query != "" {
		b.WriteString("?" + query)
	}
	b.WriteString(" HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: " + strconv.Itoa(n) + "\r\nX-Amz-Date: " + date +
		"\r\nX-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\n")
	if s.token != "" {
		b.WriteString("X-Amz-S3session-Token: " + s.token + "\r\n")
	}
	b.WriteString("Authorization: AWS4-HMAC-SHA256 Credential=" + s.access + "/" + scope + ", SignedHeaders=" + signed +
		", Signature=" + hex.EncodeToString(signature) + "\r\n\r\n")
	return []byte(b.String())
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
