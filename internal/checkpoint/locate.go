// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// extent is a range of a file with the name of what is there: a tensor, or a record of an archive.
type extent struct {
	name string
	off  int64
	size int64
}

const (
	// mostNamed is the largest number of tensors that one problem names.
	mostNamed = 16
	// mostRecords is the largest number of records of a file of torch.save.
	mostRecords = 4 << 20
)

// namesAt returns the names of the extents that overlap a range. The extents are sorted by offset. The count is that of
// all such names, of which at most mostNamed are returned.
func namesAt(all []extent, off, size int64) (found []string, count int) {
	seen := map[string]bool{}
	for _, x := range all {
		if x.off >= off+size {
			break
		}
		if x.off+x.size <= off || seen[x.name] {
			continue
		}
		seen[x.name] = true
		if count++; count <= mostNamed {
			found = append(found, x.name)
		}
	}
	return found, count
}

// extentsOf returns what is where in a data file, sorted by offset.
func (s *state) extentsOf(ctx context.Context, name string, f *vfs.File) ([]extent, error) {
	var out []extent
	var err error
	switch {
	case s.Format == FormatTorchFile:
		out, err = recordsOf(f)
	case s.Format == FormatSafetensors:
		var tensors, e = tensorsOf(ctx, s.folder, name)
		for _, t := range tensors {
			out = append(out, extent{t.Name, t.Offset, t.Size})
		}
		err = e
	case len(s.manifests) > 0:
		for _, m := range s.manifests {
			at := slices.IndexFunc(m.Files, func(x FileSum) bool { return x.Name == name })
			for _, it := range m.Items {
				if it.File == at {
					out = append(out, extent{it.Tensor, it.Offset, it.Size})
				}
			}
		}
	default:
		for _, x := range s.stored {
			if x.file == name {
				out = append(out, extent{x.tensor, x.offset, x.size})
			}
		}
	}
	slices.SortFunc(out, func(a, b extent) int { return cmp.Compare(a.off, b.off) })
	return out, err
}

// recordsOf returns the records of a file of torch.save. A file in the format of before PyTorch 1.6 is one pickle, and
// has no records.
func recordsOf(f *vfs.File) ([]extent, error) {
	var head [2]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		if f.Size() < int64(len(head)) {
			err = errs.New(errs.Corrupt, "", "", fmt.Sprintf("has %d bytes, expected a file of torch.save", f.Size()))
		}
		return nil, err
	}
	if head[0] == 0x80 {
		return nil, nil
	}
	z, err := zip.NewReader(&limited{f}, f.Size())
	if errors.Is(err, zip.ErrInsecurePath) {
		err = nil // nothing is extracted
	}
	if err != nil {
		return nil, errs.New(errs.Corrupt, "", "", "is not a file of torch.save, or is truncated: "+err.Error())
	}
	if len(z.File) > mostRecords {
		return nil, errs.New(errs.Unsupported, "", "", fmt.Sprintf("has more than %d records", mostRecords))
	}
	out := make([]extent, 0, len(z.File))
	for _, r := range z.File {
		off, err := r.DataOffset()
		if err != nil || off+int64(r.CompressedSize64) > f.Size() || int64(r.CompressedSize64) < 0 {
			return nil, errs.New(errs.Corrupt, "", "", fmt.Sprintf("the record %.80q is not in the file: %v", r.Name, err))
		}
		out = append(out, extent{strings.ToValidUTF8(r.Name, "?"), off, int64(r.CompressedSize64)})
	}
	return out, nil
}

// limited reads from a file as io.ReaderAt has to: a read over the end returns the bytes before it.
type limited struct{ f *vfs.File }

func (l *limited) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, min(int64(len(p)), l.f.Size()-off))
	m, err := l.f.ReadAt(p[:n], off)
	if err == nil && m < len(p) {
		err = io.EOF
	}
	return m, err
}
