// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Writer writes a container. Several goroutines may write files of it at the same time.
type Writer struct {
	mu    sync.Mutex
	out   io.Writer
	at    int64 // bytes written
	files []File
	ended []bool
	err   error // first error of out; nothing is written after it
	bytes int64
}

// NewWriter begins a container on out. The container is complete after Finish.
func NewWriter(out io.Writer) *Writer {
	w := &Writer{out: out}
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	w.write(b) // Finish and ReadFrom return the error
	return w
}

// write appends bytes. The caller holds mu or is NewWriter.
func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	_, w.err = w.out.Write(b)
	w.at += int64(len(b))
}

// FileWriter appends one image file to a container. Only one goroutine uses a FileWriter.
type FileWriter struct {
	w      *Writer
	number int
	buf    []byte
}

// Create begins an image file. If the container has a file of this name already, the new file replaces it.
func (w *Writer) Create(name string) (*FileWriter, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.files {
		if w.files[i].Name == name && !w.ended[i] {
			return nil, errs.New(errs.Invalid, "create image file", name, "it is being written already")
		}
	}
	f := &FileWriter{w: w, number: len(w.files)}
	w.files, w.ended = append(w.files, File{Name: name}), append(w.ended, false)
	b := append(make([]byte, frameSize), name...)
	encodeHeader(b, kindName, f.number)
	w.write(b)
	return f, w.err
}

// ReadFrom appends the bytes of r until its end, in frames of at most 1 MiB.
func (f *FileWriter) ReadFrom(r io.Reader) (int64, error) {
	if f.buf == nil {
		f.buf = make([]byte, frameSize+FrameData)
	}
	var total int64
	for {
		n, err := io.ReadFull(r, f.buf[frameSize:])
		if n > 0 {
			b := f.buf[:frameSize+n]
			encodeHeader(b, kindData, f.number)
			if err := f.append(b); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func (f *FileWriter) append(frame []byte) error {
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	n := int64(len(frame) - frameSize)
	file := &w.files[f.number]
	file.Parts = append(file.Parts, Part{Off: w.at + frameSize, Len: n})
	file.Size += n
	w.bytes += n
	w.write(frame)
	return w.err
}

// Close ends the image file.
func (f *FileWriter) Close() error {
	f.buf = nil
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	b := make([]byte, frameSize+8)
	binary.LittleEndian.PutUint64(b[frameSize:], uint64(w.files[f.number].Size))
	encodeHeader(b, kindEnd, f.number)
	w.write(b)
	w.ended[f.number] = true
	return w.err
}

// Bytes returns how many bytes of image files were written so far.
func (w *Writer) Bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// Finish writes the index and the footer. The fields Version, Files and Bytes of the index are set by Finish, which
// returns the complete index and the size of the container. Finish fails if a file is not closed.
func (w *Writer) Finish(index Index) (Index, int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	index.Version, index.Files, index.Bytes = version, nil, 0
	last := map[string]int{}
	for i, f := range w.files {
		if !w.ended[i] {
			return index, 0, errs.New(errs.Invalid, "finish process image", "", "the file "+f.Name+" is not complete")
		}
		last[f.Name] = i
	}
	for i, f := range w.files {
		if last[f.Name] == i {
			if f.Parts == nil {
				f.Parts = []Part{}
			}
			index.Files = append(index.Files, f)
			index.Bytes += f.Size
		}
	}
	if len(index.Files) == 0 {
		return index, 0, errs.New(errs.Invalid, "finish process image", "", "it has no file")
	}
	text, err := json.Marshal(index)
	if err != nil {
		return index, 0, errs.Wrap("finish process image", "", err)
	}
	if len(text) > mostIndex {
		return index, 0, errs.New(errs.Unsupported, "finish process image", "", fmt.Sprintf(
			"its index has %d bytes, expected at most %d", len(text), mostIndex))
	}
	at := w.at
	b := append(make([]byte, frameSize), text...)
	encodeHeader(b, kindIndex, 0)
	w.write(b)
	w.write(encodeFooter(at, int64(len(text))))
	return index, w.at, w.err
}
