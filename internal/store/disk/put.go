// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// content is the result of receiving a body: bytes for the metadata, or a durable file that waits for its commit.
type content struct {
	object.Written
	inline []byte
	file   *datafile.Writer
	sums   []uint64
	parts  []object.PartInfo
}

// abort removes a file that was not committed.
func (c *content) abort() {
	if c.file != nil {
		_ = c.file.Abort() // what stays is removed by the next recovery
	}
}

// receive reads a body: content of at most k.inline bytes into memory, larger content into a file that is not synced
// yet.
func (s *Store) receive(ctx context.Context, op, name string, body io.Reader, size int64, withMD5 bool,
	k keeping) (*content, error) {
	if size < -1 {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("size %d, expected -1 or more", size))
	}
	if body == nil {
		body = bytes.NewReader(nil)
	}
	if err := s.space.check(op, name, size); err != nil {
		return nil, err
	}
	if size > k.inline {
		return s.receiveFile(ctx, body, size, withMD5, k.pages)
	}
	// Reading one byte more than announced, or than fits, shows that the body has more.
	limit := size
	if size < 0 {
		limit = k.inline
	}
	buf := make([]byte, limit+1)
	n, err := readFull(body, buf)
	switch {
	case err == nil && size < 0:
		return s.receiveFile(ctx, io.MultiReader(bytes.NewReader(buf), body), -1, withMD5, k.pages)
	case err == nil:
		return nil, object.Fail(op, name, object.ErrIncompleteBody, fmt.Sprintf("the body goes on after %d bytes", size))
	case err != io.EOF:
		return nil, &errs.Error{Op: op, Name: name, Msg: "reading the body", Err: err}
	}
	if size >= 0 && int64(n) < size {
		return nil, object.Fail(op, name, object.ErrIncompleteBody,
			fmt.Sprintf("the body ends after %d of %d bytes", n, size))
	}
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(op, name, err)
	}
	c := &content{inline: buf[:n], Written: object.Written{Size: int64(n), CRC64: checksum.Of(buf[:n])}}
	if withMD5 {
		sum := md5.Sum(c.inline)
		c.MD5 = sum[:]
	}
	return c, nil
}

// readFull fills p. Unlike io.ReadFull it distinguishes a body that ended (io.EOF) from a body that was cut off and
// reports that itself, which must not pass for a shorter body.
func readFull(body io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = body.Read(p[n:])
		n += k
	}
	if n == len(p) {
		return n, nil
	}
	return n, err
}

// receiveFile reads a body into a file that is not synced yet. If pages is set, whole pages are reserved for it first.
func (s *Store) receiveFile(ctx context.Context, body io.Reader, size int64, withMD5, pages bool) (*content, error) {
	id, err := s.fileIDs.take(s)
	if err != nil {
		return nil, err
	}
	w, err := s.files.Create(datafile.ID(id), size)
	if err != nil {
		return nil, err
	}
	if pages {
		if err := w.Reserve(size); err != nil {
			return nil, err
		}
	}
	got, err := w.Fill(ctx, body, size, withMD5)
	if err != nil {
		return nil, err
	}
	return &content{file: w, sums: got.Sums, Written: object.Written{Size: got.Size, CRC64: got.CRC64, MD5: got.MD5}}, nil
}

// sync makes a file durable, so that its metadata can be committed.
func (c *content) sync(ctx context.Context) error {
	if c.file == nil {
		return nil
	}
	return c.file.Sync(ctx)
}

// version returns a record of the content.
func (c *content) version(etag string, attrs map[string]string) *record.Version {
	v := &record.Version{Size: c.Size, CRC: c.CRC64, ETag: etag, Attrs: attrs}
	if c.file != nil {
		v.File = uint64(c.file.ID())
	} else if c.Size > 0 {
		v.Flags |= record.FlagInline
	}
	return v
}

