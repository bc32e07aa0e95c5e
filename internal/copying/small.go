// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"crypto/md5" //nolint:gosec // ETags are MD5 sums; they detect damage here
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// small copies a small object with one request, whose reply has all that a HEAD would say. The function finish of the
// tree is called when the file has its name.
func (t *tree) small(ctx context.Context, i item, dst place.Place) error {
	data, info, free, err := t.c.getSmall(ctx, Remote{Client: t.from.Client, Bucket: t.from.Bucket, Key: i.e.Name}, i.e)
	if err != nil {
		return err
	}
	defer free()
	r := Result{Bytes: i.e.Size, Moved: i.e.Size, Way: "http"}
	if r.Verified, err = compareSmall(info, data); err != nil {
		return err
	}
	modified := info.Modified
	if modified.IsZero() {
		modified = i.e.Modified
	}
	if t.c.o.ChecksumFiles {
		s := &checksum.Sums{Size: i.e.Size, Block: block}
		for p := data; len(p) > 0; p = p[min(len(p), block):] {
			s.Blocks = append(s.Blocks, checksum.Of(p[:min(len(p), block)]))
		}
		if err := t.folder.put(i.e.Key+checksum.Suffix, s.Encode(), modified, func(error) {}); err != nil {
			return err
		}
	}
	return t.folder.put(i.e.Key, data, modified, func(err error) {
		if err == nil {
			t.c.files.Add(1)
		}
		t.finish(i, dst.String(), r, err)
	})
}

// getSmall reads a whole object into memory. The caller calls free when it no longer needs the data.
func (c *Copier) getSmall(ctx context.Context, from Remote, e place.Entry) ([]byte, s3.Info, func(), error) {
	if err := c.gate.enter(ctx); err != nil {
		return nil, s3.Info{}, nil, err
	}
	defer c.gate.leave()
	if err := c.limit.wait(ctx, int(e.Size)); err != nil {
		return nil, s3.Info{}, nil, err
	}
	var data []byte
	free := func() {}
	if e.Size <= block {
		buf := c.buffers.Get().(*[]byte)
		data, free = (*buf)[:e.Size], func() { c.buffers.Put(buf) }
	} else {
		data = make([]byte, e.Size)
	}
	info, err := from.Client.GetInto(ctx, from.Bucket, from.Key, e.ETag, data)
	if err != nil {
		free()
		return nil, s3.Info{}, nil, err
	}
	c.moved.Add(e.Size)
	return data, info, free, nil
}

// compareSmall compares a content with the checksum that the server keeps.
func compareSmall(info s3.Info, data []byte) (string, error) {
	algorithm, want := info.Kept()
	got := uint64(0)
	switch algorithm {
	case "crc64nvme":
		got = checksum.Of(data)
	case "crc32c":
		got = uint64(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	case "crc32":
		got = uint64(crc32.ChecksumIEEE(data))
	default:
		want := info.MD5()
		if want == "" {
			return "length+etag", nil
		}
		sum := md5.Sum(data) //nolint:gosec // as above
		if got := hex.EncodeToString(sum[:]); got != want {
			return "", differsFromMD5(s3.URL(info.Bucket, info.Key), got, want)
		}
		return "md5", nil
	}
	if got != want {
		return "", errs.New(errs.Corrupt, "copy", s3.URL(info.Bucket, info.Key), fmt.Sprintf("the content differs from the "+
			"checksum that the server keeps: its %s is %x, expected %x", algorithm, got, want)).
			WithFix("copy it again; if it differs again, the object is damaged on the server")
	}
	return algorithm, nil
}

// same compares the content of a file with that of the destination, which has the same size.
func (t *tree) same(ctx context.Context, i item) (bool, error) {
	to, err := t.to.Join(i.e.Key)
	if err != nil {
		return false, err
	}
	switch {
	case t.from.Remote() && t.to.Remote():
		a, err := t.from.Client.Head(ctx, t.from.Bucket, i.e.Name, "")
		if err != nil {
			return false, err
		}
		b, err := t.to.Client.Head(ctx, t.to.Bucket, to.Key, "")
		if err != nil {
			return false, err
		}
		how, sum := a.Kept()
		other, sum2 := b.Kept()
		if how != "" && how == other {
			return sum == sum2, nil
		}
		return a.MD5() != "" && a.MD5() == b.MD5(), nil
	case t.from.Remote():
		return t.sameFile(ctx, Remote{Client: t.from.Client, Bucket: t.from.Bucket, Key: i.e.Name}, to.Path)
	case t.to.Remote():
		return t.sameFile(ctx, Remote{Client: t.to.Client, Bucket: t.to.Bucket, Key: to.Key}, i.e.Name)
	}
	a, err := checksum.Compute(ctx, i.e.Name, block, nil)
	if err != nil {
		return false, err
	}
	b, err := checksum.Compute(ctx, to.Path, block, nil)
	if err != nil {
		return false, err
	}
	return a.Whole() == b.Whole(), nil
}

// sameFile compares an object with a file of the same size, by the checksum that the server keeps or by its ETag.
func (t *tree) sameFile(ctx context.Context, r Remote, path string) (same bool, err error) {
	info, err := r.Client.Head(ctx, r.Bucket, r.Key, "")
	if err != nil {
		return false, err
	}
	src, err := openFile(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	f := facts{md5: info.MD5()}
	f.algorithm, f.sum = info.Kept()
	if src.was.Size != info.Size || f.algorithm == "" && f.md5 == "" {
		return false, nil
	}
	w := newWholeSums(f, info.Size, t.c.join)
	h := md5.New() //nolint:gosec // as above
	b, err := t.c.openBlocks(ctx, src, 0, info.Size, func(int64) {})
	if err != nil {
		return false, err
	}
	defer b.Close()
	for n := int64(0); n < int64(len(w.blocks)); n++ {
		data, err := b.Next()
		if err != nil {
			return false, err
		}
		if f.algorithm == "" {
			h.Write(data)
		} else {
			w.set(n, w.of(data))
		}
	}
	if f.algorithm == "" {
		return hex.EncodeToString(h.Sum(nil)) == f.md5, nil
	}
	_, same = w.compare()
	return same, nil
}
