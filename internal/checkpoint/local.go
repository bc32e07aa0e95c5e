// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// mostEntries is the largest number of names in a folder of checkpoints. It bounds the memory of a listing.
const mostEntries = 1 << 20

// local is a directory of this machine.
type local struct {
	path string
	top  string // the directory that the user named; links must not lead out of it
}

// NewLocal returns the directory at a path. The directory need not exist.
func NewLocal(path string) Folder {
	return &local{path: filepath.Clean(path), top: filepath.Clean(path)}
}

func (d *local) Shown(name string) string {
	if name == "" {
		return d.path
	}
	return filepath.Join(d.path, name)
}

func (d *local) Folder(name string) Folder {
	return &local{path: filepath.Join(d.path, name), top: d.top}
}

func (d *local) Atomic() bool { return false }

func (d *local) Entries(context.Context) ([]Entry, error) {
	const op = "list"
	dir, err := os.Open(d.path)
	if err != nil {
		return nil, errs.Wrap(op, d.path, errs.WithoutPath(err))
	}
	defer dir.Close()
	found, err := dir.ReadDir(mostEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errs.Wrap(op, d.path, errs.WithoutPath(err))
	}
	if len(found) > mostEntries {
		return nil, errs.New(errs.Unsupported, op, d.path, fmt.Sprintf("it holds more than %d names", mostEntries))
	}
	out := make([]Entry, 0, len(found))
	for _, x := range found {
		st, err := x.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, errs.Wrap(op, d.Shown(x.Name()), errs.WithoutPath(err))
		}
		e := Entry{Name: x.Name(), Kind: kindOf(st.Mode()), Size: st.Size(), Time: st.ModTime()}
		if e.Kind == KindLink {
			e = d.follow(e)
		}
		out = append(out, e)
	}
	sortEntries(out)
	return out, nil
}

func kindOf(m fs.FileMode) Kind {
	switch {
	case m.IsRegular():
		return KindFile
	case m.IsDir():
		return KindFolder
	case m&fs.ModeSymlink != 0:
		return KindLink
	}
	return KindOther
}

// follow describes the file that a link leads to, if the file is below the directory that the user named. Any other
// link stays a link.
func (d *local) follow(e Entry) Entry {
	if to, err := d.resolve(e.Name); err == nil {
		if st, err := os.Stat(to); err == nil && st.Mode().IsRegular() {
			return Entry{Name: e.Name, Kind: KindFile, Size: st.Size(), Time: st.ModTime()}
		}
	}
	return e
}

// resolve returns the path of a file without links, and fails if the file is outside of the directory that the user
// named.
func (d *local) resolve(name string) (string, error) {
	path := d.Shown(name)
	st, err := os.Lstat(path)
	if err != nil {
		return "", errs.Wrap("open", path, errs.WithoutPath(err))
	}
	if st.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	to, err := filepath.EvalSymlinks(path)
	if err == nil {
		var top string
		if top, err = filepath.EvalSymlinks(d.top); err == nil && !within(top, to) {
			return "", errs.New(errs.Invalid, "open", path, "is a link that leads out of "+d.top).
				WithFix("put the file itself in its place")
		}
	}
	return to, errs.Wrap("open", path, errs.WithoutPath(err))
}

// within reports whether path is below dir. Both have no links.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func (d *local) ReadAll(_ context.Context, name string, limit int64) ([]byte, error) {
	path, err := d.resolve(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errs.Wrap("read", d.Shown(name), errs.WithoutPath(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, errs.Wrap("read", d.Shown(name), errs.WithoutPath(err))
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, errs.New(errs.Invalid, "read", d.Shown(name),
			fmt.Sprintf("is no regular file of at most %d bytes", limit))
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return b, errs.Wrap("read", d.Shown(name), errs.WithoutPath(err))
}

func (d *local) Open(_ context.Context, name string) (Opened, error) {
	path, err := d.resolve(name)
	if err != nil {
		return Opened{}, err
	}
	f, err := vfs.Open(path)
	if err != nil {
		return Opened{}, err
	}
	sums, err := checksum.ReadFor(path, f.Size(), checksum.ID(f.Identity()))
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return Opened{File: f, Sums: sums, SumsErr: err}, nil
}

func (d *local) Put(_ context.Context, name string, content []byte) error {
	path := d.Shown(name)
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return errs.New(errs.Invalid, "write", path, "is not a regular file, and is not replaced").WithFix("remove it")
	}
	f, err := vfs.Create(path, int64(len(content)))
	if err != nil {
		return err
	}
	defer f.Abandon() // does nothing after Publish
	if err := f.WriteBuffered(content, 0); err != nil {
		return err
	}
	if _, err := f.Seal(); err != nil {
		return err
	}
	release, err := f.Publish()
	release()
	if err != nil {
		return err
	}
	return syncDir(d.path)
}

func syncDir(path string) error {
	dir, err := vfs.OpenDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Sync makes the names in the directory durable, and the name of the directory itself. The directories above may also
// be new, so Sync goes up as far as the file system reaches and the process may read.
func (d *local) Sync(context.Context) error {
	if err := syncDir(d.path); err != nil {
		return err
	}
	path, err := filepath.Abs(d.path)
	if err != nil {
		return errs.Wrap("sync directory", d.path, err)
	}
	var first, st unix.Stat_t
	if err := unix.Stat(path, &first); err != nil {
		return errs.Wrap("sync directory", d.path, err)
	}
	for path != "/" {
		path = filepath.Dir(path)
		if err := unix.Stat(path, &st); err != nil || st.Dev != first.Dev {
			return nil
		}
		if err := syncDir(path); errs.Is(err, errs.Permission) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// root opens the directory so that no name and no link leads out of it.
func (d *local) root() (*os.Root, error) {
	r, err := os.OpenRoot(d.path)
	return r, errs.Wrap("open directory", d.path, errs.WithoutPath(err))
}

func (d *local) Remove(_ context.Context, names []string) error {
	r, err := d.root()
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for _, name := range names {
		if err := r.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap("remove", d.Shown(name), errs.WithoutPath(err))
		}
	}
	return nil
}

func (d *local) Discard(_ context.Context, name string) error {
	r, err := d.root()
	if err != nil {
		return err
	}
	defer r.Close()
	return errs.Wrap("remove", d.Shown(name), errs.WithoutPath(r.RemoveAll(name)))
}

func (d *local) Hide(_ context.Context, name string) (string, error) {
	r, err := d.root()
	if err != nil {
		return name, err
	}
	defer r.Close()
	hidden := fmt.Sprintf(".%s.%016x%s", name, rand.Uint64(), prunedSuffix)
	if err := r.Rename(name, hidden); err != nil {
		return name, errs.Wrap("rename", d.Shown(name), errs.WithoutPath(err))
	}
	return hidden, syncDir(d.path)
}

func (d *local) Lock(ctx context.Context) (func(), error) {
	dir, err := vfs.LockDir(ctx, d.path)
	if err != nil {
		return nil, err
	}
	return dir.Close, nil
}

func (d *local) Writing(ctx context.Context) (bool, error) {
	all, err := d.Entries(ctx)
	if err != nil {
		return false, err
	}
	for _, e := range all {
		if e.Kind == KindFile && isTemporary(e.Name) && isLocked(d.Shown(e.Name)) {
			return true, nil
		}
	}
	return false, nil
}

// isLocked reports whether a process holds the lock of a temporary file. A file that cannot be opened counts as locked,
// because its writer may be another user.
func isLocked(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err == unix.ENOENT {
		return false
	}
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	// A shared lock does not stop a second reader of the lock, and a sweeper at the same moment only skips the file.
	return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil
}
