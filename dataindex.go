// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// DataIndexOptions choose the indexes that IndexData makes. The zero value makes FILE.tar.nbx beside each FILE.tar that
// has no such index.
type DataIndexOptions struct {
	// DALI makes the text index of NVIDIA DALI: STEM.idx beside STEM.tar or STEM.tfrecord.
	DALI bool
	// Check writes nothing, scans all files, and compares their indexes with the content.
	Check bool
	// Force makes an index even if there is one that belongs to the file.
	Force bool
	// Progress, if not nil, is called with the bytes of the files up to which they were scanned, and with the bytes of all
	// files. Calls do not overlap.
	Progress func(done, total int64)
	// Client chooses the server of files in a bucket.
	Client ClientOptions
}

// DataIndex is the index of one file of training data.
type DataIndex struct {
	File    string `json:"file"`
	Size    int64  `json:"size"` // of the file in bytes
	Index   string `json:"index"`
	Bytes   int64  `json:"bytes"` // of the index
	Samples int64  `json:"samples"`
	// Skipped is the number of members of an archive that belong to no sample, such as directories and links.
	Skipped int64 `json:"skipped,omitempty"`
	// State is "made", "present", "missing", "wrong" or "failed". The last three have an Err. An index is missing or wrong
	// only with DataIndexOptions.Check.
	State string `json:"state"`
	Err   error  `json:"-"`
}

// IndexData makes or checks the indexes of archives of training data. The sources are those of OpenData. An index
// appears under its name when it is complete and durable. A file that cannot be indexed does not stop the others. The
// result has an entry for each file; the error is about the sources themselves, or of kind Cancelled.
func (s *System) IndexData(ctx context.Context, sources []string, o DataIndexOptions) (all []DataIndex, err error) {
	if err := s.sys.Enter("make index", ""); err != nil {
		return nil, err
	}
	defer s.sys.Leave()
	if len(sources) == 0 {
		return nil, errs.New(errs.Invalid, "make index", "", "no file, folder or prefix is named")
	}
	place, err := newDataPlace(s, sources, o.Client)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	found, err := open.MakeIndexes(ctx, place, sources, open.IndexOptions{DALI: o.DALI, Check: o.Check, Force: o.Force,
		Progress: o.Progress, Write: func(ctx context.Context, name string, content []byte) error {
			return place.write(ctx, name, content)
		}})
	return convert(found, func(x open.Index) DataIndex {
		k := x.Skipped
		return DataIndex{File: x.File, Size: x.Size, Index: x.Name, Bytes: x.Bytes, Samples: x.Samples,
			Skipped: int64(k.NotRegular + k.NoExtension + k.Metadata + k.Bad), State: string(x.State), Err: x.Why}
	}), err
}

// write stores a file or an object durably. Readers see the old content or the new one.
func (p *dataPlace) write(ctx context.Context, name string, content []byte) error {
	if !p.isObject(name) {
		return writeFile(name, content)
	}
	at, err := parseURL(name)
	if err != nil {
		return err
	}
	return p.client.putBytes(ctx, at.bucket, at.key, content)
}

// putBytes stores an object of host memory.
func (c *Client) putBytes(ctx context.Context, bucket, key string, content []byte) error {
	w := ObjectWrite{Bucket: bucket, Key: key, Size: int64(len(content)), Device: "host"}
	if len(content) > 0 {
		m, err := c.sys.Alloc(ctx, "host", int64(len(content)))
		if err != nil {
			return err
		}
		defer func() { _ = m.Free() }()
		if err := m.Write(content, 0); err != nil {
			return err
		}
		w.Src = m.Ptr()
	}
	job, err := c.StartWrite(ctx, w)
	if err != nil {
		return err
	}
	return job.Wait()
}

// writeFile stores a file durably.
func writeFile(name string, content []byte) error {
	f, err := vfs.Create(name, int64(len(content)))
	if err != nil {
		return err
	}
	defer f.Abandon() // does nothing after Publish
	if err := f.WriteBuffered(content, 0); err != nil {
		return err
	}
	if _, err := f.Seal(); err != nil {
		return err
	}
	release, err := f.Publish()
	release()
	if err != nil {
		return err
	}
	dir, err := vfs.OpenDir(filepath.Dir(f.Target()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
