// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/test/upstreams"
)

// client sends requests to one server: writes to one address, and reads to another one, which may be a proxy.
type client struct {
	writes, reads *s3.Sender
	bucket        string
	buffer        []byte
	join          *checksum.Joiner
}

func newClient(writes, reads, access, secret, bucket string) (*client, error) {
	c := &client{bucket: bucket, buffer: make([]byte, 256<<10), join: checksum.NewJoiner()}
	for _, s := range []struct {
		endpoint string
		sender   **s3.Sender
	}{{writes, &c.writes}, {reads, &c.reads}} {
		made, err := s3.NewSender(s3.SenderOptions{Endpoint: s.endpoint, Region: upstreams.Region,
			Credentials: s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret})})
		if err != nil {
			return nil, err
		}
		*s.sender = made
	}
	return c, nil
}

// write sends a request that changes something, and returns the reply's ETag and body.
func (c *client) write(ctx context.Context, method, key string, query url.Values, body []byte) (string, []byte, error) {
	r := &s3.Request{Method: method, Bucket: c.bucket, Key: key, Query: query, Header: http.Header{}}
	if body != nil {
		r.Body, r.Size = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := c.writes.Send(ctx, r)
	if err != nil {
		return "", nil, fmt.Errorf("%s %s/%s: %w", method, c.bucket, key, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.Header.Get("ETag"), text, err
}

func (c *client) makeBucket(ctx context.Context) error {
	_, _, err := c.write(ctx, http.MethodPut, "", nil, nil)
	return err
}

// put stores an object by one request, or in parts if it is larger than a part.
func (c *client) put(ctx context.Context, key string, data []byte, part int64) error {
	if int64(len(data)) <= part {
		_, _, err := c.write(ctx, http.MethodPut, key, nil, data)
		return err
	}
	_, text, err := c.write(ctx, http.MethodPost, key, url.Values{"uploads": {""}}, []byte{})
	if err != nil {
		return err
	}
	var made struct {
		UploadID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal(text, &made); err != nil {
		return err
	}
	var list strings.Builder
	number := 0
	for piece := range slices.Chunk(data, int(part)) {
		number++
		tag, _, err := c.write(ctx, http.MethodPut, key,
			url.Values{"partNumber": {strconv.Itoa(number)}, "uploadId": {made.UploadID}}, piece)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number, tag)
	}
	_, _, err = c.write(ctx, http.MethodPost, key, url.Values{"uploadId": {made.UploadID}},
		[]byte("<CompleteMultipartUpload>"+list.String()+"</CompleteMultipartUpload>"))
	return err
}

// read is one read of an object.
type read struct {
	first, whole time.Duration
	from         string // what the node says about it
}

// get reads an object and compares its checksum.
func (c *client) get(ctx context.Context, key string, size int64, sum uint64) (read, error) {
	began := time.Now()
	resp, err := c.reads.Send(ctx, &s3.Request{Method: http.MethodGet, Bucket: c.bucket, Key: key, Header: http.Header{}})
	if err != nil {
		return read{}, fmt.Errorf("read %s/%s: %w", c.bucket, key, err)
	}
	defer resp.Body.Close()
	out := read{from: resp.Header.Get("X-Nebulaio-Cache")}
	var got int64
	var have uint64
	for {
		n, err := resp.Body.Read(c.buffer)
		if n > 0 && got == 0 {
			out.first = time.Since(began)
		}
		got += int64(n)
		have = c.join.After(have, int64(n)) ^ checksum.Of(c.buffer[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return out, fmt.Errorf("read %s/%s: %w after %d bytes", c.bucket, key, err, got)
		}
	}
	out.whole = time.Since(began)
	if got != size || have != sum {
		return out, fmt.Errorf("read %s/%s: %d bytes that differ; expected %d", c.bucket, key, got, size)
	}
	return out, nil
}

// content returns bytes without a pattern, and their checksum.
func content(seed, size int64) ([]byte, uint64) {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(strconv.FormatInt(seed, 10)))).Read(b)
	return b, checksum.Of(b)
}
