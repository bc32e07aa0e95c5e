// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Sweep removes the temporary files in dir that killed writers left, and returns their number. A temporary file was
// left by a killed writer if no process holds its lock. Sweep skips files that it may not open.
func Sweep(dir string) (int, error) {
	removed := 0
	err := EachName(dir, func(name string) {
		if isTemporary(name) && sweepOne(filepath.Join(dir, name)) {
			removed++
		}
	})
	return removed, err
}

// EachName calls f for each name in dir. At most 1024 names are in memory at a time.
func EachName(dir string, f func(name string)) error {
	d, err := os.Open(dir)
	if err != nil {
		return cause(err)
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, n := range names {
			f(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return cause(err)
		}
	}
}

// cause returns a file system error without the path that it repeats.
func cause(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// isTemporary reports whether name has the form .NAME.<16 hex digits>.nebulaio.tmp.
func isTemporary(name string) bool {
	rest, ok := strings.CutSuffix(name, tempSuffix)
	if !ok || !strings.HasPrefix(rest, ".") || len(rest) < tempDigits+3 {
		return false
	}
	digits := rest[len(rest)-tempDigits:]
	return rest[len(rest)-tempDigits-1] == '.' && strings.Trim(digits, "0123456789abcdef") == ""
}

func sweepOne(name string) bool {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	// The lock is taken before the name is compared. If the file was published or removed before, its name no longer
	// matches.
	if flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil || !sameFile(fd, name) {
		return false
	}
	return unix.Unlink(name) == nil
}

// LockDir tries to get the lock every lockEvery and gives up after lockFor. Publishing takes milliseconds, or up to a
// second on network file systems. All ranks of a job may publish in one directory at once. The last rank has written
// gigabytes and must not fail because it waited.
const (
	lockEvery = 2 * time.Millisecond
	lockFor   = 5 * time.Minute
)

// Dir is an open directory in which a save creates or renames files.
type Dir struct {
	path   string
	fd     int
	locked bool
	lax    bool // the file system cannot sync the directory
}

// OpenDir opens dir without taking its lock. The caller closes the Dir.
func OpenDir(dir string) (*Dir, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap("open directory", dir, err)
	}
	return &Dir{path: dir, fd: fd}, nil
}

// LockDir opens dir and takes its lock, so that one process at a time publishes files in the directory. The lock of a
// directory ends with the process that holds it. If the file system cannot lock directories, Locked reports false. If
// another process keeps the lock for too long, the error is of kind IO. If the context ends before LockDir has the
// lock, the error is of kind Cancelled.
func LockDir(ctx context.Context, dir string) (*Dir, error) {
	const op = "lock directory"
	d, err := OpenDir(dir)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for end := time.Now().Add(lockFor); ; {
		switch err := flock(d.fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			d.locked = true
			return d, nil
		case err != unix.EWOULDBLOCK:
			return d, nil
		}
		if time.Now().After(end) {
			d.Close()
			return nil, errs.New(errs.IO, op, dir,
				"other programs have held its lock for "+lockFor.String()).WithFix("see lslocks for who holds it")
		}
		select {
		case <-ctx.Done():
			d.Close()
			return nil, &errs.Error{Kind: errs.Cancelled, Op: op, Name: dir, Err: context.Cause(ctx)}
		case <-tick.C:
		}
	}
}

// Locked reports whether the Dir holds the lock of the directory.
func (d *Dir) Locked() bool { return d.locked }

// Sync makes new, changed and removed names in the directory durable. If the file system cannot sync a directory, Sync
// returns nil, and Synced reports false.
func (d *Dir) Sync() error {
	err := ignoringEINTR(func() error { return unix.Fsync(d.fd) })
	if err == unix.EINVAL || err == unix.EOPNOTSUPP {
		d.lax = true
		return nil
	}
	return errs.Wrap("sync directory", d.path, err)
}

// Synced reports whether every call of Sync so far really synced the directory.
func (d *Dir) Synced() bool { return !d.lax }

// Close releases the lock and closes the directory. The lock is released even if a forked process still has the
// descriptor.
func (d *Dir) Close() {
	if d.fd >= 0 {
		if d.locked {
			_ = flock(d.fd, unix.LOCK_UN)
		}
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}
