// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// bucket sends requests for one bucket.
type bucket struct {
	host, name string
	signer     signer
	ends       time.Time // of the session
}

// newBucket creates a bucket.
func newBucket(endpoint, name string) (*bucket, error) {
	b := &bucket{host: strings.TrimPrefix(endpoint, "http://"), name: name,
		signer: signer{access: access, secret: secret, service: "s3"}}
	if err := b.renew(); err != nil {
		return nil, err
	}
	_, err := b.once(http.MethodPut, "", http.StatusOK)
	return b, err
}

// renew begins a session of a directory bucket, unless there is one that lasts for another two minutes.
func (b *bucket) renew() error {
	if !object.IsDirectory(b.name) || time.Until(b.ends) > 2*time.Minute {
		return nil
	}
	b.signer = signer{access: access, secret: secret, service: "s3express"}
	body, err := b.once(http.MethodGet, "session=", http.StatusOK)
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
	b.signer = signer{access: c.AccessKeyId, secret: c.SecretAccessKey, token: c.SessionToken, service: "s3express"}
	b.ends = time.Now().Add(4 * time.Minute) // the session itself lasts 5 minutes
	return nil
}

// once sends a request for the bucket itself on a connection of its own.
func (b *bucket) once(method, query string, want int) ([]byte, error) {
	s, err := dial(b.host)
	if err != nil {
		return nil, err
	}
	defer s.close()
	err = s.do(request{method: method, text: b.signer.head(method, b.host, "/"+b.name, query, 0), want: want, size: -1})
	return s.body, err
}

// keysOfStream is the number of keys that one stream reads and writes in turn.
const keysOfStream = 16

// work holds connections with their signed requests.
type work struct {
	streams  []*stream
	requests [][]request // by stream
}

// prepare signs the requests of a row and opens their connections, so that the clock runs for the requests alone.
func (b *bucket) prepare(method string, o *options) (*work, error) {
	if err := b.renew(); err != nil {
		return nil, err
	}
	w := &work{}
	content := bytes.Repeat([]byte("nebulaio"), o.Size/8+1)[:o.Size]
	for i := range o.Streams {
		s, err := dial(b.host)
		if err != nil {
			w.close()
			return nil, err
		}
		w.streams = append(w.streams, s)
		var list []request
		for k := range keysOfStream {
			r := request{method: method, want: http.StatusOK, size: -1}
			path := "/" + b.name + "/s" + strconv.Itoa(i) + "/k" + strconv.Itoa(k)
			if method == http.MethodPut {
				r.text = append(b.signer.head(method, b.host, path, "", o.Size), content...)
			} else {
				r.text, r.size = b.signer.head(method, b.host, path, "", 0), o.Size
			}
			list = append(list, r)
		}
		w.requests = append(w.requests, list)
	}
	return w, nil
}

// send sends n requests on each connection.
func (w *work) send(n int) error {
	failures := make([]error, len(w.streams))
	var wg sync.WaitGroup
	for i, s := range w.streams {
		wg.Go(func() {
			for j := 0; j < n && failures[i] == nil; j++ {
				failures[i] = s.do(w.requests[i][j%keysOfStream])
			}
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}

func (w *work) close() {
	for _, s := range w.streams {
		s.close()
	}
}

// request is a signed request with its expected reply.
type request struct {
	method string
	text   []byte // header and body
	want   int    // status
	size   int    // bytes of the reply's body; -1 means any
}

// stream is one kept-alive connection. Its client is small, so that it takes little of the processors from the server.
type stream struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte // of the last reply
}

func dial(host string) (*stream, error) {
	c, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	return &stream{conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

func (s *stream) close() { _ = s.conn.Close() } // nothing is under way

// do sends a request and reads its whole reply.
func (s *stream) do(r request) error {
	if _, err := s.conn.Write(r.text); err != nil {
		return err
	}
	reply, err := http.ReadResponse(s.in, &http.Request{Method: r.method})
	if err != nil {
		return err
	}
	b := bytes.NewBuffer(s.body[:0])
	_, err = io.Copy(b, reply.Body)
	_ = reply.Body.Close() // it was read
	s.body = b.Bytes()
	first, _, _ := strings.Cut(string(r.text[:min(len(r.text), 200)]), "\r")
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", first, err)
	case reply.StatusCode != r.want:
		return fmt.Errorf("%s: %s: %s", first, reply.Status, s.body)
	case r.size >= 0 && len(s.body) != r.size:
		return fmt.Errorf("%s: %d bytes, expected %d", first, len(s.body), r.size)
	}
	return nil
}
