// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/console/inside"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// maxUpload is the largest object that one request uploads, in bytes. Larger objects are uploaded in parts.
const maxUpload = 64 << 20

// maxPart is the largest part of an upload in bytes, as in S3.
const maxPart = 5 << 30

// copySize is the size of the pieces in which content is copied, in bytes.
const copySize = 256 << 10

// download answers GET buckets/{bucket}/content. The browser always saves the content and never shows it, whatever its
// type: a document of a user must not run in the origin of the console.
func (c contentPage) download() (any, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	query := url.Values{}
	if v := c.query("version"); v != "" {
		query.Set("versionId", v)
	}
	r := request(http.MethodGet, c.name(), key, query, nil)
	for _, name := range []string{"Range", "If-Match", "If-Unmodified-Since"} {
		if v := c.r.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	resp, err := c.S3.Do(c.r.Context(), c.as(), r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	h := c.w.Header()
	for _, name := range []string{"Content-Length", "Content-Range", "Accept-Ranges", "ETag", "Last-Modified"} {
		if v := resp.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", attachment(key))
	c.w.WriteHeader(resp.StatusCode)
	if c.r.Method == http.MethodHead {
		return replied{}, nil
	}
	if err := c.copy(c.w, resp.Body); err != nil {
		// The reply has begun, so only a broken connection tells the browser that the content is not whole.
		panic(http.ErrAbortHandler)
	}
	return replied{}, nil
}

// attachment returns the header with which a browser saves content under the last part of its key.
func attachment(key string) string {
	name := path.Base("/" + strings.TrimRight(key, "/"))
	if name == "/" || name == "." {
		name = "object"
	}
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\\' || r == '/' {
			return '_'
		}
		return r
	}, name)
	return "attachment; filename*=UTF-8''" + s3.EscapePath(name)
}

// copy copies content piece by piece, and gives the client time for each piece.
func (c contentPage) copy(w io.Writer, r io.Reader) error {
	buf := make([]byte, copySize)
	for {
		c.extend()
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// steadyBody is the body of an upload. Each read gives the client more time to send.
type steadyBody struct {
	c contentPage
	r io.Reader
}

func (b *steadyBody) Read(p []byte) (int, error) {
	b.c.extend()
	return b.r.Read(p)
}

// body returns the body of a request with content, which has to name its size.
func (c contentPage) body(most int64) (io.Reader, int64, error) {
	n := c.r.ContentLength
	switch {
	case n < 0:
		return nil, 0, &failed{http.StatusLengthRequired, "MissingContentLength", "the request does not name its size", ""}
	case n > most:
		return nil, 0, &failed{http.StatusRequestEntityTooLarge, "EntityTooLarge", "the content has " +
			strconv.FormatInt(n, 10) + " bytes; expected at most " + strconv.FormatInt(most, 10), "upload it in parts"}
	}
	return &steadyBody{c, io.LimitReader(c.r.Body, n)}, n, nil
}

// stored is the reply to an upload.
type stored struct {
	ETag    string `json:"etag"`
	Version string `json:"version"`
}

// upload answers PUT buckets/{bucket}/content.
func (c contentPage) upload() (any, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	body, n, err := c.body(maxUpload)
	if err != nil {
		return nil, err
	}
	meta, err := metadataHeader(c.r.Header.Get("X-Object-Metadata"))
	if err != nil {
		return nil, err
	}
	r := inside.Request{Method: http.MethodPut, Bucket: c.name(), Key: key, Header: http.Header{}, Body: body, Size: n}
	describe(r.Header, c.r.Header.Get("Content-Type"), meta)
	if err := c.checksum(r.Header); err != nil {
		return nil, err
	}
	h, err := c.S3.XML(c.r.Context(), c.as(), r, nil)
	if err != nil {
		return nil, err
	}
	return stored{strings.Trim(h.Get("ETag"), `"`), h.Get("X-Amz-Version-Id")}, nil
}

// checksum passes the CRC-32 in the query on to S3, which compares it with the content.
func (c contentPage) checksum(h http.Header) error {
	crc := c.query("crc32")
	if crc == "" {
		return nil
	}
	if b, err := base64.StdEncoding.DecodeString(crc); err != nil || len(b) != 4 {
		return invalid("crc32 is "+quoted(crc)+"; expected 4 bytes in base64", "")
	}
	h.Set("X-Amz-Checksum-Crc32", crc)
	return nil
}

// metadataHeader returns the metadata in a header: JSON in base64, because headers hold no Unicode.
func metadataHeader(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var meta map[string]string
	raw, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if err != nil {
		return nil, invalid("the header X-Object-Metadata is no JSON object of texts in base64", "")
	}
	return meta, checkMetadata(meta)
}

// checkMetadata refuses names and values that a header cannot hold.
func checkMetadata(meta map[string]string) error {
	for k, v := range meta {
		name := func(r rune) bool {
			return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
		}
		if k == "" || strings.ContainsFunc(k, func(r rune) bool { return !name(r) }) {
			return invalid("the name "+quoted(k)+" of metadata has other characters than letters, digits and -_.", "")
		}
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
			return invalid("the metadata "+quoted(k)+" have a value with other characters than printable ASCII", "")
		}
	}
	return nil
}

// describe sets the headers that describe a new object. A type that a header cannot hold is left out.
func describe(h http.Header, kind string, meta map[string]string) {
	if kind != "" && len(kind) <= 255 && !strings.ContainsFunc(kind, func(r rune) bool { return r < ' ' || r > '~' }) {
		h.Set("Content-Type", kind)
	}
	for k, v := range meta {
		h.Set("X-Amz-Meta-"+k, v)
	}
}
