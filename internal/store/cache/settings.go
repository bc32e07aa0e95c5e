// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

var _ object.Foreign = (*Store)(nil)

// Upstream implements object.Foreign.
func (s *Store) Upstream(name string) object.Upstream {
	b := s.buckets[name]
	if b == nil {
		return nil
	}
	if b.Settings == nil {
		return nil
	}
	return &guarded{b.Settings, s, name}
}

// guarded refuses changes of a bucket that accepts none.
type guarded struct {
	object.Upstream
	s    *Store
	name string
}

// SetVersioning implements object.Upstream.
func (g *guarded) SetVersioning(ctx context.Context, v object.Versioning) error {
	if _, err := g.s.mayChange("write versioning of", g.name); err != nil {
		return err
	}
	return g.Upstream.SetVersioning(ctx, v)
}

// SetLock implements object.Upstream.
func (g *guarded) SetLock(ctx context.Context, l object.Lock) error {
	if _, err := g.s.mayChange("write object lock of", g.name); err != nil {
		return err
	}
	return g.Upstream.SetLock(ctx, l)
}

// DeleteNothing implements object.Upstream.
func (g *guarded) DeleteNothing(ctx context.Context) error {
	if _, err := g.s.mayChange("delete", g.name); err != nil {
		return err
	}
	return g.Upstream.DeleteNothing(ctx)
}

// detailed asks the upstream for the whole description of an object. The second result is false if the upstream does
// not answer: then the cache may know the object.
func (b *bucket) detailed(ctx context.Context, ref object.Ref) (object.Info, bool, error) {
	info, err := b.Pass.Stat(ctx, ref)
	return info, !errors.Is(err, upstream.ErrUnavailable), err
}
