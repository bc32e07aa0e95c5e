// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"context"
	"io"
)

// Remote is content that is read over a network, in ranges.
type Remote interface {
	// Fetch asks for n bytes from off. The reader gives exactly those bytes, in
	// order: what breaks off is asked for again from there, within the bounds of
	// the implementation, and an error of it is final. The context ends it. Many run at once.
	Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error)
	// Parallel is how many Fetches at once pay.
	Parallel() int
	// Notes are what a report should tell in the end: retries, for one.
	Notes() []string
}

// Tree finds files by name: those of a directory, or the objects of a bucket.
type Tree interface {
	// Open opens one for reading; the caller closes it. Kind NotFound.
	Open(ctx context.Context, name string) (*File, error)
	// Names lists the names below dir, one level deep, without dir itself.
	Names(ctx context.Context, dir string) ([]string, error)
	// ReadAll reads a whole file of at most limit bytes.
	ReadAll(ctx context.Context, name string, limit int64) ([]byte, error)
}
