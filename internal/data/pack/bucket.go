// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// uploadPart is the size of the parts of an upload. An upload has at most 10,000 parts, so that an object can have 312
// GiB.
const uploadPart = 32 << 20

// removeTime is how long the removal of an unfinished upload may take after an error.
const removeTime = 10 * time.Second

// bucket is a prefix of a bucket.
type bucket struct {
	c              *s3.Client
	bucket, prefix string // the prefix is empty or ends with a slash
}

// NewBucket returns the objects of a bucket below a prefix. The caller closes the client after the last use.
func NewBucket(c *s3.Client, name, prefix string) Place {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return &bucket{c: c, bucket: name, prefix: prefix}
}

func (b *bucket) Shown(name string) string { return s3.URL(b.bucket, b.prefix+name) }

// List returns all objects below the prefix. Keys that end with a slash are the folders that some programs make, and
// are left out.
func (b *bucket) List(ctx context.Context) ([]Entry, []Bad, error) {
	var all []Entry
	for l := (s3.Listing{Bucket: b.bucket, Prefix: b.prefix}); ; {
		page, err := b.c.List(ctx, l)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range page.Entries {
			name := strings.TrimPrefix(e.Key, b.prefix)
			if name != "" && !strings.HasSuffix(name, "/") {
				all = append(all, Entry{Name: name, Size: e.Size, Stamp: checksum.Of([]byte(strings.Trim(e.ETag, `"`)))})
			}
		}
		if page.Next == "" {
			break
		}
		if page.Next == l.Token {
			return nil, nil, errs.New(errs.IO, "list", b.Shown(""), "the server returns the same page again and again")
		}
		l.Token = page.Next
	}
	if len(all) == 0 {
		return nil, nil, errs.New(errs.NotFound, "list", b.Shown(""), "there are no objects with this prefix").
			WithFix("list the bucket to see its keys")
	}
	return all, nil, nil
}

func (b *bucket) Lock(context.Context) (func(), error) { return func() {}, nil }

// Sync does nothing: an object is durable when the server has acknowledged it.
func (b *bucket) Sync(context.Context) error { return nil }

func (b *bucket) Remove(ctx context.Context, name string) error {
	return b.c.Delete(ctx, b.bucket, b.prefix+name)
}

func (b *bucket) NewReader() Reader { return &bucketReader{b: b} }

func (b *bucket) Create(ctx context.Context, name string) (File, error) {
	up, err := b.c.NewUpload(s3.Put{Bucket: b.bucket, Key: b.prefix + name})
	if err != nil {
		return nil, err
	}
	return &upload{ctx: ctx, up: up}, nil
}

func (b *bucket) Put(ctx context.Context, name string, content io.WriterTo) error {
	f, err := b.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err := content.WriteTo(f); err != nil {
		f.Abort()
		return err
	}
	return f.Commit()
}

// Flush does nothing: an object is durable when the server has acknowledged it.
func (b *bucket) Flush(context.Context) error { return nil }

// bucketReader reads objects.
type bucketReader struct {
	b    *bucket
	open *s3.Object // of ReadAt
	name string
}

func (r *bucketReader) Read(ctx context.Context, e Entry, dst []byte) error {
	if int64(len(dst)) > vfs.MostWhole {
		n, err := r.ReadAt(ctx, e, dst, 0)
		if err == nil && n != len(dst) {
			err = changed(r.b.Shown(e.Name), e.Size, int64(n))
		}
		return err
	}
	data, info, err := r.b.c.ReadAll(ctx, r.b.bucket, r.b.prefix+e.Name, "", vfs.MostWhole)
	if err != nil {
		return err
	}
	if err := r.same(e, info); err != nil {
		return err
	}
	copy(dst, data)
	return nil
}

// same refuses an object that was replaced after it was listed.
func (r *bucketReader) same(e Entry, info s3.Info) error {
	if info.Size != e.Size {
		return changed(r.b.Shown(e.Name), e.Size, info.Size)
	}
	if checksum.Of([]byte(info.ETag)) != e.Stamp {
		return &errs.Error{Kind: errs.IO, Op: "read", Name: r.b.Shown(e.Name), Msg: "the object was replaced",
			Err: errChanged, Fix: "run the command with --restart when nobody writes to the source"}
	}
	return nil
}

