// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Stat implements object.Objects.
func (s *Store) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	const op = "stat"
	end, err := s.begin(ctx, op, ref.Key)
	if err != nil {
		return object.Info{}, err
	}
	defer end()
	bk, err := s.find(op, ref.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	lock := s.stripes.of(bk.id, ref.Key)
	lock.RLock()
	defer lock.RUnlock()
	v, latest, err := s.resolve(op, bk, ref)
	if v == nil {
		return object.Info{}, err
	}
	i, partsErr := s.fullInfo(bk, ref.Key, v, latest)
	if err == nil {
		err = partsErr
	}
	return i, err
}

// Open implements object.Objects. Open holds the lock of the key until the file is open, so that the file cannot be
// removed before.
func (s *Store) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	const op = "open"
	end, err := s.begin(ctx, op, ref.Key)
	if err != nil {
		return nil, err
	}
	defer end()
	bk, err := s.find(op, ref.Bucket)
	if err != nil {
		return nil, err
	}
	lock := s.stripes.of(bk.id, ref.Key)
	lock.RLock()
	defer lock.RUnlock()
	v, latest, err := s.resolveContent(op, bk, ref)
	if err != nil {
		return nil, err
	}
	return s.openVersion(op, bk, ref.Key, v, latest, false)
}

// resolveContent is resolve for a version with content; a delete marker has none.
func (s *Store) resolveContent(op string, bk *bucket, ref object.Ref) (*record.Version, bool, error) {
	v, latest, err := s.resolve(op, bk, ref)
	if err == nil && v.Marker() {
		err = object.Fail(op, ref.Key, object.ErrIsMarker, ref.Version)
	}
	return v, latest, err
}

// openVersion opens the content of a version under the key's lock. Its sums are read now, because they are removed
// with the version; if strict is set, also if the policy compares nothing.
func (s *Store) openVersion(op string, bk *bucket, key string, v *record.Version, latest, strict bool) (object.Content,
	error) {
	i, err := s.fullInfo(bk, key, v, latest)
	if err != nil {
		return nil, err
	}
	if v.File == 0 {
		b, err := s.inlineOf(op, i, v)
		if err != nil {
			return nil, err
		}
		return &inlineContent{info: i, data: b}, nil
	}
	r, err := s.files.OpenRead(datafile.ID(v.File), v.Size, func() ([]uint64, error) { return metadb.LoadSums(s.db, v) })
	if err != nil {
		var d *datafile.Damage
		if errors.As(err, &d) {
			s.fileDamage(i, v, d)
		}
		return nil, &errs.Error{Op: op, Name: key, Err: err}
	}
	if err := r.Load(strict); err != nil {
		_ = r.Close()
		if errs.KindOf(err) == errs.Corrupt {
			s.damage(object.Damage{Ref: object.Ref{Bucket: i.Bucket, Key: i.Key, Version: i.Version},
				File: s.files.Path(datafile.ID(v.File)), N: v.Size, What: "checksum"})
			return nil, object.Fail(op, key, layout.Both{Sentinel: object.ErrDamaged, Cause: err}, "")
		}
		return nil, &errs.Error{Op: op, Name: key, Err: err}
	}
	r.OnDamage = func(d *datafile.Damage) { s.fileDamage(i, v, d) }
	return &fileContent{info: i, r: r}, nil
}

func (s *Store) fileDamage(i object.Info, v *record.Version, d *datafile.Damage) {
	s.damage(object.Damage{Ref: object.Ref{Bucket: i.Bucket, Key: i.Key, Version: i.Version}, File: d.File, Off: d.Off,
		N: d.N, What: v.Wrong(d.What)})
}

// inlineOf reads inline content, which is small and compared each time.
func (s *Store) inlineOf(op string, i object.Info, v *record.Version) ([]byte, error) {
	b, what, err := metadb.LoadInline(s.db, v)
	if err != nil || what == "" {
		return b, err
	}
	s.damage(object.Damage{Ref: object.Ref{Bucket: i.Bucket, Key: i.Key, Version: i.Version}, N: v.Size, What: what})
	return nil, object.Fail(op, i.Key, object.ErrDamaged,
		fmt.Sprintf("%s: %d bytes kept with the metadata, %d found", what, v.Size, len(b)))
}

func copyInfo(i object.Info) object.Info {
	i.Attributes = maps.Clone(i.Attributes)
	i.Parts = slices.Clone(i.Parts)
	for k := range i.Parts {
		i.Parts[k].Attributes = maps.Clone(i.Parts[k].Attributes)
	}
	return i
}

// inlineContent is content in memory.
type inlineContent struct {
	info   object.Info
	data   []byte
	closed atomic.Bool
}

// Info implements object.Content.
func (c *inlineContent) Info() object.Info { return copyInfo(c.info) }

// Section implements object.Content.
func (c *inlineContent) Section(r object.Range) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.info.Key, object.ErrClosed, "")
	}
	size := int64(len(c.data))
	if r.Off < 0 || r.N < 0 || r.Off > size || r.N > size-r.Off {
		return nil, object.Fail("read", c.info.Key, object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", r.N, r.Off, size))
	}
	return &inlineBody{*bytes.NewReader(c.data[r.Off : r.Off+r.N])}, nil
}

// Close implements object.Content.
func (c *inlineContent) Close() error {
	c.closed.Store(true)
	return nil
}

type inlineBody struct{ bytes.Reader }

// Len implements object.Body.
func (b *inlineBody) Len() int64 { return int64(b.Reader.Len()) }

// Close implements object.Body.
func (b *inlineBody) Close() error { return nil }

// fileContent is content in a data file.
type fileContent struct {
	info   object.Info
	r      *datafile.Reader
	closed atomic.Bool
}

var _ object.Stricter = (*fileContent)(nil)

// Info implements object.Content.
func (c *fileContent) Info() object.Info { return copyInfo(c.info) }

// Section implements object.Content.
func (c *fileContent) Section(r object.Range) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.info.Key, object.ErrClosed, "")
	}
	return c.r.Section(r.Off, r.N)
}

// Strict implements object.Stricter.
func (c *fileContent) Strict(r object.Range) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.info.Key, object.ErrClosed, "")
	}
	return c.r.Strict(r.Off, r.N)
}

// strictly returns a section of content with every byte compared with its sum, for a caller that computes new sums.
func strictly(c object.Content, r object.Range) (object.Body, error) {
	if f, ok := c.(object.Stricter); ok {
		return f.Strict(r)
	}
	return c.Section(r) // was compared when it was opened
}

// Close implements object.Content.
func (c *fileContent) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.r.Close()
}
