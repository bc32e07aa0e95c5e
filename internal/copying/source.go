// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// source is one content that is read in ranges. All ranges are of the same content, or reading fails.
type source interface {
	name() string
	id() object.Identity
	facts() facts
	// fetch returns a reader of exactly n bytes from off.
	fetch(ctx context.Context, off, n int64) (io.ReadCloser, error)
	// unchanged fails with kind IO if the content changed in a way that fetch cannot see.
	unchanged() error
	close() error
}

// facts are what a source knows about its content.
type facts struct {
	way       string
	algorithm string // of sum: "crc64nvme", "crc32c", "crc32"; empty: none
	sum       uint64
	md5       string         // hexadecimal; empty: none
	blocks    *checksum.Sums // of each block; nil: none
	modified  time.Time
	remote    bool
	near      bool // the server's round trip is short
}

// objectSource is an object over HTTP.
type objectSource struct {
	Remote
	o    *s3.Object
	info s3.Info
	near bool
}

// openObject looks at an object once and pins it.
func (c *Copier) openObject(ctx context.Context, r Remote) (*objectSource, error) {
	c.gate.watch(r.Client)
	info, err := r.Client.Head(ctx, r.Bucket, r.Key, r.Version)
	if err != nil {
		return nil, err
	}
	if info.ETag == "" && info.Version == "" {
		return nil, errs.New(errs.Unsupported, "copy", r.Name(), "the server names neither an ETag nor a version, so that a "+
			"change in the middle of the copy would not be seen").WithFix(
			"check what stands between this machine and the server")
	}
	s := &objectSource{Remote: r, o: r.Client.Pinned(info), info: info}
	if rtt := r.Client.RoundTrip(); rtt > 0 && rtt < near {
		s.near = true
		s.o.LimitReadAhead(nearAhead)
	}
	return s, nil
}

func (s *objectSource) name() string { return s.Name() }

func (s *objectSource) id() object.Identity {
	return object.Identity{Origin: s.origin(), Key: s.Key, Version: s.info.Version, ETag: s.info.ETag, Size: s.info.Size}
}

func (s *objectSource) facts() facts {
	f := facts{way: "http", md5: s.info.MD5(), modified: s.info.Modified, remote: true, near: s.near}
	f.algorithm, f.sum = s.info.Kept()
	return f
}

func (s *objectSource) fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return s.o.Fetch(ctx, off, n)
}

func (s *objectSource) unchanged() error { return nil }
func (s *objectSource) close() error     { return nil }

// fileSource is a local file, which is pinned by its inode, size and modification time.
type fileSource struct {
	path string
	f    *os.File
	was  object.Identity
	mod  time.Time
}

func openFile(path string) (*fileSource, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: a pipe must not hang the open
	if err != nil {
		return nil, errs.Wrap("open", path, errs.WithoutPath(err))
	}
	id, info, err := identify(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &fileSource{path: path, f: f, was: id, mod: info.ModTime()}, nil
}

// identify returns the identity of an open file's content.
func identify(f *os.File, path string) (object.Identity, os.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return object.Identity{}, nil, errs.Wrap("look at", path, errs.WithoutPath(err))
	}
	if !info.Mode().IsRegular() {
		what := "is not a regular file"
		if info.IsDir() {
			what = "is a directory"
		}
		return object.Identity{}, nil, errs.New(errs.Invalid, "copy", path, what+"; expected a file").
			WithFix("copy a directory with --recursive, and a pipe as -")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return object.Identity{}, nil, errs.Wrap("name", path, err)
	}
	tag := strconv.FormatInt(info.ModTime().UnixNano(), 10)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		tag = fmt.Sprintf("%d-%d-%s", s.Dev, s.Ino, tag)
	}
	return object.Identity{Origin: "file", Key: abs, ETag: tag, Size: info.Size()}, info, nil
}

func (s *fileSource) name() string        { return s.path }
func (s *fileSource) id() object.Identity { return s.was }
func (s *fileSource) facts() facts        { return facts{way: "file", modified: s.mod} }
func (s *fileSource) close() error        { return s.f.Close() }

func (s *fileSource) fetch(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(&exactReader{s.path, io.NewSectionReader(s.f, off, n), off, n}), nil
}

func (s *fileSource) unchanged() error {
	now, _, err := identify(s.f, s.path)
	if err == nil && now != s.was {
		err = changedFile(s.path)
	}
	return err
}

func changedFile(path string) error {
	return errs.New(errs.IO, "copy", path, "the file changed while it was being copied").
		WithFix("copy it again when nobody writes to the file")
}

// exactReader fails if a file ends early.
type exactReader struct {
	path    string
	r       *io.SectionReader
	off, to int64
}

func (r *exactReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.to -= int64(n)
	if err == io.EOF && r.to > 0 {
		err = changedFile(r.path)
	}
	return n, err
}

// doorSource is the file of an object of a server on this host, which its door has opened.
type doorSource struct {
	Remote
	f    *os.File
	info DoorInfo
	end  func() error
}

// DoorInfo describes an object that a door has opened.
type DoorInfo struct {
	ETag, Version string
	Size          int64
	Modified      time.Time
	CRC64         uint64 // of the whole content; valid if HasCRC64 is set
	HasCRC64      bool
}

func (s *doorSource) name() string { return s.Name() }

func (s *doorSource) id() object.Identity {
	return object.Identity{Origin: s.origin(), Key: s.Key, Version: s.info.Version, ETag: strings.Trim(s.info.ETag, `"`),
		Size: s.info.Size}
}

func (s *doorSource) facts() facts {
	f := facts{way: "door", modified: s.info.Modified, remote: true}
	if s.info.HasCRC64 {
		f.algorithm, f.sum = "crc64nvme", s.info.CRC64
	}
	return f
}

func (s *doorSource) fetch(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(&exactReader{s.Name(), io.NewSectionReader(s.f, off, n), off, n}), nil
}

func (s *doorSource) unchanged() error { return nil } // the server keeps the file of an open hold
func (s *doorSource) close() error     { return s.end() }
