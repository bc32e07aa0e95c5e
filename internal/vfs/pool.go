// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Pool limits the number of file descriptors that are open for many Files. If a file is not in use, the pool may close
// its descriptors. Pin opens the closed descriptors of a file again, and fails if the path now leads to another
// version of the file. The methods of a Pool and of its files are safe for concurrent use.
type Pool struct {
	most int // largest number of files with descriptors, unless more are in use at once

	mu   sync.Mutex
	open int        // files with descriptors
	idle *list.List // unused *File with descriptors, the least recently used first
}

// pooled is the state of a file in its pool.
type pooled struct {
	pool    *Pool
	opening sync.Mutex // held while descriptors are opened or closed
	users   int        // users and place are guarded by Pool.mu
	place   *list.Element
}

// NewPool returns a Pool that keeps the descriptors of at most the given number of files open.
func NewPool(most int) *Pool { return &Pool{most: max(most, 1), idle: list.New()} }

// PoolSize returns the number of files of one model that keep their descriptors open. The number of files is an eighth
// of the process's limit of open files, but at least 8 and at most 1024. Each file has two descriptors, so the limit
// has room for several models.
func PoolSize() int {
	const least, most = 8, 1024
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return least
	}
	return int(min(max(l.Cur/8, least), most))
}

// Adopt adds f to the pool. No other goroutine may use f before Adopt has returned. Adopt ignores remote files and
// files that were passed as descriptors.
func (p *Pool) Adopt(f *File) {
	if f.pooled.pool != nil || f.remote != nil || f.passed {
		return
	}
	f.pooled.pool = p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	f.pooled.place = p.idle.PushBack(f)
	p.shrink(p.most)
}

// Pin keeps the descriptors of f open until Unpin. Each Pin needs its own Unpin. If f is in no pool, Pin does
// nothing.
func (f *File) Pin() error {
	p := f.pooled.pool
	if p == nil {
		return nil
	}
	p.mu.Lock()
	f.pooled.users++
	if f.pooled.place != nil {
		p.idle.Remove(f.pooled.place)
		f.pooled.place = nil
	}
	p.mu.Unlock()
	f.pooled.opening.Lock()
	defer f.pooled.opening.Unlock()
	if f.buffered >= 0 {
		return nil
	}
	p.mu.Lock()
	p.shrink(p.most - 1)
	p.open++
	p.mu.Unlock()
	err := f.openAgain()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		p.mu.Lock()
		p.shrink(0)
		p.mu.Unlock()
		err = f.openAgain()
	}
	if err != nil {
		p.mu.Lock()
		p.open--
		f.pooled.users--
		p.mu.Unlock()
	}
	return err
}

// Unpin ends one successful Pin.
func (f *File) Unpin() {
	p := f.pooled.pool
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.pooled.users--; f.pooled.users == 0 {
		f.pooled.place = p.idle.PushBack(f)
		p.shrink(p.most)
	}
}

// Pooled reports whether f is in a Pool, which may close its descriptors while f is not in use.
func (f *File) Pooled() bool { return f.pooled.pool != nil }

// shrink closes idle files until at most most files have descriptors. The caller holds mu. No goroutine holds the
// lock of an idle file, because it becomes a user before it opens the file.
func (p *Pool) shrink(most int) {
	for p.open > most && p.idle.Len() > 0 {
		f := p.idle.Remove(p.idle.Front()).(*File)
		f.pooled.place = nil
		f.pooled.opening.Lock()
		_ = f.shut() // the file was only read
		f.pooled.opening.Unlock()
		p.open--
	}
}

// leave removes f, which is not in use, from its pool. The descriptors of f stay as they are.
func (p *Pool) leave(f *File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.pooled.place != nil {
		p.idle.Remove(f.pooled.place)
		f.pooled.place = nil
	}
	if f.buffered >= 0 {
		p.open--
	}
	f.pooled.pool = nil
}

// openAgain opens the descriptors of a file after the pool closed them.
func (f *File) openAgain() error {
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return errs.Wrap("open again", f.path, err)
	}
	fail := func(err error) error { return errors.Join(err, unix.Close(fd)) }
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(errs.Wrap("stat", f.path, err))
	}
	if st.Dev != f.dev || st.Ino != f.id.Inode || st.Size != f.size || st.Mtim.Nano() != f.id.MtimeNs {
		return fail(errs.New(errs.IO, "open again", f.path, fmt.Sprintf(
			"the file was replaced or changed since it was opened: size %d and mtime %s then, now size %d and mtime %s",
			f.size, f.mtime.UTC().Format(time.RFC3339Nano), st.Size, time.Unix(st.Mtim.Unix()).UTC().Format(time.RFC3339Nano))).
			WithFix("load it again; a model of more files than may be open at once (ulimit -n) is opened file by file"))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0); err != nil {
		return fail(errs.Wrap("open again", f.path, err))
	}
	direct := -1
	if f.pastCache {
		if direct, err = unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0); err != nil {
			return fail(errs.Wrap("open again with O_DIRECT", f.path, err))
		}
		var same unix.Stat_t
		if err := unix.Fstat(direct, &same); err != nil || same.Ino != st.Ino || same.Dev != st.Dev {
			return fail(errors.Join(errs.New(errs.IO, "open again", f.path,
				"the file was replaced while it was being opened").WithFix("load it again"), unix.Close(direct)))
		}
	}
	f.buffered, f.direct = fd, direct
	return nil
}

// shut closes the descriptors.
func (f *File) shut() error {
	var err error
	if f.direct >= 0 {
		err = unix.Close(f.direct)
		f.direct = -1
	}
	if f.buffered >= 0 {
		err = errors.Join(err, unix.Close(f.buffered))
		f.buffered = -1
	}
	return err
}
