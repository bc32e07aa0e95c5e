// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// PutPart implements object.Uploads. If the first part that arrives has S bytes, part n belongs at offset (n-1)*S of
// the upload's file. PutPart writes a part at its offset in the upload's file if the part is not larger than the first
// part, and its range of the file is still unused. If a part cannot be written at its offset in the upload's file,
// PutPart writes the part into a file of its own. An acknowledged part is never overwritten.
func (s *Store) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	const op = "put part"
	end, err := s.begin(ctx, op, p.Key)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer end()
	return s.putPart(ctx, op, p)
}

// arriving is a part that is being received.
type arriving struct {
	s      *Store
	op     string
	bk     *bucket
	p      object.PutPart
	kind   object.ETagKind
	seq    uint64
	l      *live
	shared *datafile.Shared // nil: the part goes into a file of its own
	off    int64
	side   *datafile.Writer
	part   record.Part
}

func (s *Store) putPart(ctx context.Context, op string, p object.PutPart) (object.PartInfo, error) {
	if err := checkNumber(op, p.Key, p.Number); err != nil {
		return object.PartInfo{}, err
	}
	if p.Size < -1 {
		return object.PartInfo{}, errs.New(errs.Invalid, op, p.Key, fmt.Sprintf("size %d, expected -1 or more", p.Size))
	}
	if p.Body == nil {
		p.Body = strings.NewReader("")
	}
	bk, err := s.find(op, p.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	raw, _ := record.ParseName(p.Upload)
	a := &arriving{s: s, op: op, bk: bk, p: p, kind: bk.settings.Load().ETag, seq: s.uploadSeq(raw)}
	a.l = s.uploads.acquire(a.seq)
	defer s.uploads.release(a.seq, a.l)
	// Before the place is chosen: the part size of a change that still waits cannot be seen.
	if err := s.space.check(op, p.Key, p.Size); err != nil {
		return object.PartInfo{}, err
	}
	if err := a.place(); err != nil {
		return object.PartInfo{}, err
	}
	defer a.leave()
	w, err := a.write(ctx)
	shown := w
	if err == nil && p.Plain != nil {
		shown = p.Plain()
	}
	if err == nil {
		a.part.Attrs, err = object.FinishAttributes(op, p.Key, nil, p.Finish, shown)
	}
	if err == nil {
		err = a.sync(ctx)
	}
	if err == nil {
		err = a.commit(ctx, w, shown)
	}
	if err != nil {
		if a.side != nil && !fence.IsUnsure(err) {
			_ = a.side.Abort() // what stays is removed by the next recovery
		}
		return object.PartInfo{}, err
	}
	return a.part.Info(p.Number), nil
}

// lock finds the upload of the part and locks it. The bucket is held until release is called, so that no file is made
// after the bucket was removed.
func (a *arriving) lock() (u *record.Upload, raw [16]byte, release func(), err error) {
	let, err := a.bk.hold(a.op)
	if err != nil {
		return nil, raw, nil, err
	}
	a.l.mu.Lock()
	release = func() {
		a.l.mu.Unlock()
		let()
	}
	if u, raw, err = a.s.upload(a.op, a.bk, a.p.Key, a.p.Upload); err != nil {
		release()
		return nil, raw, nil, err
	}
	return u, raw, release, nil
}

// place decides where the part is written.
func (a *arriving) place() error {
	u, _, release, err := a.lock()
	if err != nil {
		return err
	}
	defer release()
	n, size := a.p.Number, a.p.Size
	if size < 1 {
		return nil
	}
	if a.l.partSize == 0 {
		a.l.partSize = u.PartSize
	}
	if a.l.partSize == 0 {
		a.l.partSize = size
	}
	if size > a.l.partSize || a.l.busy[n] || a.l.partSize > (datafile.MaxSize-size)/int64(n) {
		return nil
	}
	old, err := a.s.partAt(a.seq, n, true)
	if err != nil {
		return err
	}
	if old != nil && old.File == u.File {
		return nil
	}
	if a.l.shared == nil {
		if a.l.shared, err = a.s.files.OpenShared(datafile.ID(u.File)); err != nil {
			return err
		}
	}
	a.l.busy[n] = true
	a.shared, a.off = a.l.shared, int64(n-1)*a.l.partSize
	return nil
}

// leave releases the place.
func (a *arriving) leave() {
	if a.shared == nil {
		return
	}
	a.l.mu.Lock()
	delete(a.l.busy, a.p.Number)
	a.l.mu.Unlock()
}

func (s *Store) partAt(upload uint64, number int, brief bool) (*record.Part, error) {
	b, err := metadb.Get(s.db, record.PartKey(upload, number))
	if b == nil || err != nil {
		return nil, err
	}
	return record.DecodePart(b, brief)
}

// write receives the body.
func (a *arriving) write(ctx context.Context) (object.Written, error) {
	withMD5 := a.p.Plain == nil && (a.p.MD5 || a.kind == object.ETagMD5)
	var w datafile.Written
	var err error
	switch {
	case a.shared != nil:
		if w, err = a.shared.FillAt(ctx, a.p.Body, a.off, a.p.Size, withMD5); err != nil {
			return object.Written{}, err
		}
		a.part.File, a.part.Off = uint64(a.shared.ID()), a.off
		for _, p := range w.Pieces {
			a.part.Sums = append(a.part.Sums, p.CRC64)
		}
	case a.p.Size == 0:
		c, err := a.s.receive(ctx, a.op, a.p.Key, a.p.Body, 0, withMD5, keeping{inline: a.s.opts.Inline})
		if err != nil {
			return object.Written{}, err
		}
		return c.Written, nil
	default:
		c, err := a.s.receiveFile(ctx, a.p.Body, a.p.Size, withMD5, false)
		if err != nil {
			return object.Written{}, err
		}
		if c.Size == 0 {
			c.abort()
			return c.Written, nil
		}
		a.side, a.part.File, a.part.Sums = c.file, uint64(c.file.ID()), c.sums
		return c.Written, nil
	}
	return object.Written{Size: w.Size, CRC64: w.CRC64, MD5: w.MD5}, nil
}

func (a *arriving) sync(ctx context.Context) error {
	switch {
	case a.side != nil:
		return a.side.Sync(ctx)
	case a.shared != nil:
		return a.shared.Sync(ctx)
	}
	return nil
}

// commit acknowledges the part, and replaces an older one with its number. The ETag is that of shown, which differs
// from w if the part is encrypted.
func (a *arriving) commit(ctx context.Context, w, shown object.Written) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(a.op, a.p.Key, err)
	}
	u, raw, release, err := a.lock()
	if err != nil {
		return err
	}
	defer release()
	old, err := a.s.partAt(a.seq, a.p.Number, true)
	if err != nil {
		return err
	}
	p := &a.part
	p.Size, p.CRC, p.Modified, p.ETag = w.Size, w.CRC64, a.s.now(), object.ETagOf(a.kind, shown)
	if a.kind == object.ETagMD5 {
		p.MD5 = shown.MD5
	}
	t := a.s.change(a.bk)
	t.set(record.PartKey(a.seq, a.p.Number), p.Encode())
	t.delta.Parts += p.Size
	if a.side != nil {
		t.then = a.side.Settle
		t.own(p.File, record.Owner{Bucket: a.bk.id, Key: a.p.Key, Seq: a.seq, Part: a.p.Number})
	}
	if a.shared != nil && u.PartSize == 0 {
		u.PartSize = a.l.partSize
		t.set(record.UploadKey(a.bk.id, a.p.Key, raw), u.Encode())
	}
	if old != nil {
		t.delta.Parts -= old.Size
		if old.File != 0 && old.File != u.File {
			t.dropFile(old.File, a.seq)
		}
	}
	return t.commit(a.op, a.p.Key)
}

