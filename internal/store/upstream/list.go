// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// mostPages limits the requests for one page. An upstream may return fewer entries than were asked for.
const mostPages = 100

// listed is an object, an upload or a common prefix of a listing.
type listed struct {
	key   string
	id    string // version or upload ID; empty if a key has one entry
	group bool   // whether key is a common prefix
	info  object.Info
	up    object.Upload
}

// cursor is the position in a listing: what the upstream named as the next page, or what the caller named.
type cursor struct {
	after, version string // a key with its version or upload ID
	token          string // of ListObjectsV2
}

// lister reads the pages of one kind of listing.
type lister struct {
	b      *Bucket
	op     string
	prefix string
	after  string // the caller's position
	within string // ID of the entry of the key after at which the caller is; empty means behind all of them
	limit  int
	many   bool // whether a key can have several entries
	fetch  func(ctx context.Context, at cursor, n int) ([]listed, cursor, bool, error)
}

// page reads entries until the limit is reached or the listing ends. The entries come in byte order, and none comes
// twice. The upstream's pages may be shorter or longer than the pages that were asked for, and may begin with the entry
// at which the page before has ended.
func (l *lister) page(ctx context.Context, at cursor) (entries []listed, more bool, err error) {
	last, ids := "", map[string]bool{} // the last key and the IDs of its entries
	extra := 0
	for range mostPages {
		found, next, follows, err := l.fetch(ctx, at, l.limit-len(entries)+extra)
		if err != nil {
			return nil, false, err
		}
		group := len(found) > 0 && found[len(found)-1].group
		for i := range found {
			if l.within != "" && found[i].key == l.after && found[i].id == l.within {
				found = found[i+1:] // the caller has the entries up to this one
				break
			}
		}
		for i := range found {
			e := &found[i]
			switch {
			case e.key == l.after && (e.group || l.within == ""), e.key == last && (e.group || e.key == at.after && !l.many),
				e.key == last && l.many && ids[e.id]:
				continue // the caller has it already
			case e.key < last, e.key == last && !l.many, e.key < l.after && !(e.group && strings.HasPrefix(l.after, e.key)):
				return nil, false, &disorder{nonsense(l.op, l.b.label(l.prefix),
					fmt.Sprintf("the upstream lists %.64q after %.64q", e.key, max(last, l.after)))}
			case !strings.HasPrefix(e.key, l.prefix):
				return nil, false, nonsense(l.op, l.b.label(l.prefix), fmt.Sprintf("the upstream lists %.64q", e.key))
			}
			if e.key != last {
				last = e.key
				clear(ids)
			}
			ids[e.id] = true
			entries = append(entries, *e)
		}
		if follows && next == at && at.token == "" && group {
			// The upstream takes the common prefix for a key in front of the keys below the prefix.
			next.after += string(unicode.MaxRune)
		}
		switch {
		case len(entries) > l.limit:
			return entries[:l.limit], true, nil
		case !follows:
			return entries, false, nil
		case len(entries) == l.limit:
			return entries, true, nil
		case next == at && extra == 0:
			extra = 1 // one more than the entry at the position, with which this upstream begins its pages
		case next == at:
			return nil, false, nonsense(l.op, l.b.label(l.prefix), "the upstream repeats a page of the listing")
		}
		at = next
	}
	return nil, false, nonsense(l.op, l.b.label(l.prefix),
		fmt.Sprintf("the upstream has sent %d pages with %d entries in total", mostPages, len(entries)))
}

// disorder is the error of a listing that is not in order, or does not begin where it was asked to begin.
type disorder struct{ err error }

func (d *disorder) Error() string { return d.err.Error() }
func (d *disorder) Unwrap() error { return d.err }

// List implements object.Lister. Info.CRC64 is unknown in listings, and List.Attributes has no effect. Info.Version is
// empty unless versions are listed, because S3 does not name it.
func (t *Through) List(ctx context.Context, l object.List) (object.Page, error) {
	const op = "list"
	if l.Bucket != t.name {
		return object.Page{}, object.Fail(op, l.Bucket, object.ErrNoSuchBucket, "")
	}
	if l.Limit <= 0 || l.Limit > 1000 {
		l.Limit = 1000
	}
	run := lister{b: t.b, op: op, prefix: l.Prefix, after: l.After, limit: l.Limit}
	var entries []listed
	var more bool
	var err error
	switch {
	case l.Versions:
		run.within, run.many = l.AfterVersion, true
		run.fetch = func(ctx context.Context, at cursor, n int) ([]listed, cursor, bool, error) {
			return t.b.versionsPage(ctx, &l, at, n)
		}
		entries, more, err = run.page(ctx, cursor{after: l.After, version: l.AfterVersion})
		if errs.KindOf(err) == errs.Unsupported && err != nil {
			// Without versioning, each object has one version, which is the null version.
			l.Versions = false
			page, err := t.List(ctx, l)
			for i := range page.Objects {
				page.Objects[i].Version = object.NullVersion
			}
			return page, err
		}
	default:
		first := t.b.Capabilities().Lacks(ListV2)
		run.fetch = func(ctx context.Context, at cursor, n int) ([]listed, cursor, bool, error) {
			return t.b.objectsPage(ctx, &l, at, n, first)
		}
		entries, more, err = run.page(ctx, cursor{after: l.After})
		var d *disorder
		if !first && (errors.As(err, &d) || errors.Is(err, errNotV2)) {
			first = true
			if entries, more, err = run.page(ctx, cursor{after: l.After}); err == nil {
				t.b.learn(ListV2, Finding{Detail: "only the first version of the listing works"})
			}
		}
	}
	if err != nil {
		return object.Page{}, err
	}
	page := object.Page{Truncated: more}
	for i := range entries {
		e := &entries[i]
		if e.group {
			page.Prefixes = append(page.Prefixes, e.key)
			continue
		}
		e.info.Bucket = t.name
		page.Objects = append(page.Objects, e.info)
	}
	if more && len(entries) > 0 {
		last := &entries[len(entries)-1]
		page.Next = last.key
		if l.Versions && !last.group {
			page.NextVersion = last.info.Version
		}
	}
	return page, nil
}

