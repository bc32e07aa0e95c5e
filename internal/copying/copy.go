// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"errors"
	"os"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Download copies an object to a file. The file has its old content, or none, until the object is whole, compared and
// durable. If Download fails or is killed, a later Download of the same object to the same file goes on where this one
// ended. The parent directory of the file must exist.
func (c *Copier) Download(ctx context.Context, from Remote, path string) (Result, error) {
	src, err := c.openObject(ctx, from)
	if err != nil {
		return Result{}, err
	}
	return c.toFile(ctx, src, path)
}

// DownloadOpened copies an object that a door of a server on this host has opened as the file f. Download describes the
// result. DownloadOpened calls end when it no longer reads f.
func (c *Copier) DownloadOpened(ctx context.Context, from Remote, f *os.File, info DoorInfo, end func() error,
	path string) (Result, error) {
	return c.toFile(ctx, &doorSource{Remote: from, f: f, info: info, end: end}, path)
}

// CopyFile copies a file to another one. Download describes the result.
func (c *Copier) CopyFile(ctx context.Context, from, path string) (Result, error) {
	src, err := openFile(from)
	if err != nil {
		return Result{}, err
	}
	return c.toFile(ctx, src, path)
}

func (c *Copier) toFile(ctx context.Context, src source, path string) (r Result, err error) {
	defer func() { err = errors.Join(err, src.close()) }()
	t, err := openTarget(path)
	if err != nil {
		return Result{}, err
	}
	defer t.dir.Close()
	if f, ok := src.(*fileSource); ok {
		if info, err := t.dir.Stat(t.name); err == nil {
			if was, err := f.f.Stat(); err == nil && os.SameFile(info, was) {
				return Result{}, errs.New(errs.Invalid, "copy", f.path, "is the same file as "+path)
			}
		}
	}
	c.expect(src.id().Size)
	return c.download(ctx, src, t)
}

// Upload copies a file to an object. If Upload fails or is killed, a later Upload of the same file to the same key goes
// on where this one ended, unless the file has changed.
func (c *Copier) Upload(ctx context.Context, path string, to Remote) (r Result, err error) {
	src, err := openFile(path)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	c.expect(src.was.Size)
	return c.upload(ctx, src, to)
}

// Relay copies an object to another key, bucket or server. Within one server, the server copies the object itself if it
// can; else the content goes through this process.
func (c *Copier) Relay(ctx context.Context, from, to Remote) (Result, error) {
	src, err := c.openObject(ctx, from)
	if err != nil {
		return Result{}, err
	}
	c.expect(src.info.Size)
	if from.origin() == to.origin() && from.Key == to.Key && from.Version == "" {
		return Result{}, errs.New(errs.Invalid, "copy", from.Name(), "is the same object as the destination")
	}
	return c.relay(ctx, src, to)
}

func (c *Copier) relay(ctx context.Context, src *objectSource, to Remote) (Result, error) {
	if src.Client.Endpoint() == to.Client.Endpoint() && src.info.Size <= s3.MostCopied {
		r, err := c.copyInside(ctx, src, to)
		if err == nil || !copyRefused(err) {
			return r, err
		}
		r, err = c.upload(ctx, src, to)
		r.Notes = append(r.Notes, "the server does not copy this object itself: it went through this machine")
		return r, err
	}
	return c.upload(ctx, src, to)
}

// copyRefused reports whether a server cannot or may not copy between two places itself.
func copyRefused(err error) bool {
	return errs.Is(err, errs.Unsupported) || errs.Is(err, errs.Permission)
}

// copyInside makes the server copy an object.
func (c *Copier) copyInside(ctx context.Context, src *objectSource, to Remote) (Result, error) {
	if err := c.gate.enter(ctx); err != nil {
		return Result{}, err
	}
	defer c.gate.leave()
	made, err := to.Client.Copy(ctx, src.info, s3.Put{Bucket: to.Bucket, Key: to.Key})
	if err != nil {
		return Result{}, err
	}
	r := Result{Source: src.name(), Destination: to.Name(), Bytes: made.Size, Way: "server", Verified: "length+etag"}
	a, sum := src.info.Kept()
	b, other := made.Kept()
	switch {
	case a != "" && a == b && sum != other:
		return r, errs.New(errs.Corrupt, "copy", src.name(), "the server's copy has another "+a+" than the source").
			WithFix("remove " + to.Name() + ", and copy again")
	case a != "" && a == b:
		r.Verified = a
	case src.info.MD5() != "" && made.ETag == src.info.ETag:
		r.Verified = "md5"
	}
	c.moved.Add(made.Size)
	c.files.Add(1)
	return r, nil
}
