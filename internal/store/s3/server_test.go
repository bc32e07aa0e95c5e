// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// server is a small S3 in memory that can be told to misbehave. It checks
// requests as far as a client of ours could get them wrong; signatures are checked against our real server
// elsewhere.
type server struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	objects map[string]stored
	uploads map[string]map[int][]byte
	dead    bool // completions lose their reply
	seen    []string
	noSums  bool // knows no checksums, and does not repeat the algorithm
	// odd, if not nil, may answer instead of the server: it returns true then.
	odd func(n int, w http.ResponseWriter, r *http.Request) bool
}

type stored struct {
	data []byte
	etag string
	head http.Header
}

func newServer(t testing.TB) *server {
	s := &server{t: t, objects: map[string]stored{}, uploads: map[string]map[int][]byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) put(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = stored{data: data, etag: fmt.Sprintf("%016x", checksum.Of(data))}
}

func (s *server) get(name string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	return o.data, ok
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *server) client(change func(*Options)) *Client {
	s.t.Helper()
	o := Options{Endpoint: s.URL, AccessKey: "a", SecretKey: "b", Connections: 4}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	c.wait = func(ctx context.Context, d time.Duration) error { return context.Cause(ctx) }
	s.t.Cleanup(func() { c.Close() })
	return c
}

func refuse(w http.ResponseWriter, status int, code, more string) {
	w.Header().Set("x-amz-request-id", "req-7")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>because</Message>%s</Error>", code, more)
}

// reset ends the connection of a request with a RST, after n bytes of a good beginning.
func reset(w http.ResponseWriter, header string, body []byte) {
	c, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	fmt.Fprint(buf, header)
	buf.Write(body)
	buf.Flush()
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Range"))
	n := len(s.seen)
	s.mu.Unlock()
	if s.odd != nil && s.odd(n, w, r) {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		s.list(w, name, q.Get("prefix"), q.Get("delimiter"), q.Get("continuation-token"))
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.give(w, r, name)
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.mu.Lock()
		id := fmt.Sprintf("up %d/+", len(s.uploads))
		s.uploads[id] = map[int][]byte{}
		s.mu.Unlock()
		if s.noSums && r.Header.Get("X-Amz-Checksum-Algorithm") != "" {
			refuse(w, 400, "InvalidArgument", "")
			return
		}
		if !s.noSums {
			w.Header().Set("X-Amz-Checksum-Algorithm", r.Header.Get("X-Amz-Checksum-Algorithm"))
		}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut:
		s.take(w, r, name, q.Get("uploadId"), q.Get("partNumber"))
	case r.Method == http.MethodPost:
		s.complete(w, r, name, q.Get("uploadId"))
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.uploads, q.Get("uploadId"))
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *server) give(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	o, ok := s.objects[name]
	s.mu.Unlock()
	if !ok {
		refuse(w, 404, "NoSuchKey", "")
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != `"`+o.etag+`"` {
		refuse(w, 412, "PreconditionFailed", "")
		return
	}
	w.Header().Set("ETag", `"`+o.etag+`"`)
	for k, v := range o.head {
		w.Header()[k] = v
	}
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && !s.noSums {
		w.Header().Set(trailerName, sumText(checksum.Of(o.data)))
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.data))
}

// unframe reads aws-chunked and compares its trailer.
func unframe(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "aws-chunked" {
		return io.ReadAll(r.Body)
	}
	in := bufio.NewReader(r.Body)
	var out []byte
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(line, "\r\n"), 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		if string(chunk[n:]) != "\r\n" {
			return nil, fmt.Errorf("a chunk ends with %q", chunk[n:])
		}
		out = append(out, chunk[:n]...)
	}
	rest, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	want := trailerName + ":" + sumText(checksum.Of(out)) + "\r\n\r\n"
	if string(rest) != want || r.Header.Get("X-Amz-Decoded-Content-Length") != strconv.Itoa(len(out)) {
		return nil, fmt.Errorf("the trailer is %q, expected %q", rest, want)
	}
	return out, nil
}

