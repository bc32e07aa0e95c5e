// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Kind is the kind of an entry of a Folder.
type Kind int

// Kinds of entries.
const (
	KindFile   Kind = iota // a regular file or an object
	KindFolder             // a directory, or objects with a common prefix
	KindLink               // a symbolic link
	KindOther              // a pipe, a socket or a device
)

// Entry is a file, an object or a folder directly below a Folder.
type Entry struct {
	Name string
	Kind Kind
	Size int64     // of a file in bytes
	Time time.Time // of the last change; zero for the folders of a bucket
}

// Opened is an open file of a Folder. The caller closes the file.
type Opened struct {
	File *vfs.File
	// Sums are the checksums of the file's blocks, or nil if there are none.
	Sums *checksum.Sums
	// SumsErr is set if there are checksums that cannot be used, because they are damaged or of another file.
	SumsErr error
}

// Folder is a directory of this machine, or a prefix of a bucket. Names are the names of direct children: they contain
// no slash. If a file or folder does not exist, errors are of kind NotFound.
type Folder interface {
	// Shown returns the name of a child for messages; "" means the folder itself.
	Shown(name string) string
	// Folder returns a child folder, which need not exist.
	Folder(name string) Folder
	// Entries lists the children, sorted by name.
	Entries(ctx context.Context) ([]Entry, error)
	// ReadAll returns the content of a file. If the file has more than `limit` bytes, ReadAll fails.
	ReadAll(ctx context.Context, name string, limit int64) ([]byte, error)
	// Open opens a file for reading, with the checksums of its blocks.
	Open(ctx context.Context, name string) (Opened, error)
	// Put writes a file. The file appears under its name when it is complete and durable, and replaces an older one.
	Put(ctx context.Context, name string, content []byte) error
	// Remove removes files. A file that does not exist is no error. Removals are durable after Sync.
	Remove(ctx context.Context, names []string) error
	// Discard removes a child folder with everything in it, and follows no links.
	Discard(ctx context.Context, name string) error
	// Hide gives a child folder another name, so that it is no longer listed, and returns the new name. If folders cannot
	// be renamed here, Hide returns the old name.
	Hide(ctx context.Context, name string) (string, error)
	// Atomic reports whether files appear only when they are complete, as objects of a bucket do.
	Atomic() bool
	// Sync makes changes of names durable.
	Sync(ctx context.Context) error
	// Lock keeps other processes from committing and pruning in this folder. The caller calls the result once. A bucket
	// has no locks, and Lock does nothing.
	Lock(ctx context.Context) (unlock func(), err error)
	// Writing reports whether another process is writing a file of this folder.
	Writing(ctx context.Context) (bool, error)
}
