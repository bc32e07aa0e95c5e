// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// uploads are the uploads with calls in progress.
type uploads struct {
	s  *Store
	mu sync.Mutex
	of map[uint64]*live
}

// live is the state that calls in progress for one upload share. Its mutex is taken after the bucket's lock and
// before the key's, and held during every change of the upload.
type live struct {
	refs int // guarded by uploads.mu

	mu       sync.Mutex
	shared   *datafile.Shared // open while a part is written in place, and afterwards
	partSize int64            // decided by the first part that came
	busy     map[int]bool     // parts that are being written in place
}

func (u *uploads) init(s *Store) {
	u.s = s
	u.of = map[uint64]*live{}
}

func (u *uploads) acquire(seq uint64) *live {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.of[seq]
	if l == nil {
		l = &live{busy: map[int]bool{}}
		u.of[seq] = l
	}
	l.refs++
	return l
}

func (u *uploads) release(seq uint64, l *live) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.refs--; l.refs > 0 {
		return
	}
	delete(u.of, seq)
	if l.shared != nil {
		u.s.background(l.shared.Close())
	}
}

// upload reads the record of an upload.
func (s *Store) upload(op string, bk *bucket, key, id string) (u *record.Upload, raw [16]byte, err error) {
	missing := func() error { return object.Fail(op, key, object.ErrNoSuchUpload, id) }
	raw, ok := record.ParseName(id)
	if !ok || len(key) > object.MaxKey {
		return nil, raw, missing()
	}
	b, err := metadb.Get(s.db, record.UploadKey(bk.id, key, raw))
	if err != nil {
		return nil, raw, err
	}
	if b == nil {
		return nil, raw, missing()
	}
	u, err = record.DecodeUpload(b)
	return u, raw, err
}

func (s *Store) uploadSeq(raw [16]byte) uint64 {
	_, seq := s.names.Split(raw)
	return seq
}

// CreateUpload implements object.Uploads. CreateUpload records the file for the parts as owned by the upload, so that
// Recover never removes it as unknown.
func (s *Store) CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error) {
	const op = "create upload"
	end, err := s.begin(ctx, op, key)
	if err != nil {
		return "", err
	}
	defer end()
	if err := object.CheckNew(op, key, attributes); err != nil {
		return "", err
	}
	bk, err := s.find(op, bucket)
	if err != nil {
		return "", err
	}
	if err := s.space.check(op, key, 0); err != nil {
		return "", err
	}
	u := &record.Upload{Started: s.now(), Attrs: attributes}
	if u.File, err = s.fileIDs.take(s); err != nil {
		return "", err
	}
	seq, err := s.seqs.take(s)
	if err != nil {
		return "", err
	}
	raw := s.names.Raw(nonce(), seq)
	release, err := bk.hold(op)
	if err != nil {
		return "", err
	}
	defer release()
	t := s.change(bk)
	t.set(record.UploadKey(bk.id, key, raw), u.Encode())
	t.own(u.File, record.Owner{Bucket: bk.id, Key: key, Seq: seq})
	t.delta.Uploads++
	if err := t.commit(op, key); err != nil {
		return "", err
	}
	return record.Crockford.EncodeToString(raw[:]), nil
}

// GetUpload implements object.Uploads.
func (s *Store) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	const op = "get upload"
	end, err := s.begin(ctx, op, key)
	if err != nil {
		return object.Upload{}, err
	}
	defer end()
	bk, err := s.find(op, bucket)
	if err != nil {
		return object.Upload{}, err
	}
	u, raw, err := s.upload(op, bk, key, id)
	if err != nil {
		return object.Upload{}, err
	}
	return uploadInfo(u, bucket, key, raw), nil
}

// uploadInfo describes an upload to clients.
func uploadInfo(u *record.Upload, bucket, key string, raw [16]byte) object.Upload {
	return object.Upload{Bucket: bucket, Key: key, ID: record.Crockford.EncodeToString(raw[:]),
		Started: record.Time(u.Started), Attributes: object.MergeAttributes(u.Attrs, nil)}
}

// AbortUpload implements object.Uploads.
func (s *Store) AbortUpload(ctx context.Context, bucket, key, id string) error {
	return abortUpload(ctx, s, bucket, key, id, nil)
}

// abortUpload ends an upload. If note is not nil, the change also writes that record.
func abortUpload(ctx context.Context, s *Store, bucket, key, id string, note *object.Note) error {
	const op = "abort upload"
	end, err := s.begin(ctx, op, key)
	if err != nil {
		return err
	}
	defer end()
	bk, err := s.find(op, bucket)
	if err != nil {
		return err
	}
	raw, _ := record.ParseName(id)
	seq := s.uploadSeq(raw)
	l := s.uploads.acquire(seq)
	defer s.uploads.release(seq, l)
	release, err := bk.hold(op)
	if err != nil {
		return err
	}
	defer release()
	l.mu.Lock()
	defer l.mu.Unlock()
	u, raw, err := s.upload(op, bk, key, id)
	if err != nil {
		return err
	}
	t := s.change(bk)
	err = t.dropUpload(key, raw, u, 0)
	if err == nil && note != nil {
		err = addNote(t, op, *note)
	}
	if err != nil {
		t.cancel()
		return err
	}
	return t.commit(op, key)
}

