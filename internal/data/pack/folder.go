// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// hidden begins the names of all files that are not part of a pack.
	hidden = ".nebulaio-"
	// tempPrefix begins the names of files that are being written.
	tempPrefix = hidden + "tmp-"
	// writeBehind is the number of written bytes after which the kernel is asked to write them to disk. Without it, all
	// bytes of a file would wait for its Commit.
	writeBehind = 8 << 20
)

// errChanged is the cause of errors about files that change while they are read.
var errChanged = errors.New("the file changed while it was being packed")

// changed returns the error about a file that has another size than in the listing.
func changed(name string, want, got int64) error {
	text := fmt.Sprintf("it had %d bytes and has %d now", want, got)
	if got > want {
		text = fmt.Sprintf("it had %d bytes and has more now", want)
	}
	return &errs.Error{Kind: errs.IO, Op: "read", Name: name, Msg: text, Err: errChanged,
		Fix: "run the command with --restart when nobody writes to the source"}
}

// folder is a folder of this machine.
type folder struct {
	path string

	made sync.Map // folders that Put has made
	mu   sync.Mutex
	root *os.Root // nil before the first Put
}

// NewFolder returns the folder at a path. The folder need not exist.
func NewFolder(path string) Place { return &folder{path: path} }

func (d *folder) Shown(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

func (d *folder) Lock(context.Context) (func(), error) {
	const op = "write to"
	if err := os.MkdirAll(d.path, 0o777); err != nil {
		return nil, errs.Wrap(op, d.path, errs.WithoutPath(err))
	}
	dir, err := os.Open(d.path)
	if err != nil {
		return nil, errs.Wrap(op, d.path, errs.WithoutPath(err))
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		if err == unix.EWOULDBLOCK {
			return nil, errs.New(errs.Invalid, op, d.path, "another process packs or unpacks to this folder").
				WithFix("wait for the other process, or choose another folder")
		}
		return nil, errs.Wrap(op, d.path, err)
	}
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, tempPrefix) {
			err = os.Remove(filepath.Join(d.path, name))
		}
	}
	if err != nil {
		dir.Close()
		return nil, errs.Wrap(op, d.path, errs.WithoutPath(err))
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.root != nil {
			d.root.Close()
			d.root = nil
		}
		dir.Close()
	}, nil
}

func (d *folder) Create(_ context.Context, name string) (File, error) {
	temp := d.Shown(tempPrefix + strings.ReplaceAll(name, "/", "-"))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, errs.Wrap("create", d.Shown(name), errs.WithoutPath(err))
	}
	return &newFile{f: f, temp: temp, path: d.Shown(name)}, nil
}

