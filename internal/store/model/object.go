// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// holds returns an error if the condition c is not met. v is the current version of the key, or nil if the key has
// none. A delete marker counts as no version.
func holds(op, key string, c object.Condition, v *version) error {
	if v != nil && v.info.Marker {
		v = nil
	}
	wants := c.IfMatch != "" || c.IfSize != nil || c.IfModified != nil
	if v == nil {
		if wants {
			return object.Fail(op, key, object.ErrNoSuchKey, "the condition needs an object")
		}
		return nil
	}
	i := v.info
	switch {
	case c.IfMatch != "" && c.IfMatch != "*" && c.IfMatch != i.ETag:
		return object.Fail(op, key, object.ErrPrecondition, fmt.Sprintf("ETag %q, expected %q", i.ETag, c.IfMatch))
	case c.IfNoneMatch == "*" || c.IfNoneMatch != "" && c.IfNoneMatch == i.ETag:
		return object.Fail(op, key, object.ErrPrecondition,
			fmt.Sprintf("ETag %q, expected none of %q", i.ETag, c.IfNoneMatch))
	case c.IfSize != nil && *c.IfSize != i.Size:
		return object.Fail(op, key, object.ErrPrecondition, fmt.Sprintf("size %d, expected %d", i.Size, *c.IfSize))
	case c.IfModified != nil && c.IfModified.Unix() != i.Modified.Unix():
		return object.Fail(op, key, object.ErrPrecondition,
			fmt.Sprintf("modified %s, expected %s", i.Modified.Format(time.RFC3339), c.IfModified.Format(time.RFC3339)))
	}
	return nil
}

// current returns the newest version of a key, which may be a delete marker, or nil.
func (b *bucket) current(key string) *version {
	if vs := b.keys[key]; len(vs) > 0 {
		return vs[0]
	}
	return nil
}

// describe returns the description of a version that callers see.
func (b *bucket) describe(v *version) object.Info {
	i := v.info.Clone()
	i.Latest = b.current(i.Key) == v
	return i
}

// drop removes one version; the others keep their order, so that the next one becomes current.
func (b *bucket) drop(key string, v *version) {
	vs := slices.DeleteFunc(slices.Clone(b.keys[key]), func(o *version) bool { return o == v })
	if len(vs) == 0 {
		delete(b.keys, key)
		return
	}
	b.keys[key] = vs
}

// named returns the version of a key with that identifier, or nil.
func (b *bucket) named(key, id string) *version {
	for _, v := range b.keys[key] {
		if v.info.Version == id {
			return v
		}
	}
	return nil
}

// add makes v the newest version of its key, as the bucket's versioning requires; the caller holds the mutex.
func (s *Store) add(b *bucket, v *version) object.Info {
	key := v.info.Key
	v.seq = s.next()
	v.info.Version = object.NullVersion
	v.info.Modified = now()
	if v.origin != nil {
		v.info.Modified = v.origin.Modified.UTC().Truncate(time.Millisecond)
		if v.origin.ETag != "" && !v.info.Marker {
			v.info.ETag = v.origin.ETag
		}
	}
	if !b.nullNext(v) {
		v.info.Version = versionID(v.seq)
	} else if old := b.named(key, object.NullVersion); old != nil {
		b.drop(key, old)
	}
	b.keys[key] = append([]*version{v}, b.keys[key]...)
	return b.describe(v)
}

// nullNext reports whether v becomes the null version of its key.
func (b *bucket) nullNext(v *version) bool {
	if v.origin != nil {
		return v.origin.Null || b.settings.Versioning == object.VersioningOff
	}
	return b.settings.Versioning != object.VersioningEnabled
}

// judged asks judge about a new version, and adds it where judge allows that; the mutex is held.
func (s *Store) judged(op string, b *bucket, judge object.Judge, v *version) (object.Info, error) {
	if o := v.origin; o != nil {
		newest := ""
		if head := b.current(v.info.Key); head != nil {
			newest = head.info.Version
		}
		if newest != o.Newest {
			return object.Info{}, object.Fail(op, v.info.Key, object.ErrPrecondition,
				fmt.Sprintf("the newest version is %q, expected %q", newest, o.Newest))
		}
	}
	var gone *version
	if b.nullNext(v) {
		gone = b.named(v.info.Key, object.NullVersion)
	}
	var current *version
	if v.info.Marker {
		current = b.current(v.info.Key)
	}
	more, err := b.ask(judge, gone, current)
	if err != nil {
		return object.Info{}, err
	}
	if !v.info.Marker && len(more) > 0 {
		v.info.Attributes = object.MergeAttributes(v.info.Attributes, more)
		if err := object.CheckAttributes(op, v.info.Key, v.info.Attributes); err != nil {
			return object.Info{}, err
		}
	}
	return s.add(b, v), nil
}

// ask asks judge about a change that removes the version gone, nil where it removes none. current is the version below
// a new delete marker, nil for other changes.
func (b *bucket) ask(judge object.Judge, gone, current *version) (map[string]string, error) {
	if judge == nil {
		return nil, nil
	}
	c := object.Change{Bucket: b.settings}
	if gone != nil && !gone.info.Marker {
		info := b.describe(gone)
		c.Removed = &info
	}
	if current != nil && !current.info.Marker {
		info := b.describe(current)
		c.Current = &info
	}
	return judge(c)
}

// versionID names a version so that seqOf finds its place again, even after it is gone.
func versionID(seq uint64) string { return fmt.Sprintf("v%016x", seq) }

func seqOf(id string) (seq uint64, ok bool) {
	if n, err := fmt.Sscanf(id, "v%016x", &seq); n != 1 || err != nil || versionID(seq) != id {
		return 0, false
	}
	return seq, true
}

