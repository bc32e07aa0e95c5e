// SPDX-License-Identifier: Apache-2.0

package tfrecord

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	opIndex      = "read TFRecord index"
	opWriteIndex = "write TFRecord index"
	fixIndex     = "make the index again, for example with tfrecord2idx"
)

// OpenIndex lists the records of a TFRecord file from its text index of idxSize bytes, without a scan of the file. Each
// line of the index has the offset and the size of a record, as tfrecord2idx writes them. The paths or URLs `name` of
// the file and idxName of the index are for messages; r and `size` are the TFRecord file.
//
// OpenIndex does not read r, so it cannot know whether the index belongs to the file. Compare a record with the file
// with Shard.Check. A damaged index is an error of kind Corrupt.
func OpenIndex(idx io.ReaderAt, idxSize int64, idxName string, r io.ReaderAt, size int64, name string) (*Shard, error) {
	s := &Shard{Table: sample.NewTable(name, size, []string{Column}, 0), r: r}
	lines := bufio.NewReaderSize(&sequential{r: idx, end: idxSize, name: idxName}, int(min(idxSize+1, sample.LargePiece)))
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		if len(line) == 0 && errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		at, n, ok := parseLine(line)
		corrupt := func(msg string, args ...any) error {
			return errs.New(errs.Corrupt, opIndex, idxName, fmt.Sprintf("line %d: ", number)+fmt.Sprintf(msg, args...)).
				WithFix(fixIndex)
		}
		switch {
		case !ok:
			return nil, corrupt("it is %.60q, expected an offset and a size in decimal", line)
		case n < before+after:
			return nil, corrupt("the record has %d bytes, expected at least %d", n, before+after)
		case at > size || n > size-at:
			return nil, corrupt("the record of %d bytes at offset %d ends after %s, which has %d bytes", n, at, name, size)
		case n-before-after > sample.MaxPart:
			return nil, errs.New(errs.Unsupported, opIndex, idxName, fmt.Sprintf(
				"line %d: the data has %d bytes, expected at most %d", number, n-before-after, int64(sample.MaxPart))).
				WithFix("write the TFRecord file again with smaller records")
		}
		if err := s.Table.Add("", sample.Extent{Offset: at + before, Size: n - before - after}); err != nil {
			return nil, err
		}
	}
}

// parseLine returns the two numbers of a line.
func parseLine(line []byte) (offset, size int64, ok bool) {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	first, second, found := bytes.Cut(line, []byte(" "))
	offset, ok1 := parseNumber(first)
	size, ok2 := parseNumber(second)
	return offset, size, found && ok1 && ok2
}

// parseNumber returns a number of decimal digits.
func parseNumber(digits []byte) (n int64, ok bool) {
	for _, c := range digits {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(digits) > 0
}

// sequential reads a file from its beginning to its end. The errors of sequential name the file.
type sequential struct {
	r       io.ReaderAt
	at, end int64
	name    string
}

// Read fills b as far as the file reaches.
func (s *sequential) Read(b []byte) (int, error) {
	if s.at == s.end {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), s.end-s.at)]
	if err := sample.ReadFull(s.r, b, s.at, opIndex, s.name); err != nil {
		return 0, err
	}
	s.at += int64(len(b))
	return len(b), nil
}

// WriteIndex writes the text index of a table of records, as tfrecord2idx does. The path or URL `name` of the index is
// for messages.
func WriteIndex(w io.Writer, name string, table *sample.Table) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for i := range table.Len() {
		data, _ := table.Part(i, 0)
		writeLine(out, data)
	}
	return errs.Wrap(opWriteIndex, name, errs.WithoutPath(out.Flush()))
}

// writeLine writes the line of a record with this data. Flush of out returns the error.
func writeLine(out *bufio.Writer, data sample.Extent) {
	b := strconv.AppendInt(out.AvailableBuffer(), data.Offset-before, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, data.Size+before+after, 10)
	_, _ = out.Write(append(b, '\n'))
}