func (s *server) take(w http.ResponseWriter, r *http.Request, name, id, number string) {
	data, err := unframe(r)
	if err != nil {
		refuse(w, 400, "BadDigest", err.Error())
		return
	}
	if sum := r.Header.Get(trailerName); sum != "" {
		if s.noSums {
			refuse(w, 501, "NotImplemented", "")
			return
		}
		if sum != sumText(checksum.Of(data)) {
			refuse(w, 400, "BadDigest", "")
			return
		}
	}
	etag := fmt.Sprintf("%016x", checksum.Of(data))
	if !s.noSums {
		w.Header().Set(trailerName, sumText(checksum.Of(data)))
	}
	w.Header().Set("ETag", `"`+etag+`"`)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		if r.Header.Get("If-None-Match") == "*" && s.objects[name].etag != "" {
			refuse(w, 412, "PreconditionFailed", "")
			return
		}
		s.objects[name] = stored{data: data, etag: etag,
			head: http.Header{"Content-Type": r.Header["Content-Type"], "X-Amz-Meta-Who": r.Header["X-Amz-Meta-Who"]}}
		return
	}
	k, _ := strconv.Atoi(number)
	if s.uploads[id] == nil || k == 0 {
		refuse(w, 404, "NoSuchUpload", "")
		return
	}
	s.uploads[id][k] = data
}

func (s *server) complete(w http.ResponseWriter, r *http.Request, name, id string) {
	var x struct {
		Part []completePart
	}
	if err := xml.NewDecoder(r.Body).Decode(&x); err != nil {
		refuse(w, 400, "MalformedXML", "")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, ok := s.uploads[id]
	if !ok {
		refuse(w, 404, "NoSuchUpload", "")
		return
	}
	if r.Header.Get("If-None-Match") == "*" && s.objects[name].etag != "" {
		refuse(w, 412, "PreconditionFailed", "")
		return
	}
	var data []byte
	for i, p := range x.Part {
		if d, ok := parts[p.Number]; !ok || p.Number != i+1 || p.ETag != fmt.Sprintf(`"%016x"`, checksum.Of(d)) {
			refuse(w, 400, "InvalidPart", "")
			return
		}
		data = append(data, parts[p.Number]...)
	}
	if sum := r.Header.Get(trailerName); sum != "" && sum != sumText(checksum.Of(data)) {
		refuse(w, 400, "BadDigest", "")
		return
	}
	delete(s.uploads, id)
	s.objects[name] = stored{data: data, etag: fmt.Sprintf("%016x", checksum.Of(data))}
	if s.dead {
		s.dead = false
		reset(w, "", nil)
		return
	}
	w.Header().Set("x-amz-version-id", "v9")
	fmt.Fprintf(w, "\n\n<CompleteMultipartUploadResult><ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>",
		s.objects[name].etag)
}

func (s *server) list(w http.ResponseWriter, bucket, prefix, delimiter, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for k := range s.objects {
		if rest, ok := strings.CutPrefix(k, bucket+"/"); ok && strings.HasPrefix(rest, prefix) {
			keys = append(keys, rest)
		}
	}
	slices.Sort(keys)
	fmt.Fprint(w, "<ListBucketResult><EncodingType>url</EncodingType>")
	n, _ := strconv.Atoi(token)
	groups := map[string]bool{}
	for i, k := range keys[n:] {
		if i == 2 {
			fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", n+2)
			break
		}
		if j := strings.Index(k[len(prefix):], delimiter); delimiter != "" && j >= 0 {
			groups[k[:len(prefix)+j+1]] = true
			continue
		}
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>&quot;x&quot;</ETag><LastModified>2026-01-02T03:04:05Z</LastModified></Contents>", escape(k, true), len(s.objects[bucket+"/"+k].data))
	}
	for g := range groups {
		fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", escape(g, true))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func noise(n int64, seed byte) []byte {
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}
