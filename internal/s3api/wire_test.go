// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestMendedBody(t *testing.T) {
	tail := "\r\nx-amz-trailer-signature:" + strings.Repeat("0", 64) + "\r\n\r\n"
	for name, c := range map[string]struct{ in, want string }{
		"as Amazon describes it": {"0;chunk-signature=x\r\nx-amz-checksum-crc32:AAAA=\n" + tail,
			"0;chunk-signature=x\r\nx-amz-checksum-crc32:AAAA=" + tail},
		"as its own libraries do": {"0;chunk-signature=x\r\nx-amz-checksum-crc32:AAAA=" + tail,
			"0;chunk-signature=x\r\nx-amz-checksum-crc32:AAAA=" + tail},
		"no checksum at all":        {"0;chunk-signature=x\r\n" + tail, "0;chunk-signature=x\r\n" + tail},
		"the newline comes first":   {"\n" + tail, tail},
		"newlines before and after": {"\n\n\n\n" + tail, "\n\n\n" + tail},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r },
			"by bytes": iotest.OneByteReader, "with its end": iotest.DataErrReader} {
			got, err := io.ReadAll(&mendedBody{r: wrap(strings.NewReader(c.in)), left: len(c.in) - trailerTail})
			if err != nil || string(got) != c.want {
				t.Errorf("%s, %s: %q (%v), expected %q", name, how, got, err, c.want)
			}
		}
	}
}

func TestStoredEncoding(t *testing.T) {
	for in, want := range map[string]string{"": "", "gzip": "gzip", "aws-chunked": "", "gzip, aws-chunked": "gzip",
		"aws-chunked,gzip,br": "gzip,br"} {
		if got := storedEncoding(&in); *got != want {
			t.Errorf("%q is stored as %q, expected %q", in, *got, want)
		}
	}
	if storedEncoding(nil) != nil {
		t.Error("no encoding became one")
	}
}

// TestBodiesOfChunks: a body without a length is refused, as S3 does, read to its end or not, without a pause, and the
// connection serves the next request.
func TestBodiesOfChunks(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for i := range 3 {
		for _, key := range []string{"/public/key", "/nobody/key"} {
			if _, err := fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "+
				"chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", key); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("%d: %s: %v", i, key, err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode < 400 || resp.StatusCode >= 500 || resp.Close {
				t.Errorf("%d: %s: status %d, closed %v: %s", i, key, resp.StatusCode, resp.Close, text)
			}
		}
	}
}
