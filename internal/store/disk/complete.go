// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// chosen are the parts that a completion names, in order.
type chosen struct {
	u     *record.Upload
	raw   [16]byte
	parts []*record.Part
	infos []object.PartInfo
	size  int64 // bytes of the parts in their files
	// plain describes the object before encryption. It is set if the parts are encrypted.
	plain *object.Written
}

// CompleteUpload implements object.Uploads. CompleteUpload checks the order of the parts first, then that the parts
// exist, then their sizes, and last the condition.
//
// If the parts lie in the upload's file without gaps, CompleteUpload turns this file into the object's file, and reads
// and writes no content. If the parts do not lie in one file without gaps, CompleteUpload copies them into a new file,
// and compares each part with its checksums.
func (s *Store) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	const op = "complete upload"
	end, err := s.begin(ctx, op, c.Key)
	if err != nil {
		return object.Info{}, err
	}
	defer end()
	bk, err := s.find(op, c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	raw, _ := record.ParseName(c.Upload)
	seq := s.uploadSeq(raw)
	l := s.uploads.acquire(seq)
	defer s.uploads.release(seq, l)

	l.mu.Lock()
	ch, err := s.choose(op, bk, c)
	l.mu.Unlock()
	if err != nil {
		return object.Info{}, err
	}
	attrs, err := object.FinishAttributes(op, c.Key, ch.u.Attrs, c.Finish, object.CloneParts(ch.infos))
	if err != nil {
		return object.Info{}, err
	}
	v, cont, err := s.adopt(ch)
	if err != nil {
		return object.Info{}, err
	}
	for {
		if v == nil {
			if v, cont, err = s.splice(ctx, op, c.Key, ch); err != nil {
				// A part that was replaced, or an upload that ended meanwhile, is the better reason.
				l.mu.Lock()
				e := s.unchanged(op, bk, c, ch)
				l.mu.Unlock()
				if e != nil {
					return object.Info{}, e
				}
				s.partDamage(c, err)
				return object.Info{}, err
			}
		}
		v.Attrs = attrs
		if ch.plain != nil {
			v.Seal(*ch.plain)
		}
		info, err := s.finish(ctx, op, bk, l, c, ch, v, cont)
		if errors.Is(err, errNotOurs) {
			v = nil
			continue
		}
		return info, err
	}
}

// errNotOurs means that the upload's file contains more than the object, so that it cannot become the object's file.
var errNotOurs = errors.New("the file has other parts in it")

// finish creates the object and ends the upload, in one change.
func (s *Store) finish(ctx context.Context, op string, bk *bucket, l *live, c object.Complete, ch *chosen,
	v *record.Version, cont *content) (object.Info, error) {
	release, err := bk.hold(op)
	if err == nil {
		defer release()
		l.mu.Lock()
		defer l.mu.Unlock()
		err = s.unchanged(op, bk, c, ch)
	}
	if err == nil && v.File == ch.u.File {
		err = s.onlyHolds(l, c, v)
	}
	if err != nil {
		cont.abort()
		return object.Info{}, err
	}
	p := publication{op: op, kind: object.ChangeComplete, bk: bk, key: c.Key, cond: c.Condition, c: cont, judge: c.Judge,
		origin: c.Origin}
	p.more = func(t *tx) error { return t.dropUpload(c.Key, ch.raw, ch.u, v.File) }
	return s.publishHeld(ctx, p, v)
}

// onlyHolds checks that the upload's file contains only the object. A part that was cut off, is not wanted, or is
// being written may lie behind it.
func (s *Store) onlyHolds(l *live, c object.Complete, v *record.Version) error {
	length, err := s.files.Length(datafile.ID(v.File))
	if err != nil {
		s.partDamage(c, err)
		return err
	}
	if len(l.busy) > 0 || length != v.Size {
		return errNotOurs
	}
	return nil
}

// choose reads the parts that c names, or returns which of them is missing or wrong.
func (s *Store) choose(op string, bk *bucket, c object.Complete) (*chosen, error) {
	u, raw, err := s.upload(op, bk, c.Key, c.Upload)
	if err != nil {
		return nil, err
	}
	if err := c.CheckOrder(op); err != nil {
		return nil, err
	}
	ch := &chosen{u: u, raw: raw}
	if _, sealed := u.Attrs[object.AttrSealed]; sealed {
		ch.plain = &object.Written{}
	}
	for _, want := range c.Parts {
		var p *record.Part
		if want.Number >= 1 && want.Number <= object.MaxParts {
			if p, err = s.partAt(s.uploadSeq(raw), want.Number, false); err != nil {
				return nil, err
			}
		}
		if p == nil || want.ETag != "" && want.ETag != p.ETag {
			return nil, object.Fail(op, c.Key, object.ErrInvalidPart,
				fmt.Sprintf("part %d with ETag %q", want.Number, want.ETag))
		}
		ch.parts = append(ch.parts, p)
		ch.infos = append(ch.infos, p.Info(want.Number))
		if size, crc, sealed := p.Shown(); ch.plain != nil {
			if !sealed {
				return nil, object.Fail(op, c.Key, object.ErrInvalidPart, fmt.Sprintf("part %d is not encrypted", want.Number))
			}
			ch.plain.CRC64 = s.join.After(ch.plain.CRC64, size) ^ crc
			ch.plain.Size += size
		}
		if ch.size += p.Size; ch.size > datafile.MaxSize {
			return nil, object.Fail(op, c.Key, object.ErrTooLarge,
				fmt.Sprintf("the parts have more than %d bytes", int64(datafile.MaxSize)))
		}
	}
	for i, p := range ch.infos[:len(ch.infos)-1] {
		if p.Size < c.MinPart {
			return nil, object.Fail(op, c.Key, object.ErrPartTooSmall,
				fmt.Sprintf("part %d has %d bytes, expected at least %d", c.Parts[i].Number, p.Size, c.MinPart))
		}
	}
	return ch, nil
}

