// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// ballastSize is the space that a store keeps for a full disk: enough for the log of some ten thousand deletions, and
// for the tables that a flush and a small compaction write.
const ballastSize = 16 << 20

// ballast is a file that occupies space. The reserve (see space) keeps the store itself from filling the disk; the
// ballast helps if others fill it. When Pebble finds no space, the file is removed, so that deletions can continue
// and free space. It is created again when there is room for the reserve and for twice its size.
type ballast struct {
	s  *Store
	mu sync.Mutex
}

func (b *ballast) path() string { return b.s.fs.PathJoin(b.s.opts.Dir, layout.BallastName) }

// giveUp removes the file and reports whether it existed.
func (b *ballast) giveUp() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.s.fs.Stat(b.path()); err != nil {
		return false
	}
	return b.s.fs.Remove(b.path()) == nil
}

// take creates the file if it is missing and there is room for it. Otherwise it is tried again later.
func (b *ballast) take() {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.s.fs
	if _, err := f.Stat(b.path()); err == nil {
		return
	}
	if free := b.s.space.look(); free < max(b.s.opts.Reserve, 0)+2*ballastSize {
		return // also where the file system does not tell how much is free
	}
	file, err := layout.Private(f.Create(b.path(), vfs.WriteCategoryUnspecified))
	if err != nil {
		return
	}
	if file.Fd() == vfs.InvalidFd {
		_ = file.Close()
		_ = f.Remove(b.path()) // a file system in memory has no space to hold
		return
	}
	err = file.Preallocate(0, ballastSize)
	if unsupported(err) {
		err = fillFile(file)
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = f.Remove(b.path()) // half a ballast would be taken for a whole one
	}
}

// fillFile occupies the space by writing bytes that no file system can compress.
func fillFile(file vfs.File) error {
	piece := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{})
	for range ballastSize / len(piece) {
		_, _ = source.Read(piece) // never fails
		if _, err := file.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// unsupported reports whether a file system cannot allocate space in advance.
func unsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