// Put implements object.Objects.
func (s *Store) Put(ctx context.Context, p object.Put) (object.Info, error) {
	const op = "put"
	if err := object.CheckNew(op, p.Key, p.Attributes); err != nil {
		return object.Info{}, err
	}
	if err := s.enter(ctx, op, p.Bucket); err != nil {
		return object.Info{}, err
	}
	begun, err := s.find(op, p.Bucket)
	if err != nil {
		s.mu.Unlock()
		return object.Info{}, err
	}
	kind := begun.settings.ETag
	s.mu.Unlock()

	data, err := take(ctx, op, p.Key, p.Body, p.Size)
	if err != nil {
		return object.Info{}, err
	}
	w, stored := shown(data, p.MD5 || kind == object.ETagMD5, p.Plain)
	as, err := object.FinishAttributes(op, p.Key, p.Attributes, p.Finish, w)
	if err != nil {
		return object.Info{}, err
	}
	if err := s.enter(ctx, op, p.Bucket); err != nil {
		return object.Info{}, err
	}
	defer s.mu.Unlock()
	b, err := s.still(op, p.Bucket, begun)
	if err != nil {
		return object.Info{}, err
	}
	if err := holds(op, p.Key, p.Condition, b.current(p.Key)); err != nil {
		return object.Info{}, err
	}
	return s.judged(op, b, p.Judge, &version{data: data, origin: p.Origin, info: object.Info{
		Bucket: p.Bucket, Key: p.Key, Size: w.Size, ETag: object.ETagOf(kind, w), CRC64: w.CRC64, Attributes: as,
		Stored: stored,
	}})
}

// still finds a bucket again, which has to be the one that was there before; the mutex is held.
func (s *Store) still(op, name string, before *bucket) (*bucket, error) {
	b, err := s.find(op, name)
	if err == nil && b != before {
		err = object.Fail(op, name, object.ErrNoSuchBucket, "it was deleted meanwhile")
	}
	return b, err
}

// resolve finds the version that ref names; the caller holds the mutex. If the current version is a delete marker,
// resolve returns it with ErrNoSuchKey.
func (s *Store) resolve(op string, ref object.Ref) (*bucket, *version, error) {
	b, err := s.find(op, ref.Bucket)
	if err != nil {
		return nil, nil, err
	}
	if ref.Version != "" {
		v := b.named(ref.Key, ref.Version)
		if v == nil {
			return b, nil, object.Fail(op, ref.Key, object.ErrNoSuchVersion, ref.Version)
		}
		return b, v, nil
	}
	v := b.current(ref.Key)
	if v == nil {
		return b, nil, object.Fail(op, ref.Key, object.ErrNoSuchKey, "")
	}
	if v.info.Marker {
		return b, v, object.Fail(op, ref.Key, object.ErrNoSuchKey, "it is deleted")
	}
	return b, v, nil
}

// content finds the version that ref names, which has to have content; the mutex is held.
func (s *Store) content(op string, ref object.Ref) (*bucket, *version, error) {
	b, v, err := s.resolve(op, ref)
	if err == nil && v.info.Marker {
		err = object.Fail(op, ref.Key, object.ErrIsMarker, ref.Version)
	}
	return b, v, err
}

// Stat implements object.Objects.
func (s *Store) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	const op = "stat"
	if err := s.enter(ctx, op, ref.Bucket); err != nil {
		return object.Info{}, err
	}
	defer s.mu.Unlock()
	b, v, err := s.resolve(op, ref)
	if v == nil {
		return object.Info{}, err
	}
	return b.describe(v), err
}

// Open implements object.Objects.
func (s *Store) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	const op = "open"
	if err := s.enter(ctx, op, ref.Bucket); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	b, v, err := s.content(op, ref)
	if err != nil {
		return nil, err
	}
	return object.NewMemoryContent(b.describe(v), v.data), nil
}

// Copy implements object.Objects. The copy gets the ETag and the list of parts of its source.
func (s *Store) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	const op = "copy"
	if err := object.CheckNew(op, c.Key, c.Attributes); err != nil {
		return object.Info{}, err
	}
	if err := s.enter(ctx, op, c.Bucket); err != nil {
		return object.Info{}, err
	}
	defer s.mu.Unlock()
	_, from, err := s.content(op, c.From)
	if err != nil {
		return object.Info{}, err
	}
	if err := holds(op, c.From.Key, c.FromCondition, from); err != nil {
		return object.Info{}, err
	}
	b, err := s.find(op, c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if err := holds(op, c.Key, c.Condition, b.current(c.Key)); err != nil {
		return object.Info{}, err
	}
	v := &version{data: from.data, sums: from.sums, info: from.info.Clone()}
	v.info.Bucket, v.info.Key = c.Bucket, c.Key
	if c.Attributes != nil {
		v.info.Attributes = maps.Clone(c.Attributes)
	}
	if object.IsDirectory(c.Bucket) {
		v.info.ETag = object.CRC64ETag(v.info.CRC64, v.info.Size, max(1, len(v.info.Parts)))
	}
	return s.judged(op, b, c.Judge, v)
}

// SetAttributes implements object.Objects. For a delete marker, SetAttributes fails with ErrIsMarker.
func (s *Store) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	const op = "set attributes"
	if err := s.enter(ctx, op, ref.Bucket); err != nil {
		return err
	}
	defer s.mu.Unlock()
	_, v, err := s.content(op, ref)
	if err != nil {
		return err
	}
	as := object.MergeAttributes(v.info.Attributes, nil)
	if err := change(as); err != nil {
		return err
	}
	if err := object.CheckAttributes(op, ref.Key, as); err != nil {
		return err
	}
	v.info.Attributes = maps.Clone(as)
	return nil
}
