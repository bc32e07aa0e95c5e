// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// Values of x-amz-content-sha256 for payloads in chunks.
const (
	streaming       = "STREAMING-"
	unsignedChunks  = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	chunkSignature  = ";chunk-signature="
	trailerMark     = "x-amz-trailer-signature:"
	signatureDigits = 64
)

// Limits of a payload in chunks. Without them, versitygw would keep a trailer of any length in memory.
const (
	maxChunkLine = 1 << 10
	maxTrailers  = 2 // a checksum and its signature
)

// checkPayload returns an error if versitygw would not decode a payload in chunks and would store its framing as
// content. It also refuses trailers that name no checksum.
func checkPayload(rctx *fasthttp.RequestCtx, h *noticed) s3err.S3Error {
	if payload := string(h.payload); strings.HasPrefix(payload, streaming) {
		const name = "X-Amz-Content-Sha256"
		switch {
		case payload != unsignedChunks && payload != signedChunks && payload != signedTrailer:
			return notImplemented(name, "the payload "+strconv.QuoteToASCII(payload))
		case rctx.QueryArgs().Has("X-Amz-Signature"):
			return notImplemented(name, "chunks with a presigned URL")
		}
	}
	if len(h.trailer) > 0 && (rctx.IsPut() || rctx.IsPost()) && !namesChecksum(string(h.trailer)) {
		return s3err.GetAPIError(s3err.ErrTrailerHeaderNotSupported)
	}
	return nil
}

// namesChecksum reports whether a trailer is one of S3's checksums.
func namesChecksum(trailer string) bool {
	const prefix = "x-amz-checksum-"
	var known sums
	for _, f := range known.all() {
		if strings.EqualFold(trailer, prefix+string(f.algo)) {
			return true
		}
	}
	return false
}

// checkChunks puts a framedBody in front of versitygw if the payload is in chunks.
func checkChunks(ctx fiber.Ctx) {
	r := ctx.Request()
	payload := string(r.Header.Peek("X-Amz-Content-Sha256"))
	if !strings.HasPrefix(payload, streaming) {
		return
	}
	body, ok := utils.ContextKeyBodyReader.Get(ctx).(io.Reader)
	if !ok {
		if body = r.BodyStream(); body == nil {
			body = bytes.NewReader(nil)
		}
	}
	utils.ContextKeyBodyReader.Set(ctx, &framedBody{r: body, signed: payload != unsignedChunks,
		trailer: payload == signedTrailer})
}

// framedBody passes on a payload in chunks and fails if its framing is broken or incomplete.
//
// versitygw treats the end of a body as the end of its content, and checks the signature of a chunk when the next
// chunk begins. Without the last chunk, it would store content with a wrong signature and without its checksum. A
// negative size makes versitygw panic. So framedBody checks each line strictly.
type framedBody struct {
	r       io.Reader
	signed  bool // each chunk has a signature
	trailer bool // a trailer with a signature is required
	at      framePart
	line    []byte // the beginning of an incomplete line
	left    int64  // bytes left of the chunk's content
	lines   int    // number of lines of the trailer
	err     error
}

// framePart is the expected next part of a payload in chunks.
type framePart int

const (
	sizeLine framePart = iota
	content
	contentEnd
	trailers
	behind
)

func (b *framedBody) Read(p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.at == behind:
		return 0, io.EOF
	}
	n, err := b.r.Read(p)
	if !b.pass(p[:n]) {
		b.err = s3err.GetAPIError(s3err.ErrIncompleteBody)
	} else if err != nil && b.at != behind {
		// A broken connection counts too: versitygw would treat it as the end.
		b.err = s3err.GetAPIError(s3err.ErrIncompleteBody)
	}
	if b.err == nil && b.at == behind {
		b.err = b.finish()
		err = io.EOF
	}
	if b.err != nil {
		return 0, b.err // the bytes before the error must not look like a complete body
	}
	return n, err
}

// finish returns an error if the trailer is incomplete or if bytes follow the last chunk. versitygw does not check
// this.
func (b *framedBody) finish() error {
	if b.lines != b.wantLines() {
		return s3err.GetAPIError(s3err.ErrMalformedTrailer)
	}
	var one [1]byte
	if _, err := io.ReadFull(b.r, one[:]); err != io.EOF {
		return s3err.GetAPIError(s3err.ErrIncompleteBody)
	}
	return nil
}

// wantLines returns the required number of lines of the trailer. versitygw itself checks the trailer of unsigned
// chunks.
func (b *framedBody) wantLines() int {
	switch {
	case !b.signed:
		return b.lines
	case b.trailer:
		return maxTrailers
	}
	return 0
}

// pass checks the next bytes and reports whether they are valid.
func (b *framedBody) pass(p []byte) bool {
	for len(p) > 0 {
		switch b.at {
		case behind:
			return false
		case content:
			n := min(int64(len(p)), b.left)
			p, b.left = p[n:], b.left-n
			if b.left == 0 {
				b.at = contentEnd
			}
			continue
		}
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			b.line = append(b.line, p[:min(len(p), maxChunkLine+1)]...)
			return len(b.line) <= maxChunkLine
		}
		if len(b.line)+end > maxChunkLine {
			return false
		}
		line, whole := bytes.CutSuffix(append(b.line, p[:end]...), []byte("\r\n"))
		b.line, p = b.line[:0], p[end:]
		if !whole || !b.passLine(string(line)) {
			return false
		}
	}
	return true
}

// passLine checks a line without its line end.
func (b *framedBody) passLine(line string) bool {
	switch b.at {
	case sizeLine:
		if b.signed {
			size, signature, ok := strings.Cut(line, chunkSignature)
			if !ok || len(signature) != signatureDigits {
				return false
			}
			line = size
		} else {
			line = strings.TrimSpace(line)
		}
		size, err := strconv.ParseUint(line, 16, 63)
		if err != nil {
			return false
		}
		b.left, b.at = int64(size), content
		if size == 0 {
			b.at = trailers
		}
		return true
	case contentEnd:
		b.at = sizeLine
		return line == ""
	default: // trailers
		if line == "" {
			b.at = behind
			return true
		}
		b.lines++
		if b.signed && b.lines == maxTrailers {
			return strings.HasPrefix(line, trailerMark) && len(line) == len(trailerMark)+signatureDigits
		}
		return b.lines <= maxTrailers && strings.Contains(line, ":")
	}
}
