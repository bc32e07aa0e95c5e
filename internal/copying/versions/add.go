// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Source opens the content of the version that is copied.
type Source interface {
	// Open returns a reader of n bytes of the content, beginning at byte off. If the server breaks off early, the reader
	// returns an error. The caller closes the reader.
	Open(ctx context.Context, off, n int64) (io.ReadCloser, error)
}

// Added is a version that was added to a server.
type Added struct {
	Version string // identifier; empty if the server names none
	ETag    string
	// Again reports whether the content was read twice, because the ETag of the source is no digest of the content.
	Again bool
}

const (
	// mostPut is the size in bytes above which a version without known parts is written in parts.
	mostPut = 4 << 30
	// madePart is the size of such a part.
	madePart = 512 << 20
)

// Content returns a source that reads the content of a version from the server. The reads are pinned to the ETag of the
// version.
func (s *Server) Content(bucket string, e Entry) Source { return &remote{s, bucket, e} }

type remote struct {
	s      *Server
	bucket string
	e      Entry
}

func (r *remote) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if n == 0 {
		return http.NoBody, nil
	}
	h := http.Header{"If-Match": {`"` + r.e.ETag + `"`}}
	if off > 0 || n < r.e.Size {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	}
	resp, err := r.s.sender.Send(ctx, &s3.Request{Method: http.MethodGet, Bucket: r.bucket, Key: r.e.Key,
		Query: versionQuery(&r.e), Header: h})
	name := s3.URL(r.bucket, r.e.Key)
	if err != nil {
		if f := (*s3.Fault)(nil); errors.As(err, &f) && f.Status == http.StatusPreconditionFailed {
			return nil, object.Fail("get", name, object.ErrChanged, "")
		}
		return nil, errs.Wrap("get", name, err)
	}
	if resp.ContentLength != n {
		_ = resp.Body.Close()
		return nil, errs.New(errs.Corrupt, "get", name,
			fmt.Sprintf("the reply has %d bytes, expected %d", resp.ContentLength, n))
	}
	return resp.Body, nil
}

// Add writes a version and its content to a bucket. The parameter more has further headers of the request that makes
// the version visible. If the version is uploaded in parts, Add calls begun with the identifier of the upload before it
// writes a part, and fails if begun fails; begun may be nil.
//
// The server compares the content with the MD5 that the ETag of the source is. If the ETag is another kind of digest,
// Add reads the content twice and compares both. Add does not retry a failed request: the caller finds out what
// happened.
func (s *Server) Add(ctx context.Context, bucket string, v *Version, src Source, more http.Header,
	begun func(id string) error) (Added, error) {
	if len(v.Parts) > 0 || v.Size > mostPut {
		return s.addParts(ctx, bucket, v, src, more, begun)
	}
	h := joined(v.Header, more)
	if v.SumName != "" && v.SumType == "FULL_OBJECT" {
		h.Set("X-Amz-Checksum-"+v.SumName, v.Sum)
	}
	want := ""
	if sum, err := hex.DecodeString(v.ETag); err == nil && len(sum) == md5.Size && v.Summed {
		want = base64.StdEncoding.EncodeToString(sum)
	}
	again := false
	if want == "" && h.Get("X-Amz-Checksum-"+v.SumName) == "" {
		again = true // nothing tells what the content is: the server has to receive what the first read gives
		sum, err := readSum(ctx, src, s3.URL(bucket, v.Key), 0, v.Size)
		if err != nil {
			return Added{}, err
		}
		want = base64.StdEncoding.EncodeToString(sum)
	}
	for ; ; again = true {
		if want != "" {
			h.Set("Content-Md5", want)
		}
		sum := md5.New()
		reply, err := s.send(ctx, &s3.Request{Method: http.MethodPut, Bucket: bucket, Key: v.Key, Header: h, Size: v.Size},
			src, 0, sum)
		if err == nil {
			a := added(reply)
			a.Again = again
			return a, nil
		}
		read := base64.StdEncoding.EncodeToString(sum.Sum(nil))
		if again || want == "" || s3.CodeOf(err) != "BadDigest" || read == want {
			return Added{}, err
		}
		want = read // the ETag may be no MD5: the second read has to give the same content
	}
}

func added(h http.Header) Added {
	return Added{Version: h.Get("X-Amz-Version-Id"), ETag: strings.Trim(h.Get("ETag"), `"`)}
}

func joined(a, b http.Header) http.Header {
	h := a.Clone()
	for name, values := range b {
		h[name] = values
	}
	return h
}

// AddMarker adds a delete marker. more has further headers of the request.
func (s *Server) AddMarker(ctx context.Context, bucket, key string, more http.Header) (Added, error) {
	resp, err := s.sender.Send(ctx, &s3.Request{Method: http.MethodDelete, Bucket: bucket, Key: key, Header: more})
	if err != nil {
		return Added{}, errs.Wrap("delete", s3.URL(bucket, key), err)
	}
	_ = resp.Body.Close()
	return added(resp.Header), nil
}

// send sends a request with r.Size bytes of content, which begin at byte off of the source, and returns the header of
// the reply. sum takes the content.
func (s *Server) send(ctx context.Context, r *s3.Request, src Source, off int64, sum hash.Hash) (http.Header, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := src.Open(ctx, off, r.Size)
	if err != nil {
		return nil, err
	}
	name := s3.URL(r.Bucket, r.Key)
	stall := s.Stall
	if stall == 0 {
		stall = time.Minute
	}
	w := &watched{ReadCloser: body, sum: sum, left: r.Size, stall: stall}
	w.timer = time.AfterFunc(stall, func() {
		cancel(errs.New(errs.IO, "copy", name, "no byte was moved for "+stall.String()).WithFix("try again"))
	})
	defer w.timer.Stop()
	r.Body = w
	resp, err := s.sender.Send(ctx, r)
	if w.failed != nil {
		err = errs.Wrap("get", name, w.failed) // the server that sends is at fault, not the one that receives
	}
	if err != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return nil, errs.Wrap("put", name, err)
	}
	_ = resp.Body.Close()
	return resp.Header, nil
}

// watched is content on its way. It ends with an error if the source breaks off, so that a short body never passes.
type watched struct {
	io.ReadCloser
	sum    hash.Hash
	left   int64
	stall  time.Duration
	timer  *time.Timer
	failed error // the source failed
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.timer.Reset(w.stall)
	_, _ = w.sum.Write(p[:n]) // writing to a hash never fails
	w.left -= int64(n)
	if err == io.EOF && w.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		w.failed = err
	}
	return n, err
}
