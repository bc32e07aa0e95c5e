// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Tree opens the objects of one bucket as files, by key. A Tree uses the door if possible, and HTTP otherwise. The
// caller closes all files of a Tree before it closes the client.
type Tree struct {
	c      *Client
	bucket string
	device string

	mu   sync.Mutex
	sums map[*vfs.File]*checksum.Sums // of files that were opened through the door
	door *door                        // that the last file came through; nil if none did
}

// Tree returns the objects of a bucket as files that will be loaded to the given device. If the parameter device is
// empty, the client's default device is used.
func (c *Client) Tree(bucket, device string) *Tree {
	return &Tree{c: c, bucket: bucket, device: device, sums: map[*vfs.File]*checksum.Sums{}}
}

// Shown returns the name of a key for messages, such as "s3://bucket/key".
func (t *Tree) Shown(key string) string { return urlOf(t.bucket, key) }

// Refusals returns the reason why the objects of a Tree are read over HTTP. If the objects of a Tree are read through
// the door, Refusals returns an empty list.
func (t *Tree) Refusals(ctx context.Context) ([]report.Refusal, error) {
	leave, err := t.c.enter("open", urlOf(t.bucket, ""))
	if err != nil {
		return nil, err
	}
	defer leave()
	w, err := t.c.find(ctx)
	if err != nil || w.refused == nil {
		return nil, err
	}
	return []report.Refusal{*w.refused}, nil
}

// Open opens an object as a file. Closing the file that Open returned also ends the hold that keeps the object's file
// on the server.
func (t *Tree) Open(ctx context.Context, key string) (*vfs.File, error) {
	const op = "open"
	if err := checkName(op, t.bucket, key); err != nil {
		return nil, err
	}
	return throughDoorOrNetwork(ctx, t.c, op, urlOf(t.bucket, key),
		func(d *door) (*vfs.File, error) { return t.open(ctx, d, key) },
		func() (*vfs.File, error) { return t.c.network.open(ctx, t.bucket, key) })
}

// open opens an object through the door, with the sums of all its blocks.
func (t *Tree) open(ctx context.Context, d *door, key string) (*vfs.File, error) {
	const op = "open"
	dev, err := t.c.device(ctx, t.device)
	if err != nil {
		return nil, err
	}
	where := deviceOf(dev)
	// Without WantInline, because callers read headers from the file.
	o, err := d.one(ctx, want{op: op, bits: wire.WantBuffered | wire.WantDirect | wire.WantSums, device: where},
		wire.OpenItem{Bucket: t.bucket, Key: key, N: -1})
	if err != nil {
		return nil, err
	}
	f, sums, err := o.wholeFile(ctx, op, where)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums[f], t.door = sums, d
	return f, nil
}

// Count tells the server, in the background, which routes the bytes of a load took, as its metrics show them. The load
// read files that Open or OpenMany returned. Bytes that came over HTTP are left out, because the server sent them.
// Count returns false if no file came through the door.
func (t *Tree) Count(r *report.Report) bool {
	t.mu.Lock()
	d := t.door
	t.mu.Unlock()
	if d == nil {
		return false
	}
	lent := *r
	lent.Routes = slices.DeleteFunc(slices.Clone(r.Routes), func(x report.RouteShare) bool {
		return x.Route == report.RouteTakenNetwork
	})
	lent.Stages = slices.DeleteFunc(slices.Clone(r.Stages), func(x report.Stage) bool { return x.Stage == "read_network" })
	d.countReport(&lent, false)
	return true
}

// wholeFile returns an opened object as a file, with the checksums of all its blocks. If wholeFile fails, it closes the
// object.
func (o *opened) wholeFile(ctx context.Context, op string, dev wire.Device) (*vfs.File, *checksum.Sums, error) {
	if err := o.prepare(ctx, op, dev, 0, o.item.Size, true); err != nil {
		o.drop()
		return nil, nil, err
	}
	sums := o.sums
	f, err := o.file(nil)
	return f, sums, err
}

