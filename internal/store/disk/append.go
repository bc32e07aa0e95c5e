// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// An append writes its bytes behind the end of the object's file, syncs the file, and then commits a record with the
// new size. Bytes behind the recorded size have no meaning: a crash leaves some, and the next append overwrites them.
// Bytes before the recorded size never change, so content that is open keeps its bytes. The file's sync rewrites the
// disk sector in which the old content ends, with the same old bytes; as with every log, a sector is assumed to be
// written completely or not at all.

var _ object.Directories = (*Store)(nil)

// directories appends to and renames the objects of directory buckets. It is embedded in its Store.
type directories struct{ s *Store }

// appendBuffer is the largest size in bytes of appended content that is kept in memory until it is written. Larger
// content is received in a file of its own first, so that a slow client does not keep others from appending.
const appendBuffer = 64 << 10

// tails are locks of data files. Only the holder of its lock writes behind the end of a file. A file keeps its lock
// when its object is renamed.
type tails struct{ locks [1024]sync.Mutex }

func (t *tails) of(file uint64) *sync.Mutex { return &t.locks[file%uint64(len(t.locks))] }

// errMoved means that a key has another version than the one from which content was made.
var errMoved = errors.New("the object was changed meanwhile")

// seqOf returns the sequence of a version, or 0 for none.
func seqOf(v *record.Version) uint64 {
	if v == nil {
		return 0
	}
	return v.Seq
}

// keeping is how new content is kept.
type keeping struct {
	inline int64 // largest size in bytes that is kept in memory, and then with the metadata
	pages  bool  // whole pages are reserved for a file, so that clients of the door can read it past the page cache
}

// keepingOf returns how content of a bucket is kept.
func keepingOf(s *Store, bk *bucket) keeping {
	if object.IsDirectory(bk.settings.Load().Name) {
		return keeping{inline: min(s.opts.Inline, object.DirectoryInline), pages: true}
	}
	return keeping{inline: s.opts.Inline}
}

// find finds a directory bucket.
func (d directories) find(op, name string) (*bucket, error) {
	bk, err := d.s.find(op, name)
	if err == nil && !object.IsDirectory(name) {
		err = errs.New(errs.Unsupported, op, name, "it is no directory bucket, whose name ends in "+object.DirectorySuffix)
	}
	return bk, err
}

