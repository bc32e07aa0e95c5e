// SPDX-License-Identifier: Apache-2.0

package express

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Values of x-amz-content-sha256 that are no checksum.
const (
	Unsigned        = "UNSIGNED-PAYLOAD"
	UnsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	SignedChunks    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	SignedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// maxLine is the longest line of a payload in chunks, with its end.
const maxLine = 1 << 10

// Chunks reads the content of a payload in chunks. Chunks compares the signatures of chunks and of the trailer, and
// fails if a line is malformed or missing. The content counts only after Chunks has returned io.EOF.
type Chunks struct {
	r       *bufio.Reader
	form    string
	trailer string // name of the header that follows the content; empty for none
	value   string // of the trailer

	key         []byte
	date, scope string
	last        string // the signature before, in hex
	sum         hash.Hash
	want        string // signature of the chunk that is being read
	left        int64
	started     bool
	err         error
}

// NewChunks returns a reader of the content of a payload. The form is one of UnsignedTrailer, SignedChunks and
// SignedTrailer. The parameter trailer is the name of the announced trailer in lower case. The signature and the key
// are those of the request's header.
func NewChunks(body io.Reader, form, trailer string, s *Signature, key []byte) *Chunks {
	c := &Chunks{r: bufio.NewReaderSize(body, 4<<10), form: form, trailer: trailer}
	if form != UnsignedTrailer {
		c.key, c.date, c.scope, c.last, c.sum = key, s.Date, s.Scope(), s.Value, sha256.New()
	}
	return c
}

// Trailer returns the value of the trailer, after Read has returned io.EOF.
func (c *Chunks) Trailer() string { return c.value }

// Read implements io.Reader.
func (c *Chunks) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.left == 0 {
		if c.err = c.next(); c.err != nil {
			return 0, c.err
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	if err != nil {
		c.err = incomplete()
		return 0, c.err
	}
	return n, nil
}

// next ends the chunk before and begins another. It returns io.EOF after the last one.
func (c *Chunks) next() error {
	if c.started {
		if line, err := c.line(); err != nil || line != "" {
			return incomplete()
		}
		if err := c.endChunk(); err != nil {
			return err
		}
	}
	c.started = true
	line, err := c.line()
	if err != nil {
		return err
	}
	if c.sum != nil {
		size, signature, ok := strings.Cut(line, ";chunk-signature=")
		if !ok || len(signature) != 2*sha256.Size {
			return incomplete()
		}
		line, c.want = size, signature
	}
	size, err := strconv.ParseUint(strings.TrimSpace(line), 16, 63)
	if err != nil {
		return incomplete()
	}
	if c.left = int64(size); size > 0 {
		return nil
	}
	if err := c.endChunk(); err != nil {
		return err
	}
	return c.end()
}

// endChunk compares the signature of a chunk.
func (c *Chunks) endChunk() error {
	if c.sum == nil {
		return nil
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	sum := hex.EncodeToString(c.sum.Sum(nil))
	c.sum.Reset()
	return c.compare(algorithm+"-PAYLOAD\n"+c.date+"\n"+c.scope+"\n"+c.last+"\n"+empty+"\n"+sum, c.want)
}

// compare compares a signature with that of a text, and remembers it for the next one.
func (c *Chunks) compare(text, want string) error {
	raw, err := hex.DecodeString(want)
	if err != nil || !hmac.Equal(raw, sign(c.key, text)) {
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"The signature of a chunk that we calculated does not match the signature you provided.")
	}
	c.last = strings.ToLower(want)
	return nil
}

// end reads the trailer and the end of the payload.
func (c *Chunks) end() error {
	var lines []string
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		if lines = append(lines, line); len(lines) > 2 {
			return malformedTrailer()
		}
	}
	if err := c.trailers(lines); err != nil {
		return err
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		return incomplete()
	}
	return io.EOF
}

// trailers checks the lines of the trailer.
func (c *Chunks) trailers(lines []string) error {
	signed := c.form == SignedTrailer
	want := 0
	switch {
	case signed:
		want = 2
	case c.trailer != "" && c.form == UnsignedTrailer:
		want = 1
	}
	if len(lines) != want {
		return malformedTrailer()
	}
	if want == 0 {
		return nil
	}
	name, value, ok := strings.Cut(lines[0], ":")
	if !ok || !strings.EqualFold(strings.TrimSpace(name), c.trailer) {
		return malformedTrailer()
	}
	c.value = strings.TrimSpace(value)
	if !signed {
		return nil
	}
	signature, ok := strings.CutPrefix(lines[1], "x-amz-trailer-signature:")
	if !ok {
		return malformedTrailer()
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(lines[0]) + "\n"))
	return c.compare(algorithm+"-TRAILER\n"+c.date+"\n"+c.scope+"\n"+c.last+"\n"+hex.EncodeToString(sum[:]),
		strings.TrimSpace(signature))
}

// line reads a line and returns it without its end. A line feed without a carriage return ends the first line of a
// trailer that some clients write as Amazon's documentation shows it.
func (c *Chunks) line() (string, error) {
	var line []byte
	for {
		piece, err := c.r.ReadSlice('\n')
		if line = append(line, piece...); len(line) > maxLine {
			return "", incomplete()
		}
		if err == nil {
			break
		}
		if err != bufio.ErrBufferFull {
			return "", incomplete()
		}
	}
	if text, ok := bytes.CutSuffix(line, []byte("\r\n")); ok {
		return string(text), nil
	}
	// "x-amz-checksum-…:VALUE\n\r\n" is one line.
	if rest, err := c.r.Peek(2); c.form != SignedTrailer || err != nil || string(rest) != "\r\n" {
		return "", incomplete()
	}
	_, _ = c.r.Discard(2) // Peek has read them
	return strings.TrimSuffix(string(line), "\n"), nil
}

func incomplete() error {
	return refuse(http.StatusBadRequest, "IncompleteBody", "The request body terminated unexpectedly.")
}

func malformedTrailer() error {
	return refuse(http.StatusBadRequest, "MalformedTrailerError",
		"The request contained trailing data that was not well-formed or did not conform to our published schema.")
}
