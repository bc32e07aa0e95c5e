// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"context"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Remote is content that is read over a network, in ranges.
type Remote interface {
	// Fetch asks for n bytes from off. The reader gives exactly those bytes, in
	// order: what breaks off is asked for again from there, within the bounds of
	// the implementation, and an error of it is final. The context ends it. Many run at once.
	Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error)
	// Parallel returns the useful number of concurrent calls of Fetch.
	Parallel() int
	// Notes returns remarks for the report, such as retries.
	Notes() []string
}

// Tree finds files by name: those of a directory, or the objects of a bucket.
type Tree interface {
	// Open opens a file for reading. The caller closes it. A missing file is of kind NotFound.
	Open(ctx context.Context, name string) (*File, error)
	// Names lists the names below dir, one level deep, without dir itself.
	Names(ctx context.Context, dir string) ([]string, error)
	// ReadAll reads a whole file of at most limit bytes.
	ReadAll(ctx context.Context, name string, limit int64) ([]byte, error)
}

// Traffic counts the requests that a remote has sent to its server.
type Traffic struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`     // requests that were repeated, or taken up where they had broken off
	Connections int64 `json:"connections"` // that carried them
}

// Counted is a Remote, or an Upload, that counts.
type Counted interface {
	// Traffic returns the counts so far.
	Traffic() Traffic
}

// remoteFS is what stands where a file system's name is told.
const remoteFS = "network"

// NewRemote returns r as a file of size bytes. It has no descriptor and no pages in
// the page cache; the engine reads it over the network. If r is an io.Closer,
// closing the file closes r.
func NewRemote(name string, size int64, r Remote) *File {
	f := &File{path: name, size: size, fs: FSType{Name: remoteFS}, buffered: -1, direct: -1, remote: r,
		probe: prober{method: ProbeNone, why: "it is read over a network"}}
	f.refuse("it is read over a network: there is no disk of this machine below it",
		"load it from a file, or through the door of a server on this machine")
	return f
}

// Remote is what a file is read from over a network, nil for one of this machine.
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

// Upload is an object that is written over a network, in parts that go side by
// side. Part is safe for concurrent use; the rest is for one goroutine at a
// time. Exactly one of Whole, Complete, with success, and Abort ends it.
type Upload interface {
	// Name is the object's, for messages.
	Name() string
	// Parallel is how many parts at once pay.
	Parallel() int
	// Whole sends the object in one request, without Begin; size is at most MostWhole.
	Whole(ctx context.Context, size int64, open func() (Blocks, error)) error
	// Begin makes ready for parts; what is there afterwards takes space until Complete or Abort.
	Begin(ctx context.Context) error
	// Part sends part number, from 1, of size bytes, which come in blocks of that length, the last one
	// shorter. What fails on the way is tried again, with blocks opened anew, within the bounds of the implementation.
	Part(ctx context.Context, number int, size, block int64, open func() (Blocks, error)) error
	// Complete makes the object of parts 1 to n, all of which were sent.
	Complete(ctx context.Context) error
	// Abort takes back what was sent. It does nothing before Begin and after Complete.
	Abort(ctx context.Context) error
	// Notes are what a report should tell in the end.
	Notes() []string
}

// MostWhole bounds what Upload.Whole sends: it is held in memory.
const MostWhole = 8 << 20

// Blocks are bytes in the order in which they are sent. They are for one goroutine.
type Blocks interface {
	// Next is the next block, unchanged until the next call or Close; io.EOF behind the last one.
	Next() ([]byte, error)
	// Close lets go of them; a second call does nothing.
	Close() error
}
