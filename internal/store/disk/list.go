// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// maxPage is the most entries that a page holds.
const maxPage = 1000

func limitOf(limit int) int {
	if limit <= 0 || limit > maxPage {
		return maxPage
	}
	return limit
}

// group returns the common prefix of key, or "" if key is listed itself.
func group(key, prefix, delimiter string) string {
	if delimiter == "" {
		return ""
	}
	i := strings.Index(key[len(prefix):], delimiter)
	if i < 0 {
		return ""
	}
	return key[:len(prefix)+i+len(delimiter)]
}

// cursor walks over the keys of one kind in a bucket.
type cursor struct {
	s    *Store
	it   *pebble.Iterator
	kind byte
	id   uint64
	ok   bool
	key  string // of the object
	seq  uint64 // of the version, in the space of versions
	err  error
}

// cursor returns a cursor over all keys of the bucket with a prefix.
func (s *Store) cursor(r pebble.Reader, kind byte, bucket uint64, prefix string) (*cursor, error) {
	c := &cursor{s: s, kind: kind, id: bucket}
	lower := c.at(prefix)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: record.After(lower)})
	if err != nil {
		return nil, errs.Wrap("list", "", err)
	}
	c.it = it
	return c, nil
}

// at returns the beginning of all keys that begin with name.
func (c *cursor) at(name string) []byte {
	k := record.Numbered(c.kind, c.id, len(name)+16)
	if c.kind == record.KindObject {
		return append(k, name...)
	}
	return record.Escape(k, name)
}

// seek moves to the first key that is not before name.
func (c *cursor) seek(name string) { c.set(c.it.SeekGE(c.at(name))) }

// past moves behind all keys that begin with name.
func (c *cursor) past(name string) {
	end := record.After(c.at(name))
	if end == nil {
		c.ok = false
		return
	}
	c.set(c.it.SeekGE(end))
}

// behind moves to the first key after name itself.
func (c *cursor) behind(name string) {
	if c.kind == record.KindObject {
		c.set(c.it.SeekGE(append(c.at(name), 0)))
		return
	}
	c.set(c.it.SeekGE(append(c.at(name), 0, 2)))
}

func (c *cursor) next() { c.set(c.it.Next()) }

func (c *cursor) set(ok bool) {
	c.s.steps.Add(1)
	c.ok = ok
	if !ok {
		if c.err == nil {
			c.err = metadb.WrapRead("", c.it.Error())
		}
		return
	}
	k := c.it.Key()
	if c.kind == record.KindObject {
		c.key = string(k[9:])
		return
	}
	var good bool
	if c.key, c.seq, good = record.SplitVersionKey(k); !good {
		c.ok, c.err = false, record.Unreadable("version key", k)
	}
}

// version decodes the record at the cursor.
func (c *cursor) version(brief bool) (*record.Version, error) {
	b, err := c.it.ValueAndErr()
	if err != nil {
		return nil, metadb.WrapRead(c.key, err)
	}
	return record.DecodeVersion(b, brief)
}

func (c *cursor) close() error {
	if err := c.it.Close(); c.err == nil {
		c.err = err
	}
	return errs.Wrap("list", "", c.err)
}

// List implements object.Lister. List reads only the keys on the page, and skips all keys of a common prefix with one
// seek.
//
// A page shows one consistent state of the bucket. A page may include a change that is not yet durable and not yet
// acknowledged.
func (s *Store) List(ctx context.Context, l object.List) (object.Page, error) {
	const op = "list"
	end, err := s.begin(ctx, op, l.Bucket)
	if err != nil {
		return object.Page{}, err
	}
	defer end()
	bk, err := s.find(op, l.Bucket)
	if err != nil {
		return object.Page{}, err
	}
	if l.Versions {
		return s.listVersions(ctx, bk, l)
	}
	c, err := s.cursor(s.db, record.KindObject, bk.id, l.Prefix)
	if err != nil {
		return object.Page{}, err
	}
	p := &pager{ctx: ctx, s: s, bk: bk, l: l, limit: limitOf(l.Limit)}
	err = p.objects(c)
	if e := c.close(); err == nil {
		err = e
	}
	return p.page, err
}

// pager fills a page.
type pager struct {
	ctx   context.Context
	s     *Store
	bk    *bucket
	l     object.List
	limit int
	page  object.Page
	n     int
}

// full reports whether the page is full, and marks it as truncated.
func (p *pager) full() bool {
	if p.n < p.limit {
		return false
	}
	p.page.Truncated = true
	return true
}

func (p *pager) addPrefix(prefix string) {
	p.page.Prefixes = append(p.page.Prefixes, prefix)
	p.page.Next, p.page.NextVersion = prefix, ""
	p.n++
}

func (p *pager) add(key string, v *record.Version, latest bool) error {
	i := p.s.info(p.bk, key, v, latest)
	if p.l.Attributes {
		var err error
		if i.Parts, err = loadParts(p.s.db, v); err != nil {
			return err
		}
	} else {
		i.Attributes = nil
	}
	p.page.Objects = append(p.page.Objects, i)
	p.page.Next = key
	if p.l.Versions {
		p.page.NextVersion = i.Version
	}
	p.n++
	return nil
}

// done clears the markers of a page that is not truncated.
func (p *pager) done() {
	if !p.page.Truncated {
		p.page.Next, p.page.NextVersion = "", ""
	}
}

func (p *pager) objects(c *cursor) error {
	defer p.done()
	if p.l.After == "" || p.l.After < p.l.Prefix {
		c.seek(p.l.Prefix)
	} else {
		c.behind(p.l.After)
	}
	for c.ok {
		if err := p.ctx.Err(); err != nil {
			return errs.Wrap("list", p.l.Bucket, err)
		}
		if g := group(c.key, p.l.Prefix, p.l.Delimiter); g != "" {
			if g != p.l.After {
				if p.full() {
					return nil
				}
				p.addPrefix(g)
			}
			c.past(g)
			continue
		}
		if p.full() {
			return nil
		}
		v, err := c.version(!p.l.Attributes)
		if err != nil {
			return err
		}
		if err := p.add(c.key, v, true); err != nil {
			return err
		}
		c.next()
	}
	return nil
}
