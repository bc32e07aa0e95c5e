// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func encodeFooter(at, n int64) []byte {
	b := make([]byte, footerSize)
	copy(b, endMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(at))
	binary.LittleEndian.PutUint64(b[16:], uint64(n))
	binary.LittleEndian.PutUint64(b[24:], checksum.Of(b[:24]))
	return b
}

// Source has the bytes of a container. ReadAt may be called by several goroutines.
type Source interface {
	io.ReaderAt
	Size() int64
	// Name names the source in messages.
	Name() string
}

// Image is a container that is open for reading.
type Image struct {
	src     Source
	index   Index
	indexAt int64
	byName  map[string]int
}

// Open reads the index of a container. Open fails with kind Corrupt if the container is not complete, or if its index
// is damaged. Open does not read the image files; see Verify.
func Open(src Source) (*Image, error) {
	bad := func(format string, args ...any) (*Image, error) { return nil, damaged(src.Name(), format, args...) }
	if src.Size() < headerSize+footerSize {
		return bad("it has %d bytes, expected at least %d", src.Size(), headerSize+footerSize)
	}
	head := make([]byte, headerSize)
	if err := readAt(src, head, 0); err != nil {
		return nil, err
	}
	if string(head[:8]) != magic {
		return bad("it begins with %q, expected %q", head[:8], magic)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != version || binary.LittleEndian.Uint32(head[12:]) != 0 {
		return nil, errs.New(errs.Unsupported, "read process image", src.Name(), fmt.Sprintf(
			"it has version %d, expected %d", v, version)).WithFix("restore with the release of nebulaio that made the dump")
	}
	foot := make([]byte, footerSize)
	if err := readAt(src, foot, src.Size()-footerSize); err != nil {
		return nil, err
	}
	at, n := binary.LittleEndian.Uint64(foot[8:]), binary.LittleEndian.Uint64(foot[16:])
	if string(foot[:8]) != endMagic || binary.LittleEndian.Uint64(foot[24:]) != checksum.Of(foot[:24]) {
		return bad("its footer is missing or damaged: the dump was not completed, or the end is lost")
	}
	if n > mostIndex || at < headerSize || at+frameSize+n+footerSize != uint64(src.Size()) {
		return bad("its footer names an index of %d bytes at offset %d of %d", n, at, src.Size())
	}
	frame := make([]byte, frameSize+n)
	if err := readAt(src, frame, int64(at)); err != nil {
		return nil, err
	}
	if h := decodeHeader(frame); h.kind != kindIndex || h.len != n || h.file != 0 || h.sum != checksum.Of(frame[8:]) {
		return bad("its index is damaged")
	}
	m := &Image{src: src, indexAt: int64(at), byName: map[string]int{}}
	if err := json.Unmarshal(frame[frameSize:], &m.index); err != nil {
		return bad("its index is no JSON: %v", err)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// check refuses an index whose parts do not lie in the container, or do not add up.
func (m *Image) check() error {
	var bytes int64
	for i, f := range m.index.Files {
		if err := CheckName(f.Name); err != nil {
			return damaged(m.src.Name(), "%v", err)
		}
		if _, twice := m.byName[f.Name]; twice {
			return damaged(m.src.Name(), "its index has the file %s twice", f.Name)
		}
		m.byName[f.Name] = i
		var size int64
		for _, p := range f.Parts {
			if p.Len <= 0 || p.Len > FrameData || p.Off < headerSize+frameSize || p.Off > m.indexAt-p.Len {
				return damaged(m.src.Name(), "its index places %d bytes of %s at offset %d", p.Len, f.Name, p.Off)
			}
			size += p.Len
		}
		if size != f.Size {
			return damaged(m.src.Name(), "its index has %d bytes of %s, expected %d", size, f.Name, f.Size)
		}
		bytes += size
	}
	if bytes != m.index.Bytes || len(m.index.Files) == 0 {
		return damaged(m.src.Name(), "its index has %d bytes in %d files, expected %d", bytes, len(m.index.Files),
			m.index.Bytes)
	}
	return nil
}

// Index returns the index. The caller must not change it.
func (m *Image) Index() Index { return m.index }

// window is how much of a container Verify reads at once.
const window = 8 << 20

// Verify reads the whole container and compares every checksum. The function progress, which may be nil, is called with
// the bytes read so far. Verify fails with kind Corrupt if a bit is wrong, and names the damaged file.
func (m *Image) Verify(ctx context.Context, progress func(done, total int64)) error {
	v := &verifier{m: m, base: make([]byte, min(window+frameSize+FrameData, m.indexAt))}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	for v.at < m.indexAt {
		if ctx.Err() != nil {
			return &errs.Error{Kind: errs.Cancelled, Op: "verify process image", Name: m.src.Name(), Err: context.Cause(ctx)}
		}
		if err := v.frame(); err != nil {
			return err
		}
		progress(v.at, m.src.Size())
	}
	if v.at != m.indexAt {
		return damaged(m.src.Name(), "a frame reaches over the index at offset %d", m.indexAt)
	}
	if err := v.compare(); err != nil {
		return err
	}
	progress(m.src.Size(), m.src.Size())
	return nil
}

// verifier walks over the frames in order.
type verifier struct {
	m     *Image
	at    int64  // offset of the next frame
	base  []byte // memory of buf
	buf   []byte // bytes from offset at on
	next  int64  // offset behind buf
	files []File // as the frames tell
	ended []bool
}

// need makes n bytes from at on available.
func (v *verifier) need(n int64) ([]byte, error) {
	if v.at == 0 {
		v.at, v.next = headerSize, headerSize
	}
	if have := int64(len(v.buf)); have < n {
		want := min(int64(len(v.base))-have, v.m.indexAt-v.next)
		if have+want < n {
			return nil, damaged(v.m.src.Name(), "a frame at offset %d reaches over the index", v.at)
		}
		copy(v.base, v.buf)
		v.buf = v.base[:have+want]
		if err := readAt(v.m.src, v.buf[have:], v.next); err != nil {
			return nil, err
		}
		v.next += want
	}
	return v.buf[:n], nil
}

// frame verifies the next frame.
func (v *verifier) frame() error {
	b, err := v.need(frameSize)
	if err != nil {
		return err
	}
	h := decodeHeader(b)
	if err := h.check(); err != nil {
		return damaged(v.m.src.Name(), "%v at offset %d", err, v.at)
	}
	if b, err = v.need(frameSize + int64(h.len)); err != nil {
		return err
	}
	if checksum.Of(b[8:]) != h.sum {
		return damaged(v.m.src.Name(), "the frame at offset %d%s is damaged: its checksum differs", v.at, v.of(h))
	}
	if err := v.take(h, b[frameSize:]); err != nil {
		return damaged(v.m.src.Name(), "%v at offset %d", err, v.at)
	}
	v.at += int64(len(b))
	v.buf = v.buf[len(b):]
	return nil
}

// of names the file of a damaged frame, if its number can be believed.
func (v *verifier) of(h header) string {
	if int(h.file) < len(v.files) {
		return " (" + v.files[h.file].Name + ")"
	}
	return ""
}

// take records a frame that is not damaged.
func (v *verifier) take(h header, payload []byte) error {
	if h.kind == kindName {
		if int(h.file) != len(v.files) {
			return fmt.Errorf("file %d begins, expected %d", h.file, len(v.files))
		}
		v.files, v.ended = append(v.files, File{Name: string(payload)}), append(v.ended, false)
		return nil
	}
	if int(h.file) >= len(v.files) || v.ended[h.file] {
		return fmt.Errorf("a frame of file %d, which is not begun or has ended", h.file)
	}
	f := &v.files[h.file]
	switch h.kind {
	case kindData:
		f.Parts = append(f.Parts, Part{Off: v.at + frameSize, Len: int64(len(payload))})
		f.Size += int64(len(payload))
	case kindEnd:
		if len(payload) != 8 || binary.LittleEndian.Uint64(payload) != uint64(f.Size) {
			return fmt.Errorf("%s ends after %d bytes", f.Name, f.Size)
		}
		v.ended[h.file] = true
	default:
		return fmt.Errorf("a second index")
	}
	return nil
}

// compare compares the files of the frames with the index.
func (v *verifier) compare() error {
	last := map[string]int{}
	for i, f := range v.files {
		if !v.ended[i] {
			return damaged(v.m.src.Name(), "the file %s has no end", f.Name)
		}
		last[f.Name] = i
	}
	if len(last) != len(v.m.index.Files) {
		return damaged(v.m.src.Name(), "it has %d files, and its index %d", len(last), len(v.m.index.Files))
	}
	for _, want := range v.m.index.Files {
		i, there := last[want.Name]
		if !there || !slices.Equal(v.files[i].Parts, want.Parts) {
			return damaged(v.m.src.Name(), "the frames of %s are not those of the index", want.Name)
		}
	}
	return nil
}

// Has reports whether the container has an image file of this name.
func (m *Image) Has(name string) bool { _, ok := m.byName[name]; return ok }

// WriteFile writes an image file to w, and compares the checksum of each frame before it is written. The next frames
// are read while earlier ones are written. If the container has no such file, the error is of kind NotFound.
func (m *Image) WriteFile(ctx context.Context, name string, w io.Writer) (int64, error) {
	i, ok := m.byName[name]
	if !ok {
		return 0, errs.New(errs.NotFound, "read process image", m.src.Name(), "has no file "+name)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stretches, free := make(chan stretch, 1), make(chan []byte, ahead)
	for range ahead {
		free <- nil // memory is taken when it is needed
	}
	go m.readAhead(ctx, m.index.Files[i].Parts, stretches, free)
	var done int64
	for s := range stretches {
		if s.err != nil {
			return done, s.err
		}
		for _, p := range s.parts {
			at := p.Off - frameSize - s.off
			b := s.data[at : at+frameSize+p.Len]
			if h := decodeHeader(b); h.kind != kindData || h.len != uint64(p.Len) || h.sum != checksum.Of(b[8:]) {
				return done, damaged(m.src.Name(), "the frame at offset %d (%s) is damaged", p.Off-frameSize, name)
			}
			n, err := w.Write(b[frameSize:])
			done += int64(n)
			if err != nil {
				return done, err
			}
		}
		free <- s.data
	}
	if ctx.Err() != nil {
		return done, &errs.Error{Kind: errs.Cancelled, Op: "read process image", Name: m.src.Name(),
			Err: context.Cause(ctx)}
	}
	return done, nil
}

// ahead is the number of stretches in memory: one is read while another is written.
const ahead = 2

// stretch is a range of the container with frames of one file, or the error of its read.
type stretch struct {
	off   int64
	data  []byte
	parts []Part
	err   error
}

// readAhead reads the parts of a file in stretches of at most 8 MiB, and closes out at the end. A stretch may have
// frames of other files between those of the file. The memory of written stretches comes back through free.
func (m *Image) readAhead(ctx context.Context, parts []Part, out chan<- stretch, free <-chan []byte) {
	defer close(out)
	for len(parts) > 0 && ctx.Err() == nil {
		off, end, n := parts[0].Off-frameSize, parts[0].Off+parts[0].Len, 1
		for n < len(parts) && parts[n].Off >= end && parts[n].Off+parts[n].Len-off <= window {
			end = parts[n].Off + parts[n].Len
			n++
		}
		s := stretch{off: off, parts: parts[:n]}
		select {
		case s.data = <-free:
		case <-ctx.Done():
			return
		}
		if int64(cap(s.data)) < end-off {
			s.data = make([]byte, end-off)
		}
		s.data = s.data[:end-off]
		s.err = readAt(m.src, s.data, off)
		select {
		case out <- s:
		case <-ctx.Done():
			return
		}
		if parts = parts[n:]; s.err != nil {
			return
		}
	}
}

// readAt fills b from offset off of the source.
func readAt(src Source, b []byte, off int64) error {
	n, err := src.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return damaged(src.Name(), "it ends at %d of %d bytes", off+int64(n), src.Size())
	}
	return err
}
