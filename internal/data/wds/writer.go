// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	opPack     = "write WebDataset tar"
	pageSize   = 4096
	recordSize = 20 * block // Python's tarfile fills an archive to a multiple of this size
	copySize   = 256 << 10
)

// Options are the options of a Writer. The zero value gives an archive without alignment.
type Options struct {
	// Align is 0 or 4096. With 4096, the data of each part begins at a multiple of 4096 bytes, as direct reads from
	// disk to GPU memory like it. The gap is the comment of a PAX header, at most 4608 bytes for each part.
	Align int
	// AlignFrom is the size in bytes of the smallest part that is aligned. Empty parts are never aligned.
	AlignFrom int64
}

// Part is one part of a sample.
type Part struct {
	Ext  string    // the extension in lower case, such as "jpg"
	Size int64     // in bytes
	Data io.Reader // must end after Size bytes; can be nil if Size is 0
}

// Writer writes a WebDataset archive. Equal samples and options give equal bytes. Without alignment, the bytes are
// those that webdataset's TarWriter writes with mtime=0, as long as the parts are sorted by extension. Names above 100
// bytes or outside of ASCII need a PAX header. DALI finds such names only with an index, see WriteDALI. A Writer is not
// safe for concurrent use.
type Writer struct {
	out     *bufio.Writer
	name    string
	options Options
	pos     int64
	edges   edges
	found   group
	last    string // key of the last sample
	buf     []byte
	err     error // after a failed write, or after Close
}

// NewWriter returns a Writer to w. Messages show the archive as `name`. An alignment other than 0 or 4096 is an error
// of kind Invalid.
func NewWriter(w io.Writer, name string, o Options) (*Writer, error) {
	if o.Align != 0 && o.Align != pageSize || o.AlignFrom < 0 {
		e := errs.New(errs.Invalid, opPack, name,
			fmt.Sprintf("the alignment is %d from %d bytes on, expected an alignment of 0 or %d",
				o.Align, o.AlignFrom, pageSize))
		e.Fix = fmt.Sprintf("use the alignment %d for direct reads of large parts, or 0", pageSize)
		return nil, e
	}
	return &Writer{out: bufio.NewWriterSize(w, copySize), name: name, options: o}, nil
}

// Add writes a sample and returns the extent of each part. Parts are written in the given order. Names that webdataset
// would read back differently are refused with kind Invalid, and so are two adjacent samples with the same key.
// Nothing is written for a refused sample, and the Writer can go on. After any other error the archive is incomplete,
// and all further calls return that error.
func (w *Writer) Add(key string, parts ...Part) ([]sample.Extent, error) {
	if w.err != nil {
		return nil, w.err
	}
	if err := w.check(key, parts); err != nil {
		return nil, err
	}
	extents := make([]sample.Extent, len(parts))
	for i, p := range parts {
		name := key + "." + p.Ext
		w.write(w.headers(name, p.Size))
		extents[i] = sample.Extent{Offset: w.pos, Size: p.Size}
		w.copy(name, p)
		w.write(make([]byte, padded(p.Size)-p.Size))
		if w.err != nil {
			return nil, w.err
		}
		if why := w.found.add(name, extents[i]); why != "" {
			w.fail(errs.New(errs.Other, opPack, w.name, why))
			return nil, w.err
		}
	}
	w.last = key
	return extents, nil
}

// Size returns the number of bytes written so far, without the end of the archive.
func (w *Writer) Size() int64 { return w.pos }

// Close writes the end of the archive, and returns the shard that Open would return for it. Close does not close the
// underlying writer.
func (w *Writer) Close() (*Shard, error) {
	if w.err != nil {
		return nil, w.err
	}
	end := w.pos + 2*block
	w.write(make([]byte, (end+recordSize-1)/recordSize*recordSize-w.pos))
	if w.err == nil {
		w.fail(errs.Wrap(opPack, w.name, w.out.Flush()))
	}
	if w.err != nil {
		return nil, w.err
	}
	w.err = errs.New(errs.Closed, opPack, w.name, "the archive is complete")
	t, err := w.found.table(w.name, w.pos)
	if err != nil {
		return nil, err
	}
	return &Shard{Table: t, Fingerprint: w.edges.sum()}, nil
}

