// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxLine bounds one line of a recording in bytes.
const maxLine = 8 << 20

// Recording reads the samples of a recording: one JSON object in each line, as "nebulaio top --record" and
// "nebulaio top --json" write them. A recording may come from anyone, so its size is bounded line by line.
type Recording struct {
	r    *bufio.Reader
	name string
	line int
}

// ReadRecording returns a Recording that reads from r. The name appears in errors. The caller closes r.
func ReadRecording(r io.Reader, name string) *Recording {
	return &Recording{r: bufio.NewReaderSize(r, 64<<10), name: name}
}

// Next returns the next sample, or io.EOF after the last. Fields that Sample does not know are ignored. An incomplete
// last line, as a killed recorder leaves it, counts as the end. Any other line that is no sample is an error of kind
// Corrupt, and a sample of a newer version is one of kind Unsupported.
func (r *Recording) Next() (*Sample, error) {
	for {
		b, whole, err := r.next()
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			continue
		}
		s := &Sample{}
		if err := json.Unmarshal(b, s); err != nil {
			if !whole {
				return nil, io.EOF
			}
			return nil, &errs.Error{Kind: errs.Corrupt, Op: "read recording", Name: r.at(), Msg: "the line is no sample",
				Err: err, Fix: "replay a file that nebulaio top --record has written"}
		}
		if s.Version > Version {
			return nil, errs.New(errs.Unsupported, "read recording", r.at(),
				fmt.Sprintf("the sample has version %d; expected at most %d", s.Version, Version)).WithFix("update nebulaio")
		}
		if s.Version < 1 || s.Time.IsZero() {
			return nil, errs.New(errs.Corrupt, "read recording", r.at(),
				"the line has no version or no time; expected a sample").
				WithFix("replay a file that nebulaio top --record has written")
		}
		return s, nil
	}
}

func (r *Recording) at() string { return r.name + " line " + strconv.Itoa(r.line) }

// next returns a line without its end. whole is false if the file ends without one.
func (r *Recording) next() (line []byte, whole bool, err error) {
	r.line++
	for {
		part, err := r.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, false, errs.New(errs.Corrupt, "read recording", r.at(),
				fmt.Sprintf("the line has more than %d bytes", maxLine))
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, false, nil
		case errors.Is(err, io.EOF):
			return nil, false, io.EOF
		default:
			return nil, false, errs.Wrap("read recording", r.name, err)
		}
	}
}
