// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Read reads the sidecar of the current version of file. The parameter `size` is the size of file in bytes. The error
// is of kind NotFound if the sidecar is missing, and of kind Corrupt if the sidecar is damaged or was made for other
// content. The fix in the error names the command that makes a new sidecar.
func Read(file string, size int64) (*Sums, error) {
	id, _ := identify(file) // without a stat of the file only the plain name is tried
	return ReadFor(file, size, id)
}

// ReadFor reads the checksums of a file version that is already open; id identifies the version. ReadFor looks for a
// pending sidecar of the open version before it looks for the plain sidecar. If the file was replaced after it was
// opened, ReadFor uses only a pending sidecar of the open version. If the file was replaced and the open version has
// no pending sidecar, the error is of kind IO.
func ReadFor(file string, size int64, id ID) (*Sums, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		real = file
	}
	// The pending name is tried again at the end. A save without checksums moves the old sidecar to the pending name
	// while it replaces the file.
	for _, name := range []string{Pending(real, id), Path(real), Path(file), Pending(real, id)} {
		s, err := readSidecar(name, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if name != Pending(real, id) && id != (ID{}) && !Current(file, id) {
			return nil, errReplaced(file)
		}
		if err != nil {
			return nil, err
		}
		if err := s.CheckSize(file, size); err != nil {
			return nil, err
		}
		return s, nil
	}
	if id != (ID{}) && !Current(file, id) {
		return nil, errReplaced(file)
	}
	return nil, errs.New(errs.NotFound, "verify", file,
		"has no checksums: "+Path(file)+" does not exist").WithFix("make them of a copy that is known to be good with: " +
		Remedy(file))
}

func errReplaced(file string) error {
	return errs.New(errs.IO, "verify", file,
		"the file was replaced or changed after it was opened: its checksums may be those of another version").WithFix(
		"load it again")
}

// identify returns the current version of file.
func identify(file string) (ID, error) {
	st, err := os.Stat(file)
	if err != nil {
		return ID{}, err
	}
	return idOf(st), nil
}

func idOf(st fs.FileInfo) ID {
	sys := st.Sys().(*syscall.Stat_t) // on Linux it always has this type
	return ID{Inode: sys.Ino, MtimeNs: sys.Mtim.Nano()}
}

// readSidecar reads and checks the sidecar at the path name. If the sidecar does not exist, the error is
// fs.ErrNotExist.
func readSidecar(name, file string) (*Sums, error) {
	f, err := os.Open(name)
	if absent(err) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, wrap("read checksums", name, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, wrap("read checksums", name, err)
	} else if !st.Mode().IsRegular() || st.Size() > maxSidecar {
		return nil, errs.New(errs.Corrupt, "read checksums", name,
			fmt.Sprintf("is no regular file of at most %d bytes", maxSidecar)).WithFix("remove it, then: " + Remedy(file))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSidecar+1))
	if err != nil {
		return nil, wrap("read checksums", name, err)
	}
	return Parse(name, b)
}
