// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"crypto/md5" //nolint:gosec // ETags are MD5 sums
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// server is a small S3 server with the objects of one bucket, which can be told to misbehave.
type server struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	objects map[string][]byte
	kind    string // checksum of replies: "crc64nvme", "crc32c", "crc32", "md5" for the ETag, or "" for none
	// odd, if not nil, may answer a GET instead: it returns true then. The number counts the GETs of the server from 1.
	odd func(w http.ResponseWriter, r *http.Request, number int) bool
	// shown, if not nil, changes the content after the checksums were computed.
	shown func(data []byte) []byte
	gets  int
}

func newServer(t testing.TB) *server {
	s := &server{t: t, objects: map[string][]byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// remote returns a key of the server, with a client of its own.
func (s *server) remote(key string) Remote {
	s.t.Helper()
	c, err := s3.New(s3.Options{Endpoint: s.URL, Retries: 3})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return Remote{Client: c, Bucket: "b", Key: key}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	key := strings.TrimPrefix(r.URL.Path, "/b/")
	data, ok := s.objects[key]
	odd, kind, shown := s.odd, s.kind, s.shown
	number := 0
	if r.Method == http.MethodGet {
		s.gets++
		number = s.gets
	}
	s.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	sums(w.Header(), kind, data)
	if number > 0 && odd != nil && odd(w, r, number) {
		return
	}
	if shown != nil {
		data = shown(append([]byte(nil), data...))
	}
	give(w, r, data)
}

// sums sets the headers that tell the checksum of an object.
func sums(h http.Header, kind string, data []byte) {
	h.Set("ETag", `"not-a-sum"`)
	name, sum := "", []byte(nil)
	switch kind {
	case "crc64nvme":
		name, sum = kind, binary.BigEndian.AppendUint64(nil, checksum.Of(data))
	case "crc32c":
		name, sum = kind, binary.BigEndian.AppendUint32(nil, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	case "crc32":
		name, sum = kind, binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data))
	case "md5":
		m := md5.Sum(data) //nolint:gosec // as above
		h.Set("ETag", `"`+hex.EncodeToString(m[:])+`"`)
	}
	if name != "" {
		h.Set("x-amz-checksum-"+name, base64.StdEncoding.EncodeToString(sum))
		h.Set("x-amz-checksum-type", "FULL_OBJECT")
	}
}

// give sends the range that a request asks for.
func give(w http.ResponseWriter, r *http.Request, data []byte) {
	lo, hi := 0, len(data)-1
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &lo, &hi); n == 2 {
		hi = min(hi, len(data)-1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", lo, hi, len(data)))
		w.Header().Set("Content-Length", strconv.Itoa(hi-lo+1))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	if r.Method == http.MethodGet {
		w.Write(data[lo : hi+1])
	}
}

// noise returns n bytes that do not repeat.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n+8)
	src := rand.NewPCG(seed, 7)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], src.Uint64())
	}
	return b[:n]
}
