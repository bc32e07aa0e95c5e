// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"context"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Remote is a source of bytes that is read in ranges over a network.
type Remote interface {
	// Fetch requests n bytes at offset off. The returned reader delivers exactly n bytes, in order. If a connection
	// breaks, the implementation of Fetch requests the remaining bytes again, with a limited number of retries. An
	// error of the returned reader is final, because the implementation of Fetch has already retried. If the context
	// ends, the request is cancelled. Several calls of Fetch may run at once.
	Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error)
	// Parallel returns the recommended number of concurrent calls of Fetch.
	Parallel() int
	// Notes returns remarks for the report, such as retries.
	Notes() []string
}

// Tree opens files by name, from a directory or from a bucket.
type Tree interface {
	// Open opens a file for reading; the caller closes it. If the file does not exist, the error is of kind NotFound.
	Open(ctx context.Context, name string) (*File, error)
	// Names lists the names below dir, one level deep, without dir itself.
	Names(ctx context.Context, dir string) ([]string, error)
	// ReadAll reads a whole file. If the file has more than `limit` bytes, ReadAll fails.
	ReadAll(ctx context.Context, name string, limit int64) ([]byte, error)
}

// Traffic counts the requests that a Remote or an Upload has sent to its server.
type Traffic struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`     // requests that were repeated or resumed
	Connections int64 `json:"connections"` // connections that carried the requests
}

// Counted is implemented by a Remote or an Upload that counts its requests.
type Counted interface {
	// Traffic returns the counts of requests so far.
	Traffic() Traffic
}

// remoteFS is the name of the file system of remote files.
const remoteFS = "network"

// NewRemote returns a File with the content of r. The parameter `size` is the size of the File in bytes. A remote File
// has no descriptor and no pages in the page cache. If r is an io.Closer, closing the File closes r.
func NewRemote(name string, size int64, r Remote) *File {
	f := &File{path: name, size: size, fs: FSType{Name: remoteFS}, buffered: -1, direct: -1, remote: r,
		probe: prober{method: ProbeNone, why: "it is read over a network"}}
	f.refuse("it is read over a network: there is no disk of this machine below it",
		"load it from a file, or through the door of a server on this machine")
	return f
}

// Remote returns the Remote from which the file is read, or nil for a local file.
func (f *File) Remote() Remote { return f.remote }

// fetchFull fills p from off over the network.
func (f *File) fetchFull(p []byte, off int64) (int, error) {
	if off < 0 || int64(len(p)) > f.size-off {
		return 0, errs.New(errs.IO, "read", f.path, fmt.Sprintf("bytes %d to %d were asked for, it has %d", off,
			off+int64(len(p)), f.size))
	}
	if len(p) == 0 {
		return 0, nil
	}
	body, err := f.remote.Fetch(context.Background(), off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.ReadFull(body, p)
	return n, errs.Wrap("read", fmt.Sprintf("%s at offset %d", f.path, off+int64(n)), err)
}

func (f *File) errRemote(op string) error {
	return errs.New(errs.Unsupported, op, f.path, "it is read over a network and has no descriptor")
}

// Upload is an object that is written over a network, in one request or in concurrent parts. The method Part is safe
// for concurrent use; only one goroutine at a time may call the other methods of an Upload. A successful Whole, a
// successful Complete, or Abort ends an Upload.
type Upload interface {
	// Name returns the object's name for messages.
	Name() string
	// Parallel returns the recommended number of concurrent calls of Part.
	Parallel() int
	// Whole sends the whole object in one request, without a multipart upload. An object that Whole sends must have at
	// most MostWhole bytes.
	Whole(ctx context.Context, size int64, open func() (Blocks, error)) error
	// Begin starts a multipart upload. A multipart upload that was begun uses space on the server until Complete or
	// Abort.
	Begin(ctx context.Context) error
	// Part sends one part of the object. The parameter `size` is the size of the part in bytes; part numbers begin at
	// 1. The function `open` returns the bytes of the part as blocks. The parameter `block` is the size of each block
	// in bytes; the last block may be shorter. If a request fails, the implementation of Part calls the function
	// `open` again and retries, a limited number of times.
	Part(ctx context.Context, number int, size, block int64, open func() (Blocks, error)) error
	// Complete makes the object from the parts. All parts, from number 1 to the last, must have been sent before
	// Complete.
	Complete(ctx context.Context) error
	// Abort discards the parts that were sent. Abort does nothing before Begin and after Complete.
	Abort(ctx context.Context) error
	// Notes returns remarks on the upload for the report.
	Notes() []string
}

// MostWhole is the size in bytes of the largest object that Upload.Whole sends; Whole keeps the object in memory.
const MostWhole = 8 << 20

// Blocks is a sequence of blocks of bytes to send. Only one goroutine may use a Blocks.
type Blocks interface {
	// Next returns the next block, or io.EOF after the last block. The block is valid until the next call of Next or
	// Close.
	Next() ([]byte, error)
	// Close releases the blocks. A second call of Close does nothing.
	Close() error
}