// unchanged checks that the upload still exists with the chosen parts.
func (s *Store) unchanged(op string, bk *bucket, c object.Complete, ch *chosen) error {
	if _, _, err := s.upload(op, bk, c.Key, c.Upload); err != nil {
		return err
	}
	for i, p := range ch.parts {
		now, err := s.partAt(s.uploadSeq(ch.raw), c.Parts[i].Number, true)
		if err != nil {
			return err
		}
		if now == nil || now.File != p.File || now.Off != p.Off || now.CRC != p.CRC || now.Modified != p.Modified {
			return object.Fail(op, c.Key, object.ErrInvalidPart,
				fmt.Sprintf("part %d was replaced meanwhile", c.Parts[i].Number))
		}
	}
	return nil
}

// etag is made of the parts' MD5s if every part has one.
func (ch *chosen) etag(crc uint64) string {
	var sums []byte
	for _, p := range ch.parts {
		sums = append(sums, p.MD5...)
	}
	if len(sums) == md5.Size*len(ch.parts) {
		return fmt.Sprintf("%x-%d", md5.Sum(sums), len(ch.parts))
	}
	size := ch.size
	if ch.plain != nil {
		crc, size = ch.plain.CRC64, ch.plain.Size
	}
	return object.CRC64ETag(crc, size, len(ch.parts))
}

// adopt makes an object of the upload's file, if the parts lie in it without gaps from its first byte. Otherwise it
// returns nil. finish checks whether anything follows the parts.
func (s *Store) adopt(ch *chosen) (*record.Version, *content, error) {
	var pieces []datafile.Piece
	var end int64
	for _, p := range ch.parts {
		if p.Size == 0 {
			continue
		}
		if p.File != ch.u.File || p.Off != end {
			return nil, nil, nil
		}
		cut, ok := datafile.Cut(p.Off, p.Size, p.Sums)
		if !ok {
			return nil, nil, record.Unreadable("part", p.Encode())
		}
		pieces = append(pieces, cut...)
		end += p.Size
	}
	if end == 0 {
		v := &record.Version{ETag: ch.etag(0)}
		return v, &content{parts: ch.infos}, nil
	}
	sums, whole, size, err := datafile.JoinPieces(pieces)
	if err != nil {
		return nil, nil, err
	}
	v := &record.Version{Size: size, CRC: whole, ETag: ch.etag(whole), File: ch.u.File}
	return v, &content{Written: object.Written{Size: size, CRC64: whole}, sums: sums, parts: ch.infos}, nil
}

// splice copies the parts into a new file.
func (s *Store) splice(ctx context.Context, op, key string, ch *chosen) (*record.Version, *content, error) {
	if err := s.space.check(op, key, ch.size); err != nil {
		return nil, nil, err
	}
	body := &partsReader{s: s, parts: ch.parts}
	c, err := s.receiveFile(ctx, body, ch.size, false, false)
	body.close()
	if err == nil {
		err = c.sync(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	c.parts = ch.infos
	return c.version(ch.etag(c.CRC64), nil), c, nil
}

// partDamage reports damage that was found in parts.
func (s *Store) partDamage(c object.Complete, err error) {
	var d *datafile.Damage
	if errors.As(err, &d) {
		s.damage(object.Damage{Ref: object.Ref{Bucket: c.Bucket, Key: c.Key}, File: d.File, Off: d.Off, N: d.N, What: d.What})
	}
}

// partsReader reads parts in order, each compared with its sums.
type partsReader struct {
	s     *Store
	parts []*record.Part
	now   *datafile.Pieces
}

// Read implements io.Reader.
func (r *partsReader) Read(b []byte) (int, error) {
	for {
		if r.now == nil {
			if len(r.parts) == 0 {
				return 0, io.EOF
			}
			p := r.parts[0]
			r.parts = r.parts[1:]
			if p.Size == 0 {
				continue
			}
			cut, ok := datafile.Cut(p.Off, p.Size, p.Sums)
			if !ok {
				return 0, record.Unreadable("part", p.Encode())
			}
			var err error
			if r.now, err = r.s.files.OpenPieces(datafile.ID(p.File), cut); err != nil {
				return 0, err
			}
		}
		n, err := r.now.Read(b)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		r.close()
	}
}

func (r *partsReader) close() {
	if r.now != nil {
		_ = r.now.Close() // nothing was written through it
		r.now = nil
	}
}

// readPart reads a part to its end; damage is returned as *datafile.Damage.
func (s *Store) readPart(p *record.Part, pace func(int64)) error {
	r := &partsReader{s: s, parts: []*record.Part{p}}
	defer r.close()
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && pace != nil {
			pace(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