// dropUpload removes an upload and all its parts. keep is a file that stays.
func (t *tx) dropUpload(key string, raw [16]byte, u *record.Upload, keep uint64) error {
	seq := t.s.uploadSeq(raw)
	err := metadb.Each(t.s.db, record.Numbered(record.KindPart, seq, 0), record.Numbered(record.KindPart, seq+1, 0),
		func(k, b []byte) error {
			p, err := record.DecodePart(b, true)
			if err != nil {
				return err
			}
			t.del(append([]byte(nil), k...))
			t.delta.Parts -= p.Size
			if p.File != 0 && p.File != u.File && p.File != keep {
				t.dropFile(p.File, seq)
			}
			return nil
		})
	if err != nil {
		return err
	}
	t.del(record.UploadKey(t.bk.id, key, raw))
	t.delta.Uploads--
	if u.File != keep {
		t.dropFile(u.File, seq)
	}
	return nil
}

// dropUploads removes all uploads of a bucket; nobody else holds their locks.
func (t *tx) dropUploads() error {
	return metadb.Each(t.s.db, record.Numbered(record.KindUpload, t.bk.id, 0),
		record.Numbered(record.KindUpload, t.bk.id+1, 0), func(k, b []byte) error {
			key, raw, ok := record.SplitUploadKey(k)
			if !ok {
				return record.Unreadable("upload key", k)
			}
			u, err := record.DecodeUpload(b)
			if err != nil {
				return err
			}
			return t.dropUpload(key, raw, u, 0)
		})
}

// ListUploads implements object.Uploads.
func (s *Store) ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error) {
	const op = "list uploads"
	var page object.UploadPage
	end, err := s.begin(ctx, op, l.Bucket)
	if err != nil {
		return page, err
	}
	defer end()
	bk, err := s.find(op, l.Bucket)
	if err != nil {
		return page, err
	}
	lower := record.Escape(record.Numbered(record.KindUpload, bk.id, len(l.Prefix)), l.Prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: record.After(lower)})
	if err != nil {
		return page, errs.Wrap(op, l.Bucket, err)
	}
	defer func() { _ = it.Close() }()
	from := lower
	if l.AfterKey != "" && l.AfterKey >= l.Prefix {
		from = record.After(record.UploadPrefix(bk.id, l.AfterKey))
		if l.AfterID != "" {
			from = append(record.UploadPrefix(bk.id, l.AfterKey), afterID(l.AfterID)...)
		}
	}
	n, limit := 0, limitOf(l.Limit)
	for ok := it.SeekGE(from); ok; {
		if err := ctx.Err(); err != nil {
			return object.UploadPage{}, errs.Wrap(op, l.Bucket, err)
		}
		key, raw, good := record.SplitUploadKey(it.Key())
		if !good {
			return object.UploadPage{}, record.Unreadable("upload key", it.Key())
		}
		g := group(key, l.Prefix, l.Delimiter)
		if g != "" && g == l.AfterKey {
			ok = it.SeekGE(record.After(record.Escape(record.Numbered(record.KindUpload, bk.id, len(g)), g)))
			continue
		}
		if n == limit {
			page.Truncated = true
			break
		}
		n++
		if g != "" {
			page.Prefixes = append(page.Prefixes, g)
			page.NextKey, page.NextID = g, ""
			ok = it.SeekGE(record.After(record.Escape(record.Numbered(record.KindUpload, bk.id, len(g)), g)))
			continue
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return object.UploadPage{}, metadb.WrapRead(key, err)
		}
		u, err := record.DecodeUpload(b)
		if err != nil {
			return object.UploadPage{}, err
		}
		page.Uploads = append(page.Uploads, uploadInfo(u, l.Bucket, key, raw))
		page.NextKey, page.NextID = key, page.Uploads[len(page.Uploads)-1].ID
		ok = it.Next()
	}
	if !page.Truncated {
		page.NextKey, page.NextID = "", ""
	}
	return page, errs.Wrap(op, l.Bucket, metadb.WrapRead("", it.Error()))
}

// afterID returns the smallest raw identifier that sorts after the text id, which need not be a valid identifier.
func afterID(id string) []byte {
	if raw, ok := record.ParseName(id); ok {
		return append(raw[:], 0)
	}
	// Texts of one length sort as their bytes: find the smallest one above id by bisection.
	var low [16]byte
	for bit := range 128 {
		try := low
		try[bit/8] |= 0x80 >> (bit % 8)
		if record.Crockford.EncodeToString(try[:]) <= id {
			low = try
		}
	}
	if record.Crockford.EncodeToString(low[:]) > id {
		return low[:]
	}
	return append(low[:], 0)
}

func checkNumber(op, key string, n int) error {
	if n < 1 || n > object.MaxParts {
		return object.Fail(op, key, object.ErrInvalidPart,
			fmt.Sprintf("part number %d, expected 1 to %d", n, object.MaxParts))
	}
	return nil
}
