// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// part is one written part, in the form of the request that completes an upload.
type part struct {
	XMLName xml.Name `xml:"Part"`
	Number  int      `xml:"PartNumber"`
	ETag    string   `xml:"ETag"`
	Sums    []any    `xml:",omitempty"`
}

type namedSum struct {
	XMLName xml.Name
	Text    string `xml:",chardata"`
}

// addParts writes a version as a multipart upload, with the parts that it has at the source.
func (s *Server) addParts(ctx context.Context, bucket string, v *Version, src Source, more http.Header,
	begun func(id string) error) (out Added, err error) {
	id, err := s.begin(ctx, bucket, v)
	if err != nil {
		return Added{}, err
	}
	done := false
	defer func() {
		if !done {
			_ = s.Abort(context.WithoutCancel(ctx), bucket, v.Key, id) // the server removes it later
		}
	}()
	if begun != nil {
		if err := begun(id); err != nil {
			return Added{}, err
		}
	}
	sizes := v.Parts
	if len(sizes) == 0 {
		sizes = cut(v.Size)
	}
	digest := md5.New()
	parts := make([]part, 0, len(sizes))
	var sums [][]byte
	var off int64
	for i, size := range sizes {
		sum := md5.New()
		p, err := s.putPart(ctx, bucket, v, id, i+1, size, src, off, sum)
		if err != nil {
			return Added{}, err
		}
		parts, off = append(parts, p), off+size
		sums = append(sums, sum.Sum(nil))
		_, _ = digest.Write(sums[i]) // writing to a hash never fails
	}
	again := false
	if fmt.Sprintf("%x-%d", digest.Sum(nil), len(sizes)) != v.ETag || !v.Summed {
		again = true
		if err := readAgain(ctx, src, s3.URL(bucket, v.Key), sizes, sums); err != nil {
			return Added{}, err
		}
	}
	out, err = s.complete(ctx, bucket, v, id, parts, more)
	done = err == nil
	out.Again = again
	return out, err
}

// cut divides content without known parts.
func cut(size int64) []int64 {
	var out []int64
	for part := max(madePart, (size+9999)/10000); size > 0; size -= out[len(out)-1] {
		out = append(out, min(size, part))
	}
	return out
}

func (s *Server) begin(ctx context.Context, bucket string, v *Version) (string, error) {
	h := v.Header.Clone()
	if v.SumName != "" {
		h.Set("X-Amz-Checksum-Algorithm", strings.ToUpper(v.SumName))
		h.Set("X-Amz-Checksum-Type", v.SumType)
	}
	body, _, err := s.Admin().Ask(ctx, "begin upload of", s3.Request{Method: http.MethodPost, Bucket: bucket, Key: v.Key,
		Query: url.Values{"uploads": {""}}, Header: h}, s3.MostSetting)
	if err != nil {
		return "", err
	}
	var x struct {
		XMLName xml.Name `xml:"InitiateMultipartUploadResult"`
		ID      string   `xml:"UploadId"`
	}
	if err := xml.Unmarshal(body, &x); err != nil || x.ID == "" {
		return "", errs.New(errs.Corrupt, "begin upload of", s3.URL(bucket, v.Key), "the reply names no upload").
			WithFix("check that the endpoint is one of S3")
	}
	return x.ID, nil
}

func (s *Server) putPart(ctx context.Context, bucket string, v *Version, id string, number int, size int64, src Source,
	off int64, sum hash.Hash) (part, error) {
	r := &s3.Request{Method: http.MethodPut, Bucket: bucket, Key: v.Key, Size: size,
		Query: url.Values{"partNumber": {strconv.Itoa(number)}, "uploadId": {id}}}
	if v.SumName != "" {
		r.Header = http.Header{"X-Amz-Sdk-Checksum-Algorithm": {strings.ToUpper(v.SumName)}}
	}
	reply, err := s.send(ctx, r, src, off, sum)
	if err != nil {
		return part{}, err
	}
	etag := strings.Trim(reply.Get("ETag"), `"`)
	if got, err := hex.DecodeString(etag); err == nil && len(got) == md5.Size && !bytes.Equal(got, sum.Sum(nil)) {
		return part{}, errs.New(errs.Corrupt, "put", s3.URL(bucket, v.Key),
			fmt.Sprintf("part %d was received with the MD5 %s, sent with %x", number, etag, sum.Sum(nil)))
	}
	p := part{Number: number, ETag: `"` + etag + `"`}
	if got := reply.Get("X-Amz-Checksum-" + v.SumName); v.SumName != "" && got != "" {
		p.Sums = []any{namedSum{xml.Name{Local: "Checksum" + strings.ToUpper(v.SumName)}, got}}
	}
	return p, nil
}

// readAgain reads the content a second time, and compares it with the MD5s of the first time.
func readAgain(ctx context.Context, src Source, name string, sizes []int64, sums [][]byte) error {
	var off int64
	for i, size := range sizes {
		sum, err := readSum(ctx, src, name, off, size)
		if err != nil {
			return err
		}
		if !bytes.Equal(sum, sums[i]) {
			return errs.New(errs.Corrupt, "get", name,
				fmt.Sprintf("part %d was read twice with different content: MD5 %x and %x", i+1, sums[i], sum)).
				WithFix("check the disks and the network of the source")
		}
		off += size
	}
	return nil
}

// readSum reads a range of the content and returns its MD5.
func readSum(ctx context.Context, src Source, name string, off, n int64) ([]byte, error) {
	body, err := src.Open(ctx, off, n)
	if err != nil {
		return nil, err
	}
	sum := md5.New()
	read, err := io.Copy(sum, body)
	_ = body.Close() // nothing was written to it
	if err == nil && read != n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, errs.Wrap("get", name, err)
	}
	return sum.Sum(nil), nil
}

func (s *Server) complete(ctx context.Context, bucket string, v *Version, id string, parts []part,
	more http.Header) (Added, error) {
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Parts   []part
	}{Parts: parts})
	name := s3.URL(bucket, v.Key)
	if err != nil {
		return Added{}, errs.Wrap("complete", name, err)
	}
	resp, err := s.sender.Send(ctx, &s3.Request{Method: http.MethodPost, Bucket: bucket, Key: v.Key, Text: text,
		Query: url.Values{"uploadId": {id}}, Header: joined(http.Header{"Content-Type": {"application/xml"}}, more)})
	if err != nil {
		return Added{}, errs.Wrap("complete", name, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, s3.MostSetting))
	_ = resp.Body.Close()
	if err != nil {
		return Added{}, errs.Wrap("complete", name, err)
	}
	if f, failed := s3.FaultIn(body); failed {
		return Added{}, errs.Wrap("complete", name, f)
	}
	var x struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return Added{}, errs.New(errs.Corrupt, "complete", name, "the reply is no result of an upload")
	}
	return Added{Version: resp.Header.Get("X-Amz-Version-Id"), ETag: strings.Trim(x.ETag, `"`)}, nil
}

// Abort ends a multipart upload. An upload that does not exist is no error.
func (s *Server) Abort(ctx context.Context, bucket, key, id string) error {
	_, _, err := s.Admin().Ask(ctx, "abort upload of", s3.Request{Method: http.MethodDelete, Bucket: bucket, Key: key,
		Query: url.Values{"uploadId": {id}}}, s3.MostSetting)
	if s3.CodeOf(err) == "NoSuchUpload" {
		return nil
	}
	return err
}
