// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Limits of a batch of small files. Two batches, one that fills and one that is committed, are what a kill loses.
const (
	batchBytes = 4 << 20
	batchFiles = 512
)

// folder receives many files below one directory. Small files are written into a staging directory, are synced in
// batches with one call, and then get their names. Their directories are synced when the folder is closed.
type folder struct {
	path    string
	root    *os.Root
	staging *os.File // locked, so that another copy does not sweep it
	name    string   // of the staging directory
	next    atomic.Int64

	mu       sync.Mutex
	idle     sync.Cond // a commit has ended
	dirs     map[string]*subfolder
	batch    []staged
	bytes    int64
	failed   error // of a whole batch: the device cannot sync
	settling bool
}

// subfolder is an open directory below a folder.
type subfolder struct {
	f     *os.File
	users int
	dirty bool // has new names that are not synced
}

// staged is a file that waits for its name.
type staged struct {
	temp, base, key string
	dir             *subfolder
	done            func(error)
}

// mostDirs limits the directories that are open at once.
const mostDirs = 128

// openFolder opens a directory for many files, and makes it if it is missing. It removes what killed copies left in
// staging directories.
func openFolder(name string) (*folder, error) {
	const op = "write to"
	fail := func(err error) (*folder, error) { return nil, errs.Wrap(op, name, errs.WithoutPath(err)) }
	if err := os.MkdirAll(name, 0o777); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return fail(err)
	}
	f := &folder{path: name, root: root, dirs: map[string]*subfolder{}}
	f.idle.L = &f.mu
	f.sweep()
	f.name = stagingPrefix + fmt.Sprintf("%016x", rand.Uint64())
	if err = root.Mkdir(f.name, 0o700); err == nil {
		f.staging, err = root.Open(f.name)
	}
	if err == nil {
		err = unix.Flock(int(f.staging.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = root.Remove(f.name)
		root.Close()
		return fail(err)
	}
	return f, nil
}

// sweep removes the staging directories of copies that were killed.
func (f *folder) sweep() {
	names, err := fs.Glob(f.root.FS(), stagingPrefix+"*")
	if err != nil {
		return
	}
	for _, name := range names {
		d, err := f.root.Open(name)
		if err != nil {
			continue
		}
		if unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = f.root.RemoveAll(name)
		}
		d.Close()
	}
}

// dir opens the directory of a key, and makes it if it is missing. The caller calls leave.
func (f *folder) dir(key string) (*subfolder, string, error) {
	name, base := path.Dir(key), path.Base(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.dirs[name]; d != nil {
		d.users++
		return d, base, nil
	}
	if len(f.dirs) >= mostDirs {
		f.shrink()
	}
	if name != "." {
		if err := f.root.MkdirAll(name, 0o777); err != nil {
			return nil, "", f.fail("make directory of", key, err)
		}
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, "", f.fail("open directory of", key, err)
	}
	d := &subfolder{f: file, users: 1}
	f.dirs[name] = d
	return d, base, nil
}

func (f *folder) leave(d *subfolder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.users--
}

// shrink closes directories that nobody uses.
func (f *folder) shrink() {
	for name, d := range f.dirs {
		if d.users == 0 {
			if d.dirty {
				f.failed = errors.Join(f.failed, d.f.Sync())
			}
			d.f.Close()
			delete(f.dirs, name)
		}
	}
}

// fail explains an error of the file system for a key.
func (f *folder) fail(op, key string, err error) error {
	t := target{path: f.path + "/" + key}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EEXIST) ||
		errors.Is(err, unix.ENOTEMPTY) {
		return &errs.Error{Kind: errs.Invalid, Op: op, Name: t.path, Err: errs.WithoutPath(err),
			Msg: "one name would be a file and a directory",
			Fix: "leave one of them out with --exclude, or copy to an empty directory"}
	}
	if strings.Contains(err.Error(), "escapes") {
		return &errs.Error{Kind: errs.Invalid, Op: op, Name: t.path, Err: errs.WithoutPath(err),
			Fix: "replace the symbolic link below " + f.path + " by a directory"}
	}
	return t.fail(op, err)
}

