// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"io"

	"github.com/versity/versitygw/s3api/utils"
)

// formFile reads the file of a form up to the next field, if there is one. S3 ignores the fields behind the file,
// such as the button that sent the form. versitygw looks only for the end of the whole form, and would store these
// fields as content.
type formFile struct {
	r    utils.MpFileReader
	end  []byte // the delimiter between the file and the next field
	held []byte // bytes that were read and not returned, because they may be the beginning of end
	sent int64
	done bool
	err  error // error of r after the held bytes
}

// Length returns how many bytes of the uploaded file Read has returned so far.
func (f *formFile) Length() int64 { return f.sent }

func (f *formFile) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if n := f.sure(); n > 0 {
			n = copy(p, f.held[:n])
			f.held = f.held[:copy(f.held, f.held[n:])]
			f.sent += int64(n)
			return n, nil
		}
		if f.done {
			// The rest is read to find the end of the form. A form without an end is refused.
			if _, err := io.Copy(io.Discard, f.r); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		if f.err != nil {
			return 0, f.err
		}
		f.fill(len(p))
	}
}

// sure returns the number of held bytes that are certainly content.
func (f *formFile) sure() int {
	at := bytes.Index(f.held, f.end)
	switch {
	case at >= 0:
		f.held, f.done = f.held[:at], true
		return at
	case f.done || f.err != nil:
		return len(f.held)
	}
	// The last bytes may be the beginning of end, but not all of it.
	for n := min(len(f.end)-1, len(f.held)); n > 0; n-- {
		if bytes.HasPrefix(f.end, f.held[len(f.held)-n:]) {
			return len(f.held) - n
		}
	}
	return len(f.held)
}

// fill reads up to n more bytes behind the held bytes, at most formBlock.
func (f *formFile) fill(n int) {
	n = min(n, formBlock)
	was := len(f.held)
	if cap(f.held)-was < n {
		f.held = append(make([]byte, 0, was+n), f.held...)
	}
	var got int
	got, f.err = f.r.Read(f.held[was : was+n])
	f.held = f.held[:was+got]
}

// formBlock is the largest number of bytes of a form's file that are read at once.
const formBlock = 64 << 10