// CopyPart implements object.Uploads. CopyPart reads the source into memory, compares it with its checksums, and writes
// it as PutPart does.
func (s *Store) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	const op = "copy part"
	if err := checkNumber(op, c.Key, c.Number); err != nil {
		return object.PartInfo{}, err
	}
	end, err := s.begin(ctx, op, c.Key)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer end()
	bk, err := s.find(op, c.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	if _, _, err := s.upload(op, bk, c.Key, c.Upload); err != nil {
		return object.PartInfo{}, err
	}
	from, err := s.openRef(op, c.From)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer func() { _ = from.Close() }()
	if c.N == -1 {
		c.N = from.Info().Size - c.Off
	}
	body, err := strictly(from, object.Range{Off: c.Off, N: c.N})
	if err != nil {
		return object.PartInfo{}, err
	}
	defer func() { _ = body.Close() }()
	return s.putPart(ctx, op, object.PutPart{
		Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Size: c.N, Body: io.Reader(body), Finish: c.Finish,
	})
}

// ListParts implements object.Uploads.
func (s *Store) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo, bool,
	error) {
	const op = "list parts"
	end, err := s.begin(ctx, op, key)
	if err != nil {
		return nil, false, err
	}
	defer end()
	bk, err := s.find(op, bucket)
	if err != nil {
		return nil, false, err
	}
	_, raw, err := s.upload(op, bk, key, id)
	if err != nil {
		return nil, false, err
	}
	seq := s.uploadSeq(raw)
	limit = limitOf(limit)
	var parts []object.PartInfo
	more := false
	from := record.PartKey(seq, max(0, min(after, object.MaxParts))+1)
	err = metadb.Each(s.db, from, record.Numbered(record.KindPart, seq+1, 0), func(k, b []byte) error {
		if len(parts) == limit {
			more = true
			return metadb.ErrStop
		}
		p, number, err := record.SplitPart(k, b, true)
		if err != nil {
			return err
		}
		parts = append(parts, p.Info(number))
		return ctx.Err()
	})
	if more {
		err = nil
	}
	if err == nil { // if the upload ended meanwhile, some of its parts may already be gone
		_, _, err = s.upload(op, bk, key, id)
	}
	if err != nil {
		return nil, false, err
	}
	return parts, more, nil
}
