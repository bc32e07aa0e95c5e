// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// seeds are two seeds of hashes of names. Two names have both hashes in common only by chance of 2^-128.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// content is the content of a file to write: bytes in memory, or a range of the pack.
type content struct {
	before []byte // the header of a .npy file
	data   []byte
	large  *io.SectionReader // instead of data
	n      int64             // number of bytes without the header
}

// size returns the number of bytes.
func (c *content) size() int64 { return int64(len(c.before)) + c.n }

// WriteTo writes the content.
func (c *content) WriteTo(w io.Writer) (int64, error) {
	if len(c.before) > 0 {
		if _, err := w.Write(c.before); err != nil {
			return 0, err
		}
	}
	if c.large == nil {
		n, err := w.Write(c.data)
		return int64(n), err
	}
	return io.CopyBuffer(struct{ io.Writer }{w}, c.large, make([]byte, 1<<20))
}

// span unpacks a range of the samples of a file.
func (u *unpacker) span(ctx context.Context, f Opened, s span, finished bool) error {
	t := u.in.Tables[s.file]
	inTable := t.Key(s.lo) != "" || t.Column(keyColumn) < 0 && !slices.Equal(t.Columns(), []string{tfrecord.Column})
	var data []byte
	var base int64
	if !finished || !inTable {
		var err error
		if data, base, err = readSpan(f, t, s); err != nil {
			return err
		}
	}
	for i := s.lo; i < s.hi; i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		parts := make(map[string]*content, len(t.Columns()))
		for c, column := range t.Columns() {
			e, ok := t.Part(i, c)
			if !ok {
				continue
			}
			part := &content{n: e.Size}
			switch {
			case finished && inTable:
			case data != nil:
				part.data = data[e.Offset-base : e.Offset-base+e.Size]
			default:
				part.large = io.NewSectionReader(f, e.Offset, e.Size)
			}
			if u.in.Header != nil {
				var err error
				if part.before, err = u.in.Header(s.file, e.Size); err != nil {
					return err
				}
				column = "npy"
			}
			parts[column] = part
		}
		if err := u.sample(ctx, t, i, u.first[s.file]+int64(i), parts, finished); err != nil {
			return err
		}
	}
	return nil
}

// readSpan reads the samples of a span at once. The result is nil if they are too far from each other or too large.
func readSpan(f io.ReaderAt, t *sample.Table, s span) ([]byte, int64, error) {
	lo, hi := int64(1<<63-1), int64(0)
	for i := s.lo; i < s.hi; i++ {
		for c := range t.Columns() {
			if e, ok := t.Part(i, c); ok {
				lo, hi = min(lo, e.Offset), max(hi, e.Offset+e.Size)
			}
		}
	}
	if hi <= lo {
		return []byte{}, min(lo, hi), nil
	}
	if hi-lo > 4*spanSize {
		return nil, 0, nil
	}
	b := make([]byte, hi-lo)
	return b, lo, sample.ReadFull(f, b, lo, "unpack", t.File())
}

// sample writes the parts of a sample.
func (u *unpacker) sample(ctx context.Context, t *sample.Table, i int, number int64, parts map[string]*content,
	finished bool) error {
	key := t.Key(i)
	if key == "" {
		if err := keyOf(parts, &key); err != nil {
			return errs.Wrap("unpack", t.File(), err)
		}
	}
	if key == "" {
		key = fmt.Sprintf("%012d", number)
	}
	for _, ext := range slices.Sorted(maps.Keys(parts)) {
		name := key
		if ext != "" {
			name += "." + ext
		}
		why := wrongPath(name)
		if why == "" && strings.Contains(ext, "/") {
			why = "the name of the part has a slash"
		}
		if why == "" && !u.claim(name) {
			why = "two parts have the same name"
		}
		if why != "" {
			return errs.New(errs.Corrupt, "unpack", t.File(), fmt.Sprintf("sample %d, part %.200q: %s", i, name, why)).
				WithFix("the pack is damaged or hostile: its keys cannot be the names of files")
		}
		u.count(parts[ext].size())
		if finished {
			continue
		}
		if err := u.out.Put(ctx, name, parts[ext]); err != nil {
			return err
		}
	}
	return nil
}

// count counts a file.
func (u *unpacker) count(bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.res.Files++
	u.res.Bytes += bytes
}

// keyOf takes the key of a sample out of its parts: the column __key__ of MDS, or the features of an example in a
// TFRecord. A record that is no example stays as it is.
func keyOf(parts map[string]*content, key *string) error {
	read := func(c *content) ([]byte, error) {
		if c.large == nil {
			return c.data, nil
		}
		b := make([]byte, c.large.Size())
		_, err := io.ReadFull(c.large, b)
		if err != nil {
			return nil, err
		}
		_, err = c.large.Seek(0, io.SeekStart)
		return b, err
	}
	if k := parts[keyColumn]; k != nil && len(parts) > 1 {
		b, err := read(k)
		if err != nil {
			return err
		}
		*key = string(b)
		delete(parts, keyColumn)
		return nil
	}
	r := parts[tfrecord.Column]
	if r == nil || len(parts) > 1 {
		return nil
	}
	b, err := read(r)
	if err != nil {
		return err
	}
	features, ok := parseExample(b)
	if !ok {
		return nil
	}
	delete(parts, tfrecord.Column)
	for _, f := range features {
		if parts[f.name] != nil {
			return errs.New(errs.Corrupt, "", "", fmt.Sprintf("an example has two features %.200q", f.name))
		}
		if f.name == keyColumn {
			*key = string(f.value)
			continue
		}
		parts[f.name] = &content{data: f.value, n: int64(len(f.value))}
	}
	return nil
}

// wrongPath returns why a name cannot be a file below a folder, or "".
func wrongPath(name string) string {
	switch {
	case name == "" || name == ".":
		return "the name is empty"
	case strings.HasPrefix(name, "/"):
		return "the name is an absolute path"
	case strings.IndexByte(name, 0) >= 0:
		return "the name has a NUL"
	case name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") ||
		strings.HasSuffix(name, "/.."):
		return "the name leads out of its folder"
	case path.Clean(name) != name:
		return "the name has empty or . components"
	case strings.HasPrefix(name, hidden):
		return "names that begin with " + hidden + " are reserved"
	}
	return ""
}

// claim returns true for the first file with a name.
func (u *unpacker) claim(name string) bool {
	h := [2]uint64{maphash.String(seeds[0], name), maphash.String(seeds[1], name)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, taken := u.names[h]; taken {
		return false
	}
	u.names[h] = struct{}{}
	return true
}