// maxSidecar is the largest size of a FILE.crc64nvme that is read over HTTP, in bytes. A file of 8 TiB has one of 64
// MiB.
const maxSidecar = 64<<20 + 64

// Sums returns the checksums of the blocks of a file that Open returned. For a file that was opened through the door,
// Sums returns the server's own checksums. Over HTTP, Sums reads the checksums from the object KEY.crc64nvme in the
// same bucket. If there is no object KEY.crc64nvme, Sums fails with kind NotFound.
func (t *Tree) Sums(ctx context.Context, key string, f *vfs.File) (*checksum.Sums, error) {
	t.mu.Lock()
	s := t.sums[f]
	t.mu.Unlock()
	if s != nil {
		return s, nil
	}
	name := urlOf(t.bucket, key)
	b, err := t.ReadAll(ctx, checksum.Path(key), maxSidecar)
	if errs.Is(err, errs.NotFound) {
		return nil, errs.New(errs.NotFound, "verify", name,
			"has no checksums: "+checksum.Path(name)+" does not exist, and over HTTP a server tells no sums of blocks").
			WithFix("copy the FILE.crc64nvme beside the file too, or load through the door, which has them")
	}
	if err != nil {
		return nil, err
	}
	if s, err = checksum.Parse(checksum.Path(name), b); err != nil {
		return nil, err
	}
	return s, s.CheckSize(name, f.Size())
}

// mostNames is the largest number of objects that Names lists.
const mostNames = 100_000

// Names returns the names of the objects directly below the directory dir, without dir itself.
func (t *Tree) Names(ctx context.Context, dir string) ([]string, error) {
	if dir != "" && !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	var out []string
	for l := (List{Bucket: t.bucket, Prefix: dir, Delimiter: "/"}); ; {
		p, err := t.c.List(ctx, l)
		if err != nil {
			return nil, err
		}
		for _, o := range p.Objects {
			if name := strings.TrimPrefix(o.Key, dir); name != "" {
				out = append(out, name)
			}
		}
		if len(out) > mostNames {
			return nil, errs.New(errs.Unsupported, "list", urlOf(t.bucket, dir),
				fmt.Sprintf("it holds more than %d objects", mostNames))
		}
		if l.After = p.Next; !p.Truncated || p.Next == "" {
			return out, nil
		}
	}
}

// ReadAll returns the content of a whole object. ReadAll fails with kind Invalid if the object has more than limit
// bytes.
func (t *Tree) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	return throughDoorOrNetwork(ctx, t.c, "read", urlOf(t.bucket, key),
		func(d *door) ([]byte, error) { return d.readAll(ctx, t.bucket, key, limit) },
		func() ([]byte, error) { return t.c.network.readAll(ctx, t.bucket, key, limit) })
}

func (d *door) readAll(ctx context.Context, bucket, key string, limit int64) ([]byte, error) {
	const op = "read"
	host := wire.Device{Index: -1}
	o, err := d.one(ctx, want{op: op, bits: wire.WantBuffered | wire.WantInline | wire.WantSums, device: host},
		wire.OpenItem{Bucket: bucket, Key: key, N: -1})
	if err != nil {
		return nil, err
	}
	if o.item.Size > limit {
		o.drop()
		return nil, errs.New(errs.Invalid, op, o.name, fmt.Sprintf("has %d bytes, expected at most %d", o.item.Size, limit))
	}
	if o.item.HasInline {
		b, err := o.inline(true)
		o.drop()
		return b, err
	}
	f, sums, err := o.wholeFile(ctx, op, host)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, f.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	for i, want := range sums.Blocks {
		off, n := sums.Extent(int64(i))
		if got := checksum.Of(b[off : off+n]); got != want {
			return nil, errs.New(errs.Corrupt, "verify", o.name,
				fmt.Sprintf("bytes %d to %d differ from the checksum that the server keeps: theirs is %016x, expected %016x", off,
					off+n, got, want)).
				WithFix("read it again; if it differs again, the object is damaged on the server: store it anew from a good copy")
		}
	}
	return b, nil
}
