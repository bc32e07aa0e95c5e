// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// File holds descriptors of an object's file, for programs that read the file themselves. The file of an open File
// stays unchanged until Close, even if the object is overwritten or deleted. Reads through the descriptors of a File
// are not verified: their bytes are not compared with checksums.
type File struct {
	lent
	info Info
	c    *Client
	o    *opened
}

// lent is the pair of descriptors of a file that the door sent to this client.
type lent struct {
	mu  sync.Mutex
	fds *[2]int // buffered and O_DIRECT; nil after Close
	ids [2]identity
	end func() // closes the descriptors and the handle
}

// identity is the device and the inode of a file.
type identity struct{ dev, ino uint64 }

// identityOf returns the file behind a descriptor. The zero identity is that of no file.
func identityOf(fd int) (id identity) {
	var st unix.Stat_t
	if fd >= 0 && unix.Fstat(fd, &st) == nil {
		id = identity{dev: uint64(st.Dev), ino: st.Ino}
	}
	return id
}

func (id identity) is(fd int) bool { return id != identity{} && identityOf(fd) == id }

// lend records the descriptors that the program gets.
func (l *lent) lend(fds *[2]int, end func()) {
	l.fds, l.end = fds, end
	for i, fd := range fds {
		l.ids[i] = identityOf(fd)
	}
}

// disown forgets descriptors that the program has closed, although it must not. Their numbers may belong to other
// files by now, which must stay open. The caller holds mu.
func (l *lent) disown() {
	for i, fd := range l.fds {
		if fd >= 0 && !l.ids[i].is(fd) {
			l.fds[i] = -1
		}
	}
}

// Buffered returns the descriptor that uses the page cache, or -1 after Close or Commit. The caller must not close
// the returned descriptor.
func (l *lent) Buffered() int { return l.descriptor(0) }

// Direct returns the O_DIRECT descriptor, or -1 if there is none or after Close or Commit. The caller must not close
// the returned descriptor.
func (l *lent) Direct() int { return l.descriptor(1) }

func (l *lent) descriptor(i int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fds == nil {
		return -1
	}
	return l.fds[i]
}

// Close closes the descriptors of the object's or the draft's file. Closing a File also ends the hold that keeps the
// object's file, and closing a DraftFile deletes the draft if it was not committed. A second call of Close does
// nothing.
func (l *lent) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fds != nil {
		l.disown()
		l.end()
		l.fds = nil
	}
	return nil
}

// OpenFile opens the file of an object through the door; dev is the device that the caller reads into. OpenFile fails
// with kind Unsupported if the server has no door that this client can use. The caller closes the File before it
// closes the client.
func (c *Client) OpenFile(ctx context.Context, bucket, key, version, dev string) (*File, error) {
	const op = "open"
	name := urlOf(bucket, key)
	if err := checkName(op, bucket, key); err != nil {
		return nil, err
	}
	leave, err := c.enter(op, name)
	if err != nil {
		return nil, err
	}
	defer leave()
	d, err := c.lender(ctx, op, name)
	if err != nil {
		return nil, err
	}
	on, err := c.device(ctx, dev)
	if err != nil {
		return nil, err
	}
	where := deviceOf(on)
	o, err := d.one(ctx, want{op: op, bits: wire.WantBuffered | wire.WantDirect, device: where},
		wire.OpenItem{Bucket: bucket, Key: key, Version: version, N: -1})
	if err != nil {
		return nil, err
	}
	if o.fds[0] < 0 || o.h == nil {
		o.drop()
		return nil, errs.New(errs.Invalid, "read door message", "Opened", "came without a descriptor of "+name)
	}
	if err := o.prepare(ctx, op, where, 0, o.item.Size, false); err != nil {
		o.drop()
		return nil, err
	}
	f := &File{info: o.info(bucket, key), c: c, o: o}
	f.lend(&o.fds, o.drop)
	return f, nil
}

// lender returns the door, or an error if the client uses HTTP, which has no descriptors.
func (c *Client) lender(ctx context.Context, op, name string) (*door, error) {
	w, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	if w.door != nil {
		return w.door, nil
	}
	e := errs.New(errs.Unsupported, op, name, "descriptors come through the server's door alone, and it is not there")
	if r := w.refused; r != nil {
		e.Msg += ": " + r.Reason
		e.Fix = r.Fix
	}
	return nil, e
}

// Info returns the object's metadata.
func (f *File) Info() Info { return f.info }

// Size returns the size of the object in bytes.
func (f *File) Size() int64 { return f.info.Size }

// DraftFile holds descriptors of the file of a draft (an object that is not yet published), for programs that write a
// new object themselves.
type DraftFile struct {
	lent
	bucket, key string
	d           *draft
	on          device.Device
	most        int64
	ifNoneMatch string
	edit        *edited // nil if the draft does not grow
}

// CreateFile begins a draft of at most w.Size bytes and opens its file through the door. CreateFile ignores w.Src and
// w.Sources. CreateFile fails with kind Unsupported if there is no door, or if the door does not allow writes. The
// caller closes the DraftFile before it closes the client.
func (c *Client) CreateFile(ctx context.Context, w Write) (*DraftFile, error) {
	return createFile(ctx, c, w, false)
}