// Append implements object.Directories.
func (d directories) Append(ctx context.Context, a object.Append) (object.Info, error) {
	const op = "append"
	s := d.s
	end, err := s.begin(ctx, op, a.Key)
	if err != nil {
		return object.Info{}, err
	}
	defer end()
	if err := object.CheckKey(op, a.Key); err != nil {
		return object.Info{}, err
	}
	bk, err := d.find(op, a.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	p := &appending{s: s, bk: bk, a: a, op: op}
	// A wrong offset is refused before the body is received.
	if _, err := p.head(nil); err != nil {
		return object.Info{}, err
	}
	if p.c, err = s.receive(ctx, op, a.Key, a.Body, a.Size, false,
		keeping{inline: appendBuffer, pages: true}); err != nil {
		return object.Info{}, err
	}
	defer func() { p.c.abort() }() // does nothing if the file was committed
	if p.c.Size > datafile.MaxSize-a.Offset {
		return object.Info{}, object.Fail(op, a.Key, object.ErrTooLarge, fmt.Sprintf("%d bytes at offset %d", p.c.Size,
			a.Offset))
	}
	if a.Finish != nil {
		if err := a.Finish(p.c.Written); err != nil {
			return object.Info{}, err
		}
	}
	release, err := bk.hold(op)
	if err != nil {
		return object.Info{}, err
	}
	defer release()
	for range mostMoves {
		info, err := p.try(ctx)
		if !errors.Is(err, errMoved) {
			return info, err
		}
	}
	return object.Info{}, object.Fail(op, a.Key, object.ErrBusy, "the object changes all the time")
}

// mostMoves is how often an append begins anew because its object was replaced by another of the same size.
const mostMoves = 8

// appending is an append in progress.
type appending struct {
	s  *Store
	bk *bucket
	a  object.Append
	op string
	c  *content // the appended bytes
}

// head reads the current version and checks the condition and the offset on it. If hold is not nil, the version's file
// is held, and hold gets the function that releases it.
func (p *appending) head(hold *func()) (*record.Version, error) {
	lock := p.s.stripes.of(p.bk.id, p.a.Key)
	lock.RLock()
	defer lock.RUnlock()
	head, err := p.s.current(p.bk, p.a.Key)
	if err != nil {
		return nil, err
	}
	if err := p.fits(head); err != nil {
		return nil, err
	}
	if hold != nil && head != nil && head.File != 0 {
		*hold = p.s.files.Hold(datafile.ID(head.File))
	}
	return head, nil
}

// fits checks the condition and the offset on a version, which is nil if there is none.
func (p *appending) fits(head *record.Version) error {
	if err := holds(p.op, p.a.Key, p.a.Condition, head); err != nil {
		return err
	}
	var size int64
	if head != nil {
		size = head.Size
	}
	if p.a.Offset != size {
		return object.Fail(p.op, p.a.Key, object.ErrWriteOffset, fmt.Sprintf("offset %d, the object has %d bytes", p.a.Offset,
			size))
	}
	return nil
}

// try appends once. It fails with errMoved if the object was replaced meanwhile.
func (p *appending) try(ctx context.Context) (object.Info, error) {
	release := func() {}
	head, err := p.head(&release)
	defer func() { release() }()
	if err != nil {
		return object.Info{}, err
	}
	switch {
	case head != nil && p.c.Size == 0:
		return p.s.fullInfo(p.bk, p.a.Key, head, true)
	case head == nil || head.File == 0:
		return p.rebuild(ctx, head)
	}
	lock := p.s.tails.of(head.File)
	lock.Lock()
	defer lock.Unlock()
	now, err := p.head(nil)
	if err != nil {
		return object.Info{}, err
	}
	if now == nil || now.File != head.File {
		return object.Info{}, errMoved
	}
	return p.grow(ctx, now)
}

// open returns a reader of the appended bytes.
func (p *appending) open() io.Reader {
	if p.c.file != nil {
		return p.c.file.Reader(p.c.Size)
	}
	return bytes.NewReader(p.c.inline)
}

// extended returns the attributes of the longer object.
func (p *appending) extended(head *record.Version) (map[string]string, error) {
	var before *object.Info
	if head != nil {
		info := p.s.info(p.bk, p.a.Key, head, true)
		before = &info
	}
	if p.a.Extend == nil {
		if before == nil {
			return map[string]string{}, nil
		}
		return object.MergeAttributes(before.Attributes, nil), nil
	}
	attrs, err := p.a.Extend(before, p.c.Written)
	if err != nil {
		return nil, err
	}
	return attrs, object.CheckAttributes(p.op, p.a.Key, attrs)
}

// rebuild appends to an object without a file: it makes new content of the old and the appended bytes.
func (p *appending) rebuild(ctx context.Context, head *record.Version) (object.Info, error) {
	attrs, err := p.extended(head)
	if err != nil {
		return object.Info{}, err
	}
	var old []byte
	if head != nil {
		if old, err = p.s.inlineOf(p.op, p.s.info(p.bk, p.a.Key, head, true), head); err != nil {
			return object.Info{}, err
		}
	}
	c := p.c
	total := int64(len(old)) + p.c.Size
	switch {
	case total <= keepingOf(p.s, p.bk).inline:
		c = &content{inline: append(bytes.Clone(old), p.c.inline...), Written: object.Written{Size: total,
			CRC64: p.s.join.After(p.crc(head), p.c.Size) ^ p.c.CRC64}}
	case len(old) > 0 || p.c.file == nil:
		body := io.MultiReader(bytes.NewReader(old), p.open())
		if c, err = p.s.receiveFile(ctx, body, total, false, true); err != nil {
			return object.Info{}, err
		}
	}
	if err := c.sync(ctx); err != nil {
		c.abort()
		return object.Info{}, err
	}
	expect := seqOf(head)
	v := c.version(object.CRC64ETag(c.CRC64, c.Size, 1), attrs)
	info, err := p.s.publishHeld(ctx, publication{op: p.op, kind: object.ChangeAppend, bk: p.bk, key: p.a.Key,
		c: c, expect: &expect}, v)
	if errors.Is(err, errMoved) && c == p.c {
		// The received file is gone, so that the append cannot begin anew.
		if _, err := p.head(nil); err != nil {
			return object.Info{}, err
		}
		return object.Info{}, object.Fail(p.op, p.a.Key, object.ErrBusy, "the object was replaced at the same time")
	}
	return info, err
}

// crc returns the checksum of a version, or 0 for none.
func (p *appending) crc(head *record.Version) uint64 {
	if head == nil {
		return 0
	}
	return head.CRC
}

// grow appends to the file of an object. The caller holds the lock of the file's tail, and the file.
func (p *appending) grow(ctx context.Context, head *record.Version) (object.Info, error) {
	pieces, err := p.write(ctx, datafile.ID(head.File), head.Size)
	if err != nil {
		return object.Info{}, err
	}
	lock := p.s.stripes.of(p.bk.id, p.a.Key)
	lock.Lock()
	defer lock.Unlock()
	now, err := p.s.current(p.bk, p.a.Key)
	if err != nil {
		return object.Info{}, err
	}
	if err := p.fits(now); err != nil {
		return object.Info{}, err
	}
	if now == nil || now.File != head.File {
		return object.Info{}, errMoved
	}
	v := *now
	if v.Attrs, err = p.extended(now); err != nil {
		return object.Info{}, err
	}
	if v.Seq, err = p.s.seqs.take(p.s); err != nil {
		return object.Info{}, err
	}
	v.Nonce, v.Modified = nonce(), max(p.s.now(), now.Modified)
	v.Size += p.c.Size
	v.CRC = p.s.join.After(v.CRC, p.c.Size) ^ p.c.CRC64
	v.ETag = object.CRC64ETag(v.CRC, v.Size, 1)
	v.Flags &^= record.FlagParts
	t := p.s.change(p.bk)
	t.takeCurrent(p.a.Key, now)
	if now.Flags&record.FlagParts != 0 {
		t.del(record.PartsKey(now.Seq))
	}
	if err := t.extendSums(now, &v, pieces); err != nil {
		t.cancel()
		return object.Info{}, err
	}
	t.own(v.File, record.Owner{Bucket: p.bk.id, Key: p.a.Key, Seq: v.Seq, Part: -1})
	t.putCurrent(p.a.Key, &v)
	t.s.journal.add(ctx, t, object.ChangeAppend, p.a.Key, &v)
	// The key is locked, so that nobody opens the file between here and the commit.
	p.s.files.Grown(datafile.ID(v.File))
	if err := t.commit(p.op, p.a.Key); err != nil {
		return object.Info{}, err
	}
	return p.s.info(p.bk, p.a.Key, &v, true), nil
}

// write writes the appended bytes behind the end of a file and makes them durable.
func (p *appending) write(ctx context.Context, id datafile.ID, end int64) ([]datafile.Piece, error) {
	file, err := p.s.files.OpenShared(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // Sync has reported what was not written
	if err := file.ReserveTail(end, p.c.Size); err != nil {
		return nil, err
	}
	w, err := file.FillAt(ctx, p.open(), end, p.c.Size, false)
	if err != nil {
		return nil, err
	}
	if w.CRC64 != p.c.CRC64 {
		return nil, errs.New(errs.Corrupt, p.op, p.a.Key, fmt.Sprintf("the received bytes have the sum %016x, expected %016x",
			w.CRC64, p.c.CRC64)).WithFix("test the memory and the disk of the server")
	}
	return w.Pieces, file.Sync(ctx)
}