// Put writes a file through os.Root, so that no name and no link leads out of the folder.
func (d *folder) Put(_ context.Context, name string, content io.WriterTo) error {
	wrap := func(err error) error { return errs.Wrap("write", d.Shown(name), errs.WithoutPath(err)) }
	root, err := d.opened()
	if err != nil {
		return wrap(err)
	}
	if dir := path.Dir(name); dir != "." {
		if _, made := d.made.Load(dir); !made {
			if err := root.MkdirAll(dir, 0o777); err != nil {
				return wrap(err)
			}
			d.made.Store(dir, true)
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return wrap(err)
	}
	_, err = content.WriteTo(f)
	if e := f.Close(); err == nil {
		err = e
	}
	return wrap(err)
}

// opened returns the folder as a root, which stays open while the folder is locked.
func (d *folder) opened() (*os.Root, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.root == nil {
		d.root, err = os.OpenRoot(d.path)
	}
	return d.root, err
}

// Flush syncs the file system, because a sync of each small file would take far longer.
func (d *folder) Flush(context.Context) error {
	dir, err := os.Open(d.path)
	if err != nil {
		return errs.Wrap("sync", d.path, errs.WithoutPath(err))
	}
	defer dir.Close()
	return errs.Wrap("sync", d.path, unix.Syncfs(int(dir.Fd())))
}

func (d *folder) Remove(_ context.Context, name string) error {
	err := os.Remove(d.Shown(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errs.Wrap("remove", d.Shown(name), errs.WithoutPath(err))
}

func (d *folder) Sync(context.Context) error {
	dir, err := os.Open(d.path)
	if err != nil {
		return errs.Wrap("sync", d.path, errs.WithoutPath(err))
	}
	defer dir.Close()
	return errs.Wrap("sync", d.path, errs.WithoutPath(dir.Sync()))
}

// drop asks the kernel to forget the content of a file, so that the next read comes from the disk. If the kernel does
// not, the read comes from memory.
func (d *folder) drop(name string) {
	if f, err := os.Open(d.Shown(name)); err == nil {
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
	}
}

func (d *folder) NewReader() Reader { return &folderReader{root: d.path, dir: -1, file: -1} }

// newFile is a file of a folder that has a temporary name until Commit.
type newFile struct {
	f          *os.File
	temp, path string
	written    int64
	behind     int64 // how much of the file the kernel was asked to write to disk
	done       bool
}

func (f *newFile) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	if err != nil {
		return n, errs.Wrap("write", f.path, errs.WithoutPath(err))
	}
	if f.written += int64(n); f.written-f.behind >= writeBehind {
		// This is a hint: if it fails, Commit takes longer.
		_ = unix.SyncFileRange(int(f.f.Fd()), f.behind, f.written-f.behind, unix.SYNC_FILE_RANGE_WRITE)
		f.behind = f.written
	}
	return n, nil
}

func (f *newFile) Commit() error {
	f.done = true
	err := f.f.Sync()
	if e := f.f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.temp, f.path)
	}
	if err != nil {
		_ = os.Remove(f.temp)
	}
	return errs.Wrap("write", f.path, errs.WithoutPath(err))
}

func (f *newFile) Abort() {
	if !f.done {
		f.done = true
		f.f.Close()
		_ = os.Remove(f.temp)
	}
}

// folderReader reads the files of a folder. It keeps the last directory open, because a path with many components is
// slow to open, and the last file, which is often read in several pieces.
type folderReader struct {
	root    string
	dir     int // descriptor of the directory, or -1
	dirName string
	file    int // descriptor of the file of ReadAt, or -1
	name    string
}

// open opens a file relative to its directory.
func (r *folderReader) open(name string) (int, error) {
	dir, base := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i], name[i+1:]
	}
	if r.dir < 0 || dir != r.dirName {
		if r.dir >= 0 {
			unix.Close(r.dir)
			r.dir = -1
		}
		fd, err := unix.Open(filepath.Join(r.root, dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		r.dir, r.dirName = fd, dir
	}
	for {
		fd, err := unix.Openat(r.dir, base, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (r *folderReader) Read(_ context.Context, e Entry, dst []byte) error {
	fd, err := r.open(e.Name)
	if err != nil {
		return errs.Wrap("read", filepath.Join(r.root, e.Name), err)
	}
	defer unix.Close(fd)
	have := 0
	for have <= len(dst) { // one byte more than the file had finds a file that has grown
		n, err := unix.Read(fd, dst[have:len(dst)+1])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return errs.Wrap("read", filepath.Join(r.root, e.Name), err)
		}
		if have += n; n == 0 || have == len(dst) {
			break // a read that ends before its buffer does is at the end of the file
		}
	}
	if have != len(dst) {
		return changed(filepath.Join(r.root, e.Name), e.Size, int64(have))
	}
	return nil
}

func (r *folderReader) ReadAt(_ context.Context, e Entry, dst []byte, off int64) (int, error) {
	if r.file < 0 || r.name != e.Name {
		if r.file >= 0 {
			unix.Close(r.file)
			r.file = -1
		}
		fd, err := r.open(e.Name)
		if err != nil {
			return 0, errs.Wrap("read", filepath.Join(r.root, e.Name), err)
		}
		r.file, r.name = fd, e.Name
	}
	have := 0
	for have < len(dst) {
		n, err := unix.Pread(r.file, dst[have:], off+int64(have))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return have, errs.Wrap("read", filepath.Join(r.root, e.Name), err)
		}
		if n == 0 {
			break
		}
		have += n
	}
	return have, nil
}

func (r *folderReader) Close() error {
	for _, fd := range []int{r.dir, r.file} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	r.dir, r.file = -1, -1
	return nil
}
