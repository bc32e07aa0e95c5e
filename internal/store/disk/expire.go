// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// expirePage is the number of uploads that one read of the index looks at.
const expirePage = 256

// Expired is a multipart upload that ExpireUploads aborted.
type Expired struct {
	object.Upload
	Parts int
	Bytes int64     // size of the upload's parts in bytes
	Last  time.Time // time of the upload's last part, or of its start if it has no part
}

// ExpireUploads aborts every multipart upload that has started before the time `before` and has received no part since
// then. If the function told is not nil, ExpireUploads calls it after each aborted upload. An upload with a call in
// progress, such as PutPart or CompleteUpload, is not aborted.
//
// ExpireUploads judges and removes each upload under the upload's own lock. A concurrent PutPart or CompleteUpload
// either comes first and keeps the upload, or fails with ErrNoSuchUpload. ExpireUploads removes each upload in one
// synced batch: after a crash an upload either exists with all its parts, or is gone with all its parts.
//
// If an upload cannot be read, ExpireUploads continues with the next one, and returns the first read error at the
// end.
func (s *Store) ExpireUploads(ctx context.Context, before time.Time, told func(Expired)) error {
	const op = "expire uploads"
	limit := before.UnixMilli()
	buckets, err := s.ListBuckets(ctx)
	if err != nil {
		return err
	}
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, b := range buckets {
		var from []byte
		for more := true; more; {
			var old []object.Upload
			old, from, more, err = s.oldUploads(ctx, op, b.Name, from, limit, note)
			if err != nil {
				note(err)
				break
			}
			for _, u := range old {
				e, err := s.expireUpload(ctx, op, u, limit)
				switch {
				case err == nil && e != nil && told != nil:
					told(*e)
				case ctx.Err() != nil, errors.Is(err, object.ErrClosed):
					return err
				case err != nil && !errors.Is(err, object.ErrNoSuchUpload) && !errors.Is(err, object.ErrNoSuchBucket):
					note(err)
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return errs.Wrap(op, b.Name, context.Cause(ctx))
		}
	}
	return first
}

// oldUploads returns uploads of a bucket that began before limit, at most one page, and the start of the next page.
// It calls bad for each record that cannot be read, and continues behind it.
func (s *Store) oldUploads(
	ctx context.Context, op, bucket string, from []byte, limit int64, bad func(error),
) (old []object.Upload, next []byte, more bool, err error) {
	end, err := s.begin(ctx, op, bucket)
	if err != nil {
		return nil, nil, false, err
	}
	defer end()
	bk, err := s.find(op, bucket)
	if errors.Is(err, object.ErrNoSuchBucket) {
		return nil, nil, false, nil // deleted meanwhile
	}
	if err != nil {
		return nil, nil, false, err
	}
	if from == nil {
		from = record.Numbered(record.KindUpload, bk.id, 0)
	}
	seen := 0
	err = metadb.Each(s.db, from, record.Numbered(record.KindUpload, bk.id+1, 0), func(k, b []byte) error {
		if seen == expirePage {
			next, more = slices.Clone(k), true
			return metadb.ErrStop
		}
		seen++
		key, raw, ok := record.SplitUploadKey(k)
		if !ok {
			bad(record.Unreadable("upload key", k))
			return nil
		}
		u, err := record.DecodeUpload(b)
		if err != nil {
			bad(err)
			return nil
		}
		if u.Started < limit {
			old = append(old, uploadInfo(u, bucket, key, raw))
		}
		return ctx.Err()
	})
	if more {
		err = nil
	}
	return old, next, more, errs.Wrap(op, bucket, err)
}

// expireUpload aborts an upload if its last part or its start is before limit; otherwise it returns nil.
func (s *Store) expireUpload(ctx context.Context, op string, want object.Upload, limit int64) (*Expired, error) {
	end, err := s.begin(ctx, op, want.Key)
	if err != nil {
		return nil, err
	}
	defer end()
	bk, err := s.find(op, want.Bucket)
	if err != nil {
		return nil, err
	}
	raw, _ := record.ParseName(want.ID)
	seq := s.uploadSeq(raw)
	l := s.uploads.acquire(seq)
	defer s.uploads.release(seq, l)
	release, err := bk.hold(op)
	if err != nil {
		return nil, err
	}
	defer release()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.uploads.others(l) {
		return nil, nil
	}
	u, raw, err := s.upload(op, bk, want.Key, want.ID)
	if err != nil {
		return nil, err
	}
	e := &Expired{Upload: want}
	last := u.Started
	err = metadb.Each(s.db, record.Numbered(record.KindPart, seq, 0), record.Numbered(record.KindPart, seq+1, 0),
		func(_, b []byte) error {
			p, err := record.DecodePart(b, true)
			if err != nil {
				return err
			}
			e.Parts++
			e.Bytes += p.Size
			last = max(last, p.Modified)
			return nil
		})
	if err != nil {
		return nil, err
	}
	if last >= limit {
		return nil, nil
	}
	e.Last = record.Time(last)
	t := s.change(bk)
	if err := t.dropUpload(want.Key, raw, u, 0); err != nil {
		t.cancel()
		return nil, err
	}
	return e, t.commit(op, want.Key)
}

// others reports whether other calls for this upload are in progress.
func (u *uploads) others(l *live) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return l.refs > 1
}
