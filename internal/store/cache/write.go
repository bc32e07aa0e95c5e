// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// mayChange returns the upstream bucket of a change, or nil if the local store has the bucket. mayChange fails if the
// bucket accepts no changes.
func (s *Store) mayChange(op, name string) (*bucket, error) {
	b, err := s.upstreamOf(op, name)
	if err != nil || b == nil {
		return nil, err
	}
	if b.Rules.ReadOnly {
		return nil, &errs.Error{Kind: errs.Permission, Op: op, Name: name, Err: &object.Refusal{Kind: errs.Permission,
			Status: http.StatusMethodNotAllowed, Code: "MethodNotAllowed",
			Message: "The bucket is a read-only copy of a bucket on another server."},
			Fix: "set upstream." + name + ".write to through"}
	}
	return b, nil
}

// Put implements object.Objects. The object is written when the upstream has confirmed it. Then it is in the cache too.
func (s *Store) Put(ctx context.Context, p object.Put) (object.Info, error) {
	b, err := s.mayChange("put", p.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if b == nil {
		return s.local.Put(ctx, p)
	}
	keep := b.newKeeper(ctx, &p)
	b.changed(p.Key)
	info, err := b.Pass.Put(ctx, p)
	b.changed(p.Key) // also after an error: the upstream may have written the object
	if err != nil {
		keep.drop()
		return info, err
	}
	keep.keep(ctx, info)
	return info, nil
}

// Delete implements object.Objects.
func (s *Store) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	b, err := s.mayChange("delete", d.Bucket)
	if err != nil {
		return object.Deleted{}, err
	}
	if b == nil {
		return s.local.Delete(ctx, d)
	}
	defer b.changing(d.Key)()
	return b.Pass.Delete(ctx, d)
}

// changing records a change that begins, and returns the function that records its end.
func (b *bucket) changing(key string) (done func()) {
	b.changed(key)
	return func() { b.changed(key) }
}

// DeleteMany implements object.Objects.
func (s *Store) DeleteMany(ctx context.Context, name string, ds []object.Deletion) ([]object.Deleted, []error) {
	b, err := s.mayChange("delete", name)
	if err != nil {
		all := make([]error, len(ds))
		for i := range all {
			all[i] = err
		}
		return make([]object.Deleted, len(ds)), all
	}
	if b == nil {
		return s.local.DeleteMany(ctx, name, ds)
	}
	for i := range ds {
		defer b.changing(ds[i].Key)()
	}
	return b.Pass.DeleteMany(ctx, name, ds)
}

// SetAttributes implements object.Objects.
func (s *Store) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	b, err := s.mayChange("set attributes of", ref.Bucket)
	if err != nil {
		return err
	}
	if b == nil {
		return s.local.SetAttributes(ctx, ref, change)
	}
	defer b.changing(ref.Key)()
	if ref.Version != "" {
		defer b.records.forget(ref)
		b.records.forget(ref)
	}
	return b.Pass.SetAttributes(ctx, ref, change)
}

// Copy implements object.Objects. If source and destination are on different servers, the content passes through this
// server.
func (s *Store) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	to, err := s.mayChange("copy to", c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	from, err := s.upstreamOf("copy", c.From.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	switch {
	case to == nil && from == nil:
		return s.local.Copy(ctx, c)
	case to == from:
		defer to.changing(c.Key)()
		return to.Pass.Copy(ctx, c)
	}
	src, err := s.Open(ctx, c.From)
	if err != nil {
		return object.Info{}, err
	}
	defer src.Close()
	info := src.Info()
	if err := holds("copy", c.FromCondition, &info); err != nil {
		return object.Info{}, err
	}
	body, err := strict(src, object.Range{N: info.Size})
	if err != nil {
		return object.Info{}, err
	}
	defer body.Close()
	if c.Attributes == nil {
		c.Attributes = info.Attributes
	}
	return s.Put(ctx, object.Put{Bucket: c.Bucket, Key: c.Key, Size: info.Size, Body: body, Attributes: c.Attributes,
		Condition: c.Condition, Judge: c.Judge})
}

// strict returns a section whose blocks are all compared with their checksums, because a copy gets new checksums.
func strict(c object.Content, r object.Range) (object.Body, error) {
	if x, ok := c.(object.Stricter); ok {
		return x.Strict(r)
	}
	return c.Section(r)
}

// holds checks a condition on the source of a copy.
func holds(op string, c object.Condition, i *object.Info) error {
	if c.IfMatch != "" && c.IfMatch != "*" && c.IfMatch != i.ETag || c.IfNoneMatch == "*" ||
		c.IfNoneMatch != "" && c.IfNoneMatch == i.ETag || c.IfSize != nil && *c.IfSize != i.Size ||
		c.IfModified != nil && c.IfModified.Unix() != i.Modified.Unix() {
		return object.Fail(op, i.Key, object.ErrPrecondition, "the ETag of the source is "+i.ETag)
	}
	return nil
}

// List implements object.Lister. A listing always comes from the upstream.
func (s *Store) List(ctx context.Context, l object.List) (object.Page, error) {
	b, err := s.upstreamOf("list", l.Bucket)
	if err != nil {
		return object.Page{}, err
	}
	if b == nil {
		return s.local.List(ctx, l)
	}
	return b.Pass.List(ctx, l)
}

// DeleteBucket implements object.Buckets. An upstream bucket cannot be deleted while the configuration names it.
func (s *Store) DeleteBucket(ctx context.Context, name string) error {
	if b := s.buckets[name]; b != nil {
		return &errs.Error{Kind: errs.Invalid, Op: "delete bucket", Name: name, Err: &object.Refusal{Kind: errs.Invalid,
			Status: http.StatusConflict, Code: "OperationAborted",
			Message: "The configuration of the server names the bucket as an upstream bucket."},
			Fix: "remove upstream." + name + " from the configuration and restart the server"}
	}
	return s.local.DeleteBucket(ctx, name)
}

// NewDraft implements object.Handles. A draft is written to the local disk first, but an upstream bucket has to confirm
// a write before it succeeds.
func (s *Store) NewDraft(ctx context.Context, d object.Draft) (object.Drafting, error) {
	b, err := s.mayChange("write", d.Bucket)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return s.local.NewDraft(ctx, d)
	}
	return nil, errs.New(errs.Unsupported, "write", b.name(d.Key), "the bucket is kept by another server, which must "+
		"confirm each write").WithFix("write it over HTTP")
}

// written remembers an object that this node has just written, as the upstream is going to describe it.
func (b *bucket) written(id object.Identity, info object.Info, crc uint64) {
	if info.Attributes[object.AttrClass] != "" {
		return // some upstreams choose another class than the one that was asked for: the next read asks
	}
	a := upstream.About{Identity: id, Modified: info.Modified, Attributes: info.Attributes, CRC64: crc,
		HasCRC64: !info.NoCRC64}
	b.mu.Lock()
	changes := b.changes[stripe(id.Key)]
	b.mu.Unlock()
	b.records.remember(object.Ref{Key: id.Key}, changes,
		cachefile.Known{Identity: id, About: a.Encode(), Checked: b.s.now()})
}