func createFile(ctx context.Context, c *Client, w Write, grows bool) (*DraftFile, error) {
	const op = "create"
	name := urlOf(w.Bucket, w.Key)
	if err := checkName(op, w.Bucket, w.Key); err != nil {
		return nil, err
	}
	if w.Size < 0 {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("%d bytes; expected 0 or more", w.Size))
	}
	leave, err := c.enter(op, name)
	if err != nil {
		return nil, err
	}
	defer leave()
	d, err := c.lender(ctx, op, name)
	if err != nil {
		return nil, err
	}
	if g := d.settings(); !g.Writes {
		return nil, errs.New(errs.Unsupported, op, name, g.WritesWhy)
	}
	on, err := c.device(ctx, w.Device)
	if err != nil {
		return nil, err
	}
	req := w.request(on)
	req.Grows = grows
	f, err := d.draft(ctx, name, req, nil)
	if err != nil {
		return nil, orExists(w.IfNoneMatch, err)
	}
	if grows {
		return f.grown(ctx, on, req, &edited{was: -1})
	}
	if f.fds[0] < 0 {
		f.abort()
		return nil, errs.New(errs.Invalid, "read door message", "Created", "came without a descriptor of "+name)
	}
	if err := f.grant(ctx, on, 0, w.Size); err != nil {
		f.abort()
		return nil, err
	}
	out := &DraftFile{bucket: w.Bucket, key: w.Key, d: f, on: on, most: w.Size, ifNoneMatch: w.IfNoneMatch}
	out.lend(&f.fds, f.abort)
	return out, nil
}

// Name returns the name of the object for messages, such as "s3://bucket/key".
func (f *DraftFile) Name() string { return urlOf(f.bucket, f.key) }

// Commit publishes the first size bytes of the draft's file as the object. If the draft grows, WholeFile publishes the
// whole file. Commit reads the published bytes once to
// compute their checksums, and closes the descriptors. If Commit returns no error, the object is durable and visible.
// If another descriptor or mapping can still write to the file, the server refuses the commit. After Commit the
// DraftFile cannot be used again, even if Commit failed.
func (f *DraftFile) Commit(ctx context.Context, size int64) (Info, error) {
	const op = "commit"
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.d
	if f.fds == nil {
		return Info{}, errs.New(errs.Closed, op, f.Name(), "it was committed or closed")
	}
	f.disown()
	size, sums, err := f.sums(ctx, size)
	f.fds = nil
	f.edit.close()
	if err != nil {
		d.abort()
		return Info{}, err
	}
	closeAll(d.fds[:])
	d.fds = [2]int{-1, -1}
	done, err := d.commit(sums)
	if err != nil {
		d.abort()
		return Info{}, f.orConflict(orExists(f.ifNoneMatch, err))
	}
	d.c.drafts.Add(-1)
	return Info{Bucket: f.bucket, Key: f.key, Version: done.Version, Size: size, ETag: done.ETag, Modified: done.Modified,
		Via: ViaDoor}, nil
}

// sums returns the size to commit and the checksums of the file. The caller holds mu.
func (f *DraftFile) sums(ctx context.Context, size int64) (int64, *checksum.Sums, error) {
	if f.edit != nil {
		return f.settle(ctx, size)
	}
	if size < 0 || size > f.most {
		return 0, nil, errs.New(errs.Invalid, "commit", f.Name(),
			fmt.Sprintf("%d bytes; expected 0 to the %d that it was begun with", size, f.most))
	}
	// The descriptor is write-only, so the file is opened a second time for reading, which only its owner may do.
	in, err := os.Open("/proc/self/fd/" + strconv.Itoa(f.fds[0]))
	if err != nil {
		return 0, nil, &errs.Error{Op: "read back", Name: f.Name(),
			Msg: "its checksums are made of what was written, and this user may not read the server's file", Err: err,
			Fix: "run as the server's user, or write with a move of the client's, which makes them on the way"}
	}
	defer in.Close() // only read from
	sums, err := sumsOf(ctx, in, f.Name(), size)
	return size, sums, err
}

// sumsOf computes the checksums of a file.
func sumsOf(ctx context.Context, in io.ReaderAt, name string, size int64) (*checksum.Sums, error) {
	const op = "read back"
	blocks := (size + object.SumBlock - 1) / object.SumBlock
	if blocks > checksum.MaxBlocks {
		return nil, errs.New(errs.Unsupported, op, name,
			fmt.Sprintf("has %d blocks, expected at most %d", blocks, checksum.MaxBlocks))
	}
	s := &checksum.Sums{Size: size, Block: object.SumBlock, Blocks: make([]uint64, blocks)}
	buf := make([]byte, min(object.SumBlock, size))
	for i := range s.Blocks {
		if ctx.Err() != nil {
			return nil, errs.Wrap(op, name, context.Cause(ctx))
		}
		off, n := s.Extent(int64(i))
		if _, err := in.ReadAt(buf[:n], off); err == io.EOF {
			return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("%d bytes are to be committed and fewer were written",
				size))
		} else if err != nil {
			return nil, errs.Wrap(op, name, err)
		}
		s.Blocks[i] = checksum.Of(buf[:n])
	}
	return s, nil
}
