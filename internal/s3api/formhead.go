// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"strings"
)

// formHead reads a form, and hides the file names of all parts before the file. Some clients give each field a file
// name. S3 takes only the part with the name file for the file, and versitygw takes the first part with a file name.
// The bytes change, but not their number.
type formHead struct {
	r        *bufio.Reader
	boundary string
	pending  []byte // bytes of the current line that were not returned yet
	header   bool   // the next line is a line of a part's header
	within   bool   // the next bytes continue a line that is longer than the buffer
	file     bool   // the file has begun, so that all further bytes are passed on
}

func newFormHead(r io.Reader, boundary string) *formHead {
	return &formHead{r: bufio.NewReaderSize(r, 4<<10), boundary: strings.TrimSpace(boundary)}
}

func (f *formHead) Read(p []byte) (int, error) {
	if len(f.pending) == 0 {
		if f.file {
			return f.r.Read(p)
		}
		line, err := f.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && len(line) == 0 {
			return 0, err
		}
		f.pending = bytes.Clone(line)
		if !f.within {
			f.inspect(f.pending)
		}
		f.within = errors.Is(err, bufio.ErrBufferFull)
	}
	n := copy(p, f.pending)
	f.pending = f.pending[n:]
	return n, nil
}

// inspect follows the parts of the form by one line, and hides the file name in a header of a field.
func (f *formHead) inspect(line []byte) {
	text := strings.TrimRight(string(line), "\r\n")
	if !f.header {
		f.header = text == "--"+f.boundary
		return
	}
	if text == "" {
		f.header = false
		return
	}
	name, value, ok := strings.Cut(text, ":")
	if !ok || !strings.EqualFold(strings.TrimSpace(name), "Content-Disposition") {
		return
	}
	_, params, err := mime.ParseMediaType(value)
	if err != nil {
		return // versitygw refuses the form
	}
	if strings.EqualFold(params["name"], "file") {
		f.file = true
		return
	}
	hideParameter(line, "filename")
}

// hideParameter changes the name of a parameter in a header line, wherever the name stands outside of quotes.
func hideParameter(line []byte, name string) {
	quoted := false
	for i := range line {
		switch {
		case line[i] == '"' && (i == 0 || line[i-1] != '\\'):
			quoted = !quoted
		case quoted || len(line)-i < len(name) || !strings.EqualFold(string(line[i:i+len(name)]), name):
		case i > 0 && strings.IndexByte("; \t", line[i-1]) >= 0:
			line[i+len(name)-1] = '-'
		}
	}
}