// check returns the reason why a sample cannot be written, as an error of kind Invalid.
func (w *Writer) check(key string, parts []Part) error {
	refuse := func(fix, format string, args ...any) error {
		e := errs.New(errs.Invalid, opPack, w.name, fmt.Sprintf("sample %.200q: ", key)+fmt.Sprintf(format, args...))
		e.Fix = fix
		return e
	}
	if len(parts) == 0 {
		return refuse("give the sample a part, or leave it out", "there are no parts")
	}
	if key == w.last {
		return refuse("give each sample its own key", "the sample before has the same key, and readers would join them")
	}
	fresh, seen := 0, make(map[string]bool, len(parts))
	for _, p := range parts {
		if why, fix := wrongName(key, p.Ext); why != "" {
			return refuse(fix, "%s", why)
		}
		if seen[p.Ext] {
			return refuse("give each part its own extension", "there are two parts %.200q", p.Ext)
		}
		seen[p.Ext] = true
		if _, known := w.found.column[p.Ext]; !known {
			fresh++
		}
		if p.Size < 0 || p.Size > sample.MaxPart {
			return refuse("split the part", "part %.200q has %d bytes, expected 0 to %d", p.Ext, p.Size, int64(sample.MaxPart))
		}
		if p.Data == nil && p.Size > 0 {
			return refuse("give the part a reader", "part %.200q has %d bytes and no reader", p.Ext, p.Size)
		}
	}
	if samples, columns := len(w.found.starts)+1, len(w.found.columns)+fresh; tooSparse(samples, columns,
		len(w.found.members)+len(parts)) {
		return refuse("give parts with the same meaning the same extension",
			"the archive would have %d samples with %d different extensions", samples, columns)
	}
	return nil
}

// copy writes the data of a part, and checks that it has the promised size.
func (w *Writer) copy(name string, p Part) {
	if w.buf == nil {
		w.buf = make([]byte, copySize)
	}
	for left := p.Size; left > 0 && w.err == nil; {
		n, err := io.ReadFull(p.Data, w.buf[:min(left, copySize)])
		left -= int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			w.mismatch(name, fmt.Sprintf("the data ends after %d of %d bytes", p.Size-left, p.Size))
			return
		}
		if err != nil {
			w.fail(errs.Wrap("read part "+name+" of", w.name, err))
			return
		}
		w.write(w.buf[:n])
	}
	if p.Data == nil || w.err != nil {
		return
	}
	if n, _ := io.ReadFull(p.Data, w.buf[:1]); n > 0 {
		w.mismatch(name, fmt.Sprintf("the data has more than %d bytes", p.Size))
	}
}

// mismatch records that a part does not have the promised size.
func (w *Writer) mismatch(name, why string) {
	e := errs.New(errs.Invalid, opPack, w.name, fmt.Sprintf("part %.200q: %s", name, why))
	e.Fix = "give the part its true size, and write the archive again"
	w.fail(e)
}

// write appends bytes to the archive, unless a write failed before.
func (w *Writer) write(b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	if _, err := w.out.Write(b); err != nil {
		w.fail(errs.Wrap(opPack, w.name, err))
		return
	}
	w.edges.add(b)
	w.pos += int64(len(b))
}

// fail keeps the first error.
func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// headers returns the header of a member, with a PAX header before it if the name or the alignment needs one.
func (w *Writer) headers(name string, size int64) []byte {
	records, align := "", int64(w.options.Align)
	if needsPAX(name) {
		records = paxRecord("path", name)
	}
	aligned := align == 0 || size == 0 || size < w.options.AlignFrom
	if !aligned && (records != "" || (w.pos+block)%align != 0) {
		body := max(padded(int64(len(records))), block)
		gap := (align - (w.pos+2*block+body)%align) % align
		if records == "" || gap > 0 {
			records += commentRecord(int(body + gap - int64(len(records))))
		}
	}
	var b bytes.Buffer
	if records != "" {
		h := ustar("././@PaxHeader", int64(len(records)), kindPAX, 0, "")
		b.Write(h[:])
		b.WriteString(records)
		b.Write(make([]byte, padded(int64(len(records)))-int64(len(records))))
	}
	h := ustar(name, size, kindRegular, 0o444, "bigdata")
	b.Write(h[:])
	return b.Bytes()
}
