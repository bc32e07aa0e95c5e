// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// loader opens the database of a cache and reads the index from it.
type loader struct{ s *Store }

// open opens the database and reads the index. A damaged database is replaced by an empty one.
func (l *loader) open() error {
	err := l.try()
	if !errs.Is(err, errs.Corrupt) {
		return err
	}
	l.s.opts.Failed(&errs.Error{Kind: errs.Corrupt, Op: "open cache", Name: l.s.opts.Dir, Err: err,
		Msg: "the database is damaged, so the cache begins anew and its content is fetched again"})
	for _, dir := range []string{l.s.meta.dir(), l.s.files.data} {
		if err := l.s.files.fs.RemoveAll(dir); err != nil {
			return fail("open cache", dir, err)
		}
	}
	l.s.index.reset()
	l.s.known.set(generations{})
	if err := l.s.files.makeDirs(); err != nil {
		return err
	}
	return l.try()
}

// try opens the database and reads the index once.
func (l *loader) try() error {
	s := l.s
	if err := s.meta.open(s.giveWay); err != nil {
		return err
	}
	err := s.files.ids.begin(s.meta.db)
	if err == nil {
		err = l.index()
	}
	if err == nil {
		err = fail("open cache", s.opts.Dir, layout.SyncDir(s.files.fs, s.opts.Dir))
	}
	if err != nil {
		_ = s.meta.fence.CloseDB(s.meta.db, s.opts.Dir) // the error that is returned says what is wrong
		return err
	}
	s.meta.fence.Speak()
	return nil
}

// index reads the records of all entries, the pins and the state of the Guard, but neither sums nor content.
func (l *loader) index() error {
	reads, err := l.reads()
	if err != nil {
		return err
	}
	var all []*version
	err = l.s.meta.each(kindEntry, func(key, value []byte) {
		r, err := decodeEntry(value)
		file, ok := numberOf(key)
		if err != nil || !ok || l.s.index.entries[r.id] != nil {
			l.s.opts.Failed(errs.Wrap("open cache", fmt.Sprintf("record %x", key), errors.Join(err, unreadable("entry", key))))
			l.s.index.doomed = append(l.s.index.doomed, doomed{file, chunkBlocks*chunkBlocks + 1, nil})
			l.s.counts.lost.Add(1)
			return
		}
		v := newVersion(l.s, r.id)
		v.file, v.inline, v.named = file, r.inline, true
		v.superseded, v.foreign, v.proof, v.admitted, v.read = r.superseded, r.foreign, r.proof, r.admitted, r.read
		if m, ok := reads[file]; ok {
			v.read = m
		}
		v.count, v.bytes, v.allocated = r.blocks, r.bytes, r.allocated
		all = append(all, v)
		l.s.index.entries[r.id] = v // so that a second record of it is noticed
	})
	if err != nil {
		return err
	}
	if err := l.policy(); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *version) int { return cmp.Compare(a.read.Bytes, b.read.Bytes) })
	for _, v := range all {
		l.s.index.enter(v) // in front of those that were read before
		l.s.index.byFile[v.file] = v
		l.s.index.used += v.allocated
		l.s.index.clock = max(l.s.index.clock, v.read.Bytes)
		l.s.files.ids.raise(v.file)
	}
	return l.pins()
}

// reads reads when entries were read last.
func (l *loader) reads() (map[uint64]Moment, error) {
	reads := map[uint64]Moment{}
	err := l.s.meta.each(kindRead, func(key, value []byte) {
		if m, ok := decodeRead(value); ok {
			if file, ok := numberOf(key); ok {
				reads[file] = m
			}
		}
	})
	return reads, err
}

// policy reads the access clock and the state of the Guard. What is not readable begins anew.
func (l *loader) policy() error {
	b, err := metadb.Get(l.s.meta.db, metaKey("policy"))
	if err != nil || b == nil {
		return err
	}
	d := codec.Decoder{Rest: b}
	version, clock, usual := d.Byte(), d.Int(), math.Float64frombits(d.Word())
	var g generations
	g.decode(&d)
	if d.Done() && version == recordVersion && clock >= 0 && usual >= 0 && !math.IsInf(usual, 0) {
		l.s.index.clock, l.s.index.guard.Usual = clock, usual
		l.s.known.set(g)
	}
	return nil
}

// pins reads the pins that have not expired.
func (l *loader) pins() error {
	now := l.s.opts.Now()
	return l.s.meta.each(kindPin, func(key, value []byte) {
		p, err := decodePin(value)
		if err != nil {
			l.s.opts.Failed(errs.Wrap("open cache", fmt.Sprintf("pin %x", key), err))
			return
		}
		if p.Expires.IsZero() || now.Before(p.Expires) {
			l.s.index.pins.all[p.name()] = p
		}
	})
}

// numberOf returns the file number in a key that numberKey made.
func numberOf(key []byte) (uint64, bool) {
	if len(key) != 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// raise keeps the number of an existing file from being assigned again, should the mark be too low.
func (n *numbers) raise(file uint64) {
	if file >= n.next && file < math.MaxUint64-2*numberReserve {
		n.next, n.mark, n.first = file+1, file+1, file+1
	}
}
