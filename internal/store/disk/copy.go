// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// openRef opens the content that ref names.
func (s *Store) openRef(op string, ref object.Ref) (object.Content, error) {
	_, c, err := s.source(op, ref, object.Condition{})
	return c, err
}

// source opens the content that ref names, after checking cond on it.
func (s *Store) source(op string, ref object.Ref, cond object.Condition) (*record.Version, object.Content, error) {
	bk, err := s.find(op, ref.Bucket)
	if err != nil {
		return nil, nil, err
	}
	lock := s.stripes.of(bk.id, ref.Key)
	lock.RLock()
	defer lock.RUnlock()
	v, latest, err := s.resolveContent(op, bk, ref)
	if err != nil {
		return nil, nil, err
	}
	if err := holds(op, ref.Key, cond, v); err != nil {
		return nil, nil, err
	}
	c, err := s.openVersion(op, bk, ref.Key, v, latest, true)
	return v, c, err
}

// Copy implements object.Objects. The copy gets the ETag and the list of parts of its source.
func (s *Store) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	const op = "copy"
	end, err := s.begin(ctx, op, c.Key)
	if err != nil {
		return object.Info{}, err
	}
	defer end()
	if err := object.CheckNew(op, c.Key, c.Attributes); err != nil {
		return object.Info{}, err
	}
	from, open, err := s.source(op, c.From, c.FromCondition)
	if err != nil {
		return object.Info{}, err
	}
	defer func() { _ = open.Close() }()
	bk, err := s.find(op, c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	attrs := object.MergeAttributes(from.Attrs, nil)
	if c.Attributes != nil {
		attrs = object.MergeAttributes(c.Attributes, nil)
	}
	if _, ok := attrs[object.AttrSealed]; from.Sealed() && !ok {
		// The caller took the source for an object without encryption. Its copy could never be decrypted.
		return object.Info{}, object.Fail(op, c.Key, object.ErrChanged, "the source is encrypted now")
	}
	if c.From.Bucket == c.Bucket && c.From.Key == c.Key {
		if info, done, err := s.rewrite(ctx, op, bk, c, from.Seq, attrs); done || err != nil {
			return info, err
		}
	}
	if err := s.space.check(op, c.Key, from.Size); err != nil {
		return object.Info{}, err
	}
	cont, err := s.duplicate(ctx, open, keepingOf(s, bk).inline)
	if err != nil {
		return object.Info{}, err
	}
	cont.parts = open.Info().Parts
	etag := from.ETag
	if object.IsDirectory(c.Bucket) {
		etag = object.CRC64ETag(cont.CRC64, cont.Size, max(1, len(cont.parts)))
	}
	v := cont.version(etag, attrs)
	if from.Sealed() {
		v.Seal(object.Written{Size: from.Plain, CRC64: from.PlainCRC})
	}
	return s.publish(ctx, publication{op: op, kind: object.ChangeCopy, bk: bk, key: c.Key, cond: c.Condition, c: cont,
		judge: c.Judge}, v)
}

// duplicate copies content. Content of at most inline bytes stays in memory, and larger content becomes a file, which
// is durable when duplicate returns.
func (s *Store) duplicate(ctx context.Context, from object.Content, inline int64) (*content, error) {
	if in, ok := from.(*object.MemoryContent); ok {
		i, b := in.Info(), in.Bytes()
		if int64(len(b)) > inline {
			c, err := s.receiveFile(ctx, bytes.NewReader(b), int64(len(b)), false, true)
			if err == nil {
				err = c.sync(ctx)
			}
			return c, err
		}
		if i.Stored > 0 {
			i.CRC64 = checksum.Of(b)
		}
		return &content{inline: b, Written: object.Written{Size: int64(len(b)), CRC64: i.CRC64}}, nil
	}
	r := from.(*fileContent).r
	id, err := s.fileIDs.take(s)
	if err != nil {
		return nil, err
	}
	w, err := s.files.Create(datafile.ID(id), r.Size())
	if err != nil {
		return nil, err
	}
	got, err := w.Copy(ctx, []datafile.Source{{From: r, N: r.Size()}}, false)
	if err == nil {
		err = w.Sync(ctx)
	}
	if err != nil {
		_ = w.Abort() // what stays is removed by the next recovery
		return nil, err
	}
	return &content{file: w, sums: got.Sums, Written: object.Written{Size: got.Size, CRC64: got.CRC64}}, nil
}

// rewrite copies a current null version onto itself if the copy replaces it: only its record changes. It does nothing
// in other cases, or if seq is not the current version any more.
func (s *Store) rewrite(ctx context.Context, op string, bk *bucket, c object.Copy, seq uint64,
	attrs map[string]string) (info object.Info, done bool, err error) {
	release, err := bk.hold(op)
	if err != nil {
		return info, false, err
	}
	defer release()
	lock := s.stripes.of(bk.id, c.Key)
	lock.Lock()
	defer lock.Unlock()
	head, err := s.current(bk, c.Key)
	if err != nil {
		return info, false, err
	}
	if head == nil || head.Seq != seq || !head.Null() || bk.settings.Load().Versioning == object.VersioningEnabled {
		return info, false, nil
	}
	if err := holds(op, c.Key, c.Condition, head); err != nil {
		return info, false, err
	}
	v := *head
	v.Attrs, v.Nonce, v.Modified = attrs, nonce(), max(s.now(), head.Modified)
	if v.Seq, err = s.seqs.take(s); err != nil {
		return info, false, err
	}
	t := s.change(bk)
	if err := t.judge(op, c.Key, c.Judge, judged{gone: head, latest: true, head: head, v: &v}); err != nil {
		t.cancel()
		return info, false, err
	}
	t.takeCurrent(c.Key, head)
	t.putCurrent(c.Key, &v)
	t.s.journal.add(ctx, t, object.ChangeCopy, c.Key, &v)
	err = t.move(head.Seq, &v, c.Key)
	if err == nil {
		err = t.commit(op, c.Key)
	} else {
		t.cancel()
	}
	if err != nil {
		return info, false, err
	}
	info, err = s.fullInfo(bk, c.Key, &v, true)
	return info, true, err
}

// move moves the records under the old sequence of a version to its new sequence.
func (t *tx) move(old uint64, v *record.Version, key string) error {
	move := func(from, to []byte) error {
		b, err := metadb.Get(t.s.db, from)
		if err != nil {
			return err
		}
		if b == nil {
			return errs.New(errs.Corrupt, "read metadata", key,
				"what belongs to the version is missing").WithFix("stop the server and run nebulaio store check")
		}
		t.del(from)
		t.set(to, b)
		return nil
	}
	if v.Inline() {
		if err := move(record.DataKey(old), record.DataKey(v.Seq)); err != nil {
			return err
		}
	}
	if v.Flags&record.FlagParts != 0 {
		if err := move(record.PartsKey(old), record.PartsKey(v.Seq)); err != nil {
			return err
		}
	}
	if v.File != 0 {
		t.own(v.File, record.Owner{Bucket: t.bk.id, Key: key, Seq: v.Seq, Part: -1})
	}
	return nil
}