// Put implements object.Objects.
func (s *Store) Put(ctx context.Context, p object.Put) (object.Info, error) {
	const op = "put"
	end, err := s.begin(ctx, op, p.Key)
	if err != nil {
		return object.Info{}, err
	}
	defer end()
	if err := object.CheckNew(op, p.Key, p.Attributes); err != nil {
		return object.Info{}, err
	}
	bk, err := s.find(op, p.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if err := s.quotas.room(op, p.Key, bk, p.Size, s.quotas.replaced(bk, p.Key)); err != nil {
		return object.Info{}, err
	}
	kind := bk.settings.Load().ETag
	withMD5 := p.Plain == nil && (p.MD5 || kind == object.ETagMD5)
	c, err := s.receive(ctx, op, p.Key, p.Body, p.Size, withMD5, keepingOf(s, bk))
	if err != nil {
		return object.Info{}, err
	}
	shown := c.Written
	if p.Plain != nil {
		shown = p.Plain()
	}
	attrs, err := object.FinishAttributes(op, p.Key, p.Attributes, p.Finish, shown)
	if err == nil {
		err = c.sync(ctx)
	}
	if err != nil {
		c.abort()
		return object.Info{}, err
	}
	v := c.version(object.ETagOf(kind, shown), attrs)
	if p.Plain != nil {
		v.Seal(shown)
	}
	return s.publish(ctx, publication{op: op, kind: object.ChangePut, bk: bk, key: p.Key, cond: p.Condition, c: c,
		judge: p.Judge, origin: p.Origin}, v)
}

// publication is content that is to become the newest version of a key. The version is passed beside it as a
// parameter, so that it stays on the stack.
type publication struct {
	op    string
	kind  object.ChangeKind // in the journal
	bk    *bucket
	key   string
	cond  object.Condition
	c     *content
	judge object.Judge      // may be nil
	more  func(t *tx) error // adds to the change; may be nil
	// expect, if not nil, is the sequence of the version that the content was made from, 0 for none. If the key has
	// another version meanwhile, the publication fails with errMoved.
	expect *uint64
	origin *object.Origin // of which version the content is a copy; nil: none
}

// publish makes content the newest version of a key. It is the commit point of every write of an object. Content that
// was not committed is removed.
func (s *Store) publish(ctx context.Context, p publication, v *record.Version) (object.Info, error) {
	release, err := p.bk.hold(p.op)
	if err != nil {
		p.c.abort()
		return object.Info{}, err
	}
	defer release()
	return s.publishHeld(ctx, p, v)
}

// publishHeld is publish for a caller that holds the bucket.
func (s *Store) publishHeld(ctx context.Context, p publication, v *record.Version) (object.Info, error) {
	info, err := s.tryPublish(ctx, p, v)
	if err != nil {
		if !fence.IsUnsure(err) {
			p.c.abort()
		}
		return object.Info{}, err
	}
	return info, nil
}

func (s *Store) tryPublish(ctx context.Context, p publication, v *record.Version) (object.Info, error) {
	if err := ctx.Err(); err != nil {
		return object.Info{}, errs.Wrap(p.op, p.key, err)
	}
	lock := s.stripes.of(p.bk.id, p.key)
	lock.Lock()
	defer lock.Unlock()
	head, err := s.current(p.bk, p.key)
	if err != nil {
		return object.Info{}, err
	}
	if p.expect != nil && *p.expect != seqOf(head) {
		return object.Info{}, errMoved
	}
	if err := holds(p.op, p.key, p.cond, head); err != nil {
		return object.Info{}, err
	}
	t := s.change(p.bk)
	if p.c.file != nil {
		t.then = p.c.file.Settle
	}
	t.origin = p.origin
	if err := t.supersede(p.op, p.key, head, v, p.judge); err != nil {
		t.cancel()
		return object.Info{}, err
	}
	t.putContent(p.key, v, p.c.inline, p.c.sums, p.c.parts)
	t.putCurrent(p.key, v)
	t.s.journal.add(ctx, t, object.ChangeKindOf(ctx, p.kind), p.key, v)
	if p.more != nil {
		if err := p.more(t); err != nil {
			t.cancel()
			return object.Info{}, err
		}
	}
	if err := t.commit(p.op, p.key); err != nil {
		return object.Info{}, err
	}
	i := s.info(p.bk, p.key, v, true)
	i.Attributes = object.MergeAttributes(v.Attrs, nil)
	i.Parts = p.c.parts
	return i, nil
}

// supersede makes room for v as the newest version of its key, as the bucket's versioning requires, and sets the
// sequence, the name and the time of v. head is the current version. judge, if not nil, is called before anything is
// changed.
func (t *tx) supersede(op, key string, head, v *record.Version, judge object.Judge) error {
	var err error
	if v.Seq, err = t.s.seqs.take(t.s); err != nil {
		return err
	}
	v.Nonce, v.Modified = nonce(), t.s.now()
	if head != nil {
		v.Modified = max(v.Modified, head.Modified)
	}
	state := t.bk.settings.Load().Versioning
	if state != object.VersioningEnabled {
		v.Flags |= record.FlagNull
	}
	if err := imitate(t, op, key, head, v, state); err != nil {
		return err
	}
	// Everything is read before anything is changed: in a step of several deletions the others go on.
	var old *record.Version
	if v.Null() && state != object.VersioningOff {
		if old, err = oldNull(t.s.db, t.bk.id, key); err != nil {
			return err
		}
	}
	gone := old
	if head != nil && !head.Marker() && v.Null() && head.Null() {
		gone = head
	}
	if err := t.judge(op, key, judge, judged{gone: gone, latest: gone == head, head: head, v: v}); err != nil {
		return err
	}
	switch {
	case head == nil || head.Marker():
	case v.Null() && head.Null():
		t.takeCurrent(key, head)
		t.dropContent(head)
	default:
		t.retire(key, head)
	}
	if old != nil {
		t.takeOld(key, old)
		t.dropContent(old)
	}
	return nil
}

// judged is a change that a Judge decides about: it removes the version gone and adds v; both may be nil. head is the
// current version before the change, or nil.
type judged struct {
	gone, head, v *record.Version
	latest        bool // whether gone is the newest version
}

// judge calls judge about a change. The caller holds the key's lock and the bucket.
func (t *tx) judge(op, key string, judge object.Judge, j judged) error {
	if judge == nil {
		return nil
	}
	c := object.Change{Bucket: t.bk.settings.Load()}
	if j.gone != nil && !j.gone.Marker() {
		info := t.s.info(t.bk, key, j.gone, j.latest)
		c.Removed = &info
	}
	v := j.v
	if v != nil && v.Marker() && j.head != nil && !j.head.Marker() {
		info := t.s.info(t.bk, key, j.head, true)
		c.Current = &info
	}
	more, err := judge(c)
	if err != nil || v == nil || v.Marker() || len(more) == 0 {
		return err
	}
	v.Attrs = object.MergeAttributes(v.Attrs, more)
	return object.CheckAttributes(op, key, v.Attrs)
}