// errNotV2 means that the upstream does not know ListObjectsV2.
var errNotV2 = errors.New("the upstream does not know ListObjectsV2")

// objectsPage asks for one page of objects, by the second version of the listing or the first.
func (b *Bucket) objectsPage(ctx context.Context, l *object.List, at cursor, n int, first bool) ([]listed, cursor, bool,
	error) {
	q := url.Values{"encoding-type": {"url"}, "max-keys": {strconv.Itoa(n)}, "prefix": {b.path(l.Prefix)}}
	if l.Delimiter != "" {
		q.Set("delimiter", l.Delimiter)
	}
	position := "marker"
	if !first {
		q.Set("list-type", "2")
		position = "start-after"
	}
	switch {
	case at.token != "":
		q.Set("continuation-token", at.token)
	case at.after != "":
		q.Set(position, b.path(at.after))
	}
	var x listDocument
	if err := b.document(ctx, "list", l.Prefix, q, "ListBucketResult", &x); err != nil {
		if !first && (errs.KindOf(err) == errs.Unsupported || errs.KindOf(err) == errs.Invalid) {
			return nil, at, false, errNotV2
		}
		return nil, at, false, err
	}
	found, err := b.entriesOf(&x)
	if err != nil {
		return nil, at, false, nonsense("list", b.label(l.Prefix), err.Error())
	}
	next := cursor{}
	switch {
	case !x.IsTruncated:
	case !first && x.NextContinuationToken != "":
		next.token = x.NextContinuationToken
	case !first:
		return nil, at, false, errNotV2
	case len(found) > 0:
		next.after = found[len(found)-1].key
	case x.NextMarker != "":
		if next.after, err = positionOf(b.o.Prefix, x.EncodingType, x.NextMarker); err != nil {
			return nil, at, false, nonsense("list", b.label(l.Prefix), err.Error())
		}
	default:
		return nil, at, false, nonsense("list", b.label(l.Prefix), "the upstream says that more follows, and sends no entry")
	}
	return found, next, x.IsTruncated, nil
}

// versionsPage asks for one page of versions and delete markers.
func (b *Bucket) versionsPage(ctx context.Context, l *object.List, at cursor, n int) ([]listed, cursor, bool, error) {
	q := url.Values{"versions": {""}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(n)},
		"prefix": {b.path(l.Prefix)}}
	if l.Delimiter != "" {
		q.Set("delimiter", l.Delimiter)
	}
	if at.after != "" {
		q.Set("key-marker", b.path(at.after))
		if at.version != "" {
			q.Set("version-id-marker", at.version)
		}
	}
	var x listDocument
	if err := b.document(ctx, "list", l.Prefix, q, "ListVersionsResult", &x); err != nil {
		return nil, at, false, err
	}
	found, err := b.entriesOf(&x)
	if err != nil {
		return nil, at, false, nonsense("list", b.label(l.Prefix), err.Error())
	}
	next := cursor{}
	if x.IsTruncated {
		switch {
		case len(found) > 0:
			next.after, next.version = found[len(found)-1].key, found[len(found)-1].id
		case x.NextKeyMarker != "":
			if next.after, err = positionOf(b.o.Prefix, x.EncodingType, x.NextKeyMarker); err != nil {
				return nil, at, false, nonsense("list", b.label(l.Prefix), err.Error())
			}
			next.version = x.NextVersionID
		default:
			return nil, at, false, nonsense("list", b.label(l.Prefix), "the upstream says that more follows, and sends no entry")
		}
	}
	return found, next, x.IsTruncated, nil
}

// positionOf returns the position that a reply names for the next page, as a key below a prefix.
func positionOf(prefix, encoding, text string) (string, error) {
	full, err := plainer(encoding == "url").text(text)
	key, ok := strings.CutPrefix(full, prefix)
	if err != nil || !ok || len(full) > 4*object.MaxKey {
		return "", fmt.Errorf("the reply names %.64q as the position of the next page", text)
	}
	return key, nil
}

// document sends a GET of the bucket and reads the XML document of its reply.
func (b *Bucket) document(ctx context.Context, op, what string, query url.Values, root string, x any) error {
	q := &call{op: op, of: ofBucket, Request: s3.Request{Method: http.MethodGet, Bucket: b.o.Bucket, Query: query}}
	return b.read(ctx, q, b.label(what), root, x)
}

// read sends a request and reads the XML document of its reply.
func (b *Bucket) read(ctx context.Context, q *call, name, root string, x any) error {
	r, err := b.send(ctx, q)
	if err != nil {
		return err
	}
	doc, err := r.text(mostDocument)
	if err == nil {
		if f, ok := s3.FaultIn(doc); ok && root != "Error" {
			return refused(q.op, name, f, q.of)
		}
		err = decode(doc, root, x)
	}
	if err != nil {
		if ctx.Err() != nil {
			return cancelled(ctx, q.op, name)
		}
		return unavailable(q.op, name, explain(err))
	}
	return nil
}

// sorted puts objects and common prefixes in byte order, and keeps the order of versions.
func sorted(entries []listed) {
	slices.SortStableFunc(entries, func(a, b listed) int { return strings.Compare(a.key, b.key) })
}
