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

// Read reads the sidecar of file, which has size bytes, as it is now.
// A missing one is of kind NotFound, a damaged or stale one of kind Corrupt; the
// errors name the command that makes it.
func Read(file string, size int64) (*Sums, error) {
	id, _ := identify(file) // a file that cannot be looked at has only the plain name
	return ReadFor(file, size, id)
}

// ReadFor reads the sums of a version of file that is already open. Pending sums of
// that version come before sums with the plain name. If the file has been replaced
// since it was opened, only its pending sums are used. Without them the error is of
// kind IO.
func ReadFor(file string, size int64, id ID) (*Sums, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		real = file
	}
	// The pending name comes again at the end: a save that writes no sums moves
	// the old ones there while it replaces the file.
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
		"the file was replaced or changed after it was opened: its checksums may be those of another version").WithFix("load it again")
}

// identify looks at the version of file that has its name now.
func identify(file string) (ID, error) {
	st, err := os.Stat(file)
	if err != nil {
		return ID{}, err
	}
	return idOf(st), nil
}

func idOf(st fs.FileInfo) ID {
	sys := st.Sys().(*syscall.Stat_t) // on Linux it is nothing else
	return ID{Inode: sys.Ino, MtimeNs: sys.Mtim.Nano()}
}

// readSidecar reads and checks the sidecar called name; one that does not exist
// is fs.ErrNotExist.
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
