// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
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

// Open implements object.Objects.
func (s *Store) Open(ctx context.Context, ref object.Ref) (c object.Content, err error) {
	const op = "open"
	err = s.withContent(ctx, op, ref, func(bk *bucket, v *record.Version, latest bool) error {
		c, err = s.openVersion(op, bk, ref.Key, v, latest, false)
		return err
	})
	return c, err
}

// withContent calls use with the version that ref names. The key is locked until use returns, so that the version's
// file cannot be removed before it is open. A delete marker is an error, for it has no content.
func (s *Store) withContent(ctx context.Context, op string, ref object.Ref,
	use func(bk *bucket, v *record.Version, latest bool) error) error {
	end, err := s.begin(ctx, op, ref.Key)
	if err != nil {
		return err
	}
	defer end()
	bk, err := s.find(op, ref.Bucket)
	if err != nil {
		return err
	}
	lock := s.stripes.of(bk.id, ref.Key)
	lock.RLock()
	defer lock.RUnlock()
	v, latest, err := s.resolveContent(op, bk, ref)
	if err != nil {
		return err
	}
	return use(bk, v, latest)
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
		return object.NewMemoryContent(i, b), nil
	}
	r, err := s.files.OpenRead(datafile.ID(v.File), v.Size, func() ([]uint64, error) { return metadb.LoadSums(s.db, v) })
	if err != nil {
		var d *datafile.Damage
		if errors.As(err, &d) {
			s.fileDamage(i, v, d)
		}
		return nil, &errs.Error{Op: op, Name: key, Err: err}
	}
	// An append rewrites sums that have records of their own, so that they cannot be read later.
	grows := object.IsDirectory(i.Bucket) && record.ChunksOf(v.Size) > 0
	if err := r.Load(strict || grows); err != nil {
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

// fileContent is content in a data file.
type fileContent struct {
	info   object.Info
	r      *datafile.Reader
	closed atomic.Bool
}

var (
	_ object.Stricter  = (*fileContent)(nil)
	_ object.Unchecked = (*fileContent)(nil)
)

// Info implements object.Content.
func (c *fileContent) Info() object.Info { return c.info.Clone() }

// Encrypted implements object.MaybeEncrypted.
func (c *fileContent) Encrypted() bool { return c.info.Stored > 0 }

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

// Unchecked implements object.Unchecked.
func (c *fileContent) Unchecked(r object.Range) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.info.Key, object.ErrClosed, "")
	}
	return c.r.Unchecked(r.Off, r.N)
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