// put writes a small file. The function done is called once, on any goroutine, when the file has its name or failed.
func (f *folder) put(key string, data []byte, modified time.Time, done func(error)) error {
	d, base, err := f.dir(key)
	if err != nil {
		return err
	}
	temp := strconv.FormatInt(f.next.Add(1), 36)
	if err := f.stage(temp, data, modified); err != nil {
		f.leave(d)
		return f.fail("write", key, err)
	}
	f.mu.Lock()
	f.batch = append(f.batch, staged{temp, base, key, d, done})
	f.bytes += int64(len(data))
	if f.bytes < batchBytes && len(f.batch) < batchFiles {
		f.mu.Unlock()
		return nil
	}
	for f.settling {
		f.idle.Wait()
	}
	batch := f.batch
	if f.batch, f.bytes, f.settling = nil, 0, true; len(batch) == 0 {
		f.settling = false
	}
	f.mu.Unlock()
	if len(batch) > 0 {
		go f.settle(batch)
	}
	return nil
}

// stage writes one file into the staging directory.
func (f *folder) stage(temp string, data []byte, modified time.Time) error {
	fd, err := unix.Openat(int(f.staging.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	for p := data; len(p) > 0 && err == nil; {
		var n int
		if n, err = unix.Write(fd, p); errors.Is(err, unix.EINTR) {
			err = nil
		} else if err == nil {
			p = p[n:]
		}
	}
	if err == nil && !modified.IsZero() {
		t := unix.NsecToTimeval(modified.UnixNano())
		err = unix.Futimes(fd, []unix.Timeval{t, t})
	}
	if e := unix.Close(fd); err == nil {
		err = e
	}
	if err != nil {
		_ = unix.Unlinkat(int(f.staging.Fd()), temp, 0)
	}
	return err
}

// settle syncs a batch and gives its files their names.
func (f *folder) settle(batch []staged) {
	synced := unix.Syncfs(int(f.staging.Fd()))
	for _, s := range batch {
		err := synced
		if err == nil {
			err = unix.Renameat(int(f.staging.Fd()), s.temp, int(s.dir.f.Fd()), s.base)
		}
		if err != nil {
			err = f.fail("put in place", s.key, err)
			_ = unix.Unlinkat(int(f.staging.Fd()), s.temp, 0)
		}
		s.done(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range batch {
		s.dir.users--
		s.dir.dirty = true
	}
	f.settling = false
	f.idle.Broadcast()
}

// flush gives all files their names.
func (f *folder) flush() {
	f.mu.Lock()
	for f.settling {
		f.idle.Wait()
	}
	batch := f.batch
	f.batch, f.bytes, f.settling = nil, 0, true
	f.mu.Unlock()
	f.settle(batch)
}

// large returns the target of a large file, which has a draft and a journal of its own.
func (f *folder) large(key string) (target, error) {
	if dir := path.Dir(key); dir != "." {
		if err := f.root.MkdirAll(dir, 0o777); err != nil {
			return target{}, f.fail("make directory of", key, err)
		}
	}
	dir, err := f.root.OpenRoot(path.Dir(key))
	if err != nil {
		return target{}, f.fail("open directory of", key, err)
	}
	return target{dir: dir, name: path.Base(key), path: f.path + "/" + key}, nil
}

// close gives all files their names, syncs the directories and removes the staging directory.
func (f *folder) close() error {
	f.flush()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shrink()
	err := errs.Wrap("sync", f.path, f.failed)
	if e := f.root.RemoveAll(f.name); e != nil && err == nil {
		err = errs.Wrap("remove", f.path+"/"+f.name, errs.WithoutPath(e))
	}
	return errors.Join(err, f.staging.Close(), f.root.Close())
}