func (r *bucketReader) ReadAt(ctx context.Context, e Entry, dst []byte, off int64) (int, error) {
	if r.open == nil || r.name != e.Name {
		o, err := r.b.c.Open(ctx, r.b.bucket, r.b.prefix+e.Name, "")
		if err != nil {
			return 0, err
		}
		if err := r.same(e, o.Info()); err != nil {
			return 0, err
		}
		o.Trust() // ranges of an object cannot be compared with the checksum of the whole
		r.open, r.name = o, e.Name
	}
	dst = dst[:max(0, min(int64(len(dst)), e.Size-off))]
	if len(dst) == 0 {
		return 0, nil
	}
	body, err := r.open.Fetch(ctx, off, int64(len(dst)))
	if err != nil {
		return 0, err
	}
	defer body.Close()
	return io.ReadFull(body, dst)
}

func (r *bucketReader) Close() error { return nil }

// upload writes one object. The next part is filled while the last one is sent.
type upload struct {
	ctx   context.Context
	up    *s3.Upload
	buf   []byte
	spare []byte
	part  int        // number of parts that were begun
	sent  chan error // of the part that is being sent; nil if none is
	done  bool
}

// Write appends bytes to the object.
func (u *upload) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(len(p), uploadPart-len(u.buf))
		u.buf = append(u.buf, p[:take]...)
		if p = p[take:]; len(u.buf) == uploadPart {
			if err := u.send(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// wait waits for the part that is being sent.
func (u *upload) wait() error {
	if u.sent == nil {
		return nil
	}
	err := <-u.sent
	u.sent = nil
	return err
}

// send starts to send the next part.
func (u *upload) send() error {
	if err := u.wait(); err != nil {
		return err
	}
	if u.part == 0 {
		if err := u.up.Begin(u.ctx); err != nil {
			return err
		}
	}
	u.part++
	if u.part > 10_000 {
		return errs.New(errs.Unsupported, "upload", u.up.Name(), fmt.Sprintf("it has more than %d bytes",
			int64(10_000)*uploadPart)).WithFix("use a smaller --shard-size")
	}
	data, number, sent := u.buf, u.part, make(chan error, 1)
	u.sent, u.buf, u.spare = sent, u.spare[:0], data
	go func() {
		sent <- u.up.Part(u.ctx, number, int64(len(data)), int64(len(data)), func() (vfs.Blocks, error) {
			return &oneBlock{data: data}, nil
		})
	}()
	return nil
}

func (u *upload) Commit() error {
	err := u.commit()
	if err != nil {
		u.Abort()
	}
	u.done = true
	return err
}

func (u *upload) commit() error {
	if u.part == 0 && len(u.buf) <= vfs.MostWhole {
		return u.up.Whole(u.ctx, int64(len(u.buf)), func() (vfs.Blocks, error) { return &oneBlock{data: u.buf}, nil })
	}
	if len(u.buf) > 0 {
		if err := u.send(); err != nil {
			return err
		}
	}
	if err := u.wait(); err != nil {
		return err
	}
	return u.up.Complete(u.ctx)
}

func (u *upload) Abort() {
	if u.done {
		return
	}
	u.done = true
	_ = u.wait() // the caller has the first error already
	if u.part > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), removeTime)
		defer cancel()
		_ = u.up.Abort(ctx) // the server removes old unfinished uploads, too
	}
}

// oneBlock is a part of an upload as one block.
type oneBlock struct{ data []byte }

// Next returns the block once.
func (b *oneBlock) Next() ([]byte, error) {
	data := b.data
	if b.data = nil; len(data) == 0 {
		return nil, io.EOF
	}
	return data, nil
}

// Close does nothing, because the caller owns the memory.
func (b *oneBlock) Close() error { return nil }
