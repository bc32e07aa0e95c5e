// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"io"
)

// Entry is a file of a folder, or an object below a prefix.
type Entry struct {
	Name  string // relative to the place, with slashes
	Size  int64  // in bytes
	Stamp uint64 // changes with the content: the modification time in nanoseconds, or a sum of the ETag
}

// Bad is a file or a sample that cannot be packed.
type Bad struct {
	Name   string `json:"name"`   // relative to the source
	Reason string `json:"reason"` // why it cannot be packed
}

// Place is a folder or a bucket prefix. All methods may be called by several goroutines.
type Place interface {
	// Shown returns the path or URL of a file for messages. The name "" means the place itself.
	Shown(name string) string
	// List returns all files of the place in any order, and what is no file, such as a socket. If the place does not
	// exist, the error is of kind NotFound.
	List(ctx context.Context) ([]Entry, []Bad, error)
	// NewReader returns a reader for one goroutine. The caller closes it.
	NewReader() Reader
	// Create begins a file. The file is visible under its name, complete and durable, after Commit and Sync.
	Create(ctx context.Context, name string) (File, error)
	// Put writes a whole file, and makes the folders above it. The file is durable after Flush. A process that is
	// killed can leave a part of the file.
	Put(ctx context.Context, name string, content io.WriterTo) error
	// Flush makes the files of Put durable.
	Flush(ctx context.Context) error
	// Remove deletes a file. A missing file is no error.
	Remove(ctx context.Context, name string) error
	// Sync makes the names of committed and removed files durable.
	Sync(ctx context.Context) error
	// Lock makes the place, and fails if another process has locked it. A prefix is not locked. Lock removes what a
	// killed process left behind.
	Lock(ctx context.Context) (unlock func(), err error)
}

// File is a file that is being written.
type File interface {
	io.Writer
	// Commit flushes the file to storage and gives it its name. After an error, the file does not exist.
	Commit() error
	// Abort deletes the file. After Commit, Abort does nothing.
	Abort()
}

// Reader reads files of a place. A Reader is for one goroutine.
type Reader interface {
	// Read fills dst with the whole content of a file. The parameter dst has e.Size bytes, and room for one more. If the
	// file has another size now, the error is of kind IO and has the cause errChanged.
	Read(ctx context.Context, e Entry, dst []byte) error
	// ReadAt reads a range of a file. The result is less than len(dst) only at the end of the file.
	ReadAt(ctx context.Context, e Entry, dst []byte, off int64) (int, error)
	// Close releases the files that the reader keeps open.
	Close() error
}
