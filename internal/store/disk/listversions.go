// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// listVersions merges current and noncurrent versions, which have different kinds of keys. Both are read in one
// consistent state of the bucket.
func (s *Store) listVersions(ctx context.Context, bk *bucket, l object.List) (object.Page, error) {
	snap := s.db.NewSnapshot()
	defer func() { _ = snap.Close() }()
	now, err := s.cursor(snap, record.KindObject, bk.id, l.Prefix)
	if err != nil {
		return object.Page{}, err
	}
	old, err := s.cursor(snap, record.KindVersion, bk.id, l.Prefix)
	if err != nil {
		_ = now.close()
		return object.Page{}, err
	}
	p := &pager{ctx: ctx, s: s, bk: bk, l: l, limit: limitOf(l.Limit)}
	err = p.versions(now, old)
	for _, c := range []*cursor{now, old} {
		if e := c.close(); err == nil {
			err = e
		}
	}
	return p.page, err
}

func (p *pager) versions(now, old *cursor) error {
	defer p.done()
	passed, err := p.place(now, old)
	if err != nil {
		return err
	}
	for now.ok || old.ok {
		if err := p.ctx.Err(); err != nil {
			return errs.Wrap("list", p.l.Bucket, err)
		}
		key := now.key
		if !now.ok || old.ok && old.key < key {
			key = old.key
		}
		if g := group(key, p.l.Prefix, p.l.Delimiter); g != "" {
			if g != p.l.After {
				if p.full() {
					return nil
				}
				p.addPrefix(g)
			}
			now.past(g)
			old.past(g)
			continue
		}
		latest := key != p.l.After || !passed
		for now.ok && now.key == key || old.ok && old.key == key {
			c := old
			if now.ok && now.key == key {
				c = now
			}
			if p.full() {
				return nil
			}
			v, err := c.version(!p.l.Attributes)
			if err != nil {
				return err
			}
			if err := p.add(key, v, latest); err != nil {
				return err
			}
			latest = false
			c.next()
		}
	}
	return nil
}

// place puts both cursors at the beginning of the page; passed means that newer versions of the key After were
// skipped.
func (p *pager) place(now, old *cursor) (passed bool, err error) {
	l := p.l
	if l.After == "" || l.After < l.Prefix {
		now.seek(l.Prefix)
		old.seek(l.Prefix)
		return false, nil
	}
	if l.AfterVersion == "" {
		now.behind(l.After)
		old.behind(l.After)
		return false, nil
	}
	now.seek(l.After)
	old.seek(l.After)
	below, err := p.sequence(l.After, l.AfterVersion, now)
	if err != nil {
		return false, err
	}
	if now.ok && now.key == l.After {
		v, err := now.version(true)
		if err != nil {
			return false, err
		}
		if v.Seq >= below {
			now.next()
			passed = true
		}
	}
	if old.ok && old.key == l.After && old.seq >= below {
		// Sequences begin at 1, and below is one, or above all.
		old.set(old.it.SeekGE(record.VersionKey(p.bk.id, l.After, below-1)))
		passed = true
	}
	return passed, nil
}

// sequence finds the place of a version, even of a deleted one. The place of a deleted null version is unknown, so no
// version is left out.
func (p *pager) sequence(key, id string, now *cursor) (uint64, error) {
	if id != object.NullVersion {
		raw, ok := record.ParseName(id)
		if !ok {
			return ^uint64(0), nil
		}
		_, seq := p.s.names.Split(raw)
		return max(seq, 1), nil
	}
	if now.ok && now.key == key {
		v, err := now.version(true)
		if err != nil {
			return 0, err
		}
		if v.Null() {
			return v.Seq, nil
		}
	}
	v, err := oldNull(p.s.db, p.bk.id, key)
	if v == nil || err != nil {
		return ^uint64(0), err
	}
	return v.Seq, nil
}
