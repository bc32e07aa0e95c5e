// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// ScrubOptions says how content is read.
type ScrubOptions struct {
	// Rate bounds the bytes read in a second; 0 means as fast as it goes.
	Rate int64
	// Progress hears from time to time how far it is, and of each damage at once; nil is allowed.
	Progress func(ScrubReport, *object.Damage)
}

// ScrubReport is what was read and found.
type ScrubReport struct {
	Objects int64 // versions with content, of which Files in files
	Files   int64
	Bytes   int64
	Damage  []object.Damage // at most MaxScrubDamage; Damaged counts all
	Damaged int64
}

// MaxScrubDamage bounds the damage that a report names.
const MaxScrubDamage = 10000

// Scrub reads the content of every version and of every part, and compares it
// with its checksums. Objects that are replaced or deleted meanwhile are left
// out. It returns an error when it could not go on; damage is no error.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) (ScrubReport, error) {
	const op = "scrub"
	end, err := s.begin(ctx, op, s.opts.Dir)
	if err != nil {
		return ScrubReport{}, err
	}
	defer end()
	sc := &scrubber{s: s, ctx: ctx, o: o, began: time.Now()}
	for _, kind := range []byte{kindObject, kindVersion} {
		if err := sc.versions(kind); err != nil {
			return sc.report, err
		}
	}
	err = sc.parts()
	sc.tell(nil)
	return sc.report, err
}

type scrubber struct {
	s      *Store
	ctx    context.Context
	o      ScrubOptions
	report ScrubReport
	began  time.Time
	told   int64
}

// scrubStep is how many versions are looked at under one iterator: one that is
// open for hours would keep Pebble from giving back what was deleted meanwhile.
const scrubStep = 256

// versions reads all versions of one space, a few at a time.
func (sc *scrubber) versions(kind byte) error {
	type item struct {
		bucket uint64
		key    string
		v      *version
	}
	from, to := []byte{kind}, []byte{kind + 1}
	for from != nil {
		var items []item
		var next []byte
		err := eachIn(sc.s.db, from, to, func(k, b []byte) error {
			if len(items) == scrubStep {
				next = bytes.Clone(k)
				return errFound
			}
			v, err := decodeVersion(b, false)
			if err != nil {
				return err
			}
			bucket, _ := numberOf(k)
			key := string(k[min(9, len(k)):])
			if kind == kindVersion {
				key, _, _ = splitVersionKey(k)
			}
			items = append(items, item{bucket, key, v})
			return nil
		})
		if err != nil && next == nil {
			return err
		}
		for _, it := range items {
			if err := sc.version(it.bucket, it.key, it.v); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// version reads one version.
func (sc *scrubber) version(bucket uint64, key string, v *version) error {
	if err := sc.ctx.Err(); err != nil {
		return errs.Wrap("scrub", key, err)
	}
	if sc.s.yield.Load() {
		return errs.New(errs.Other, "scrub", sc.s.opts.Dir, "ended because the store becomes writable").WithFix("scrub again")
	}
	if v.marker() {
		return nil
	}
	ref := object.Ref{Bucket: sc.s.bucketName(bucket), Key: key, Version: sc.s.names.version(v)}
	sc.report.Objects++
	if v.file == 0 {
		return sc.inline(ref, v)
	}
	sc.report.Files++
	sums, err := loadSums(sc.s.db, v)
	if err != nil {
		if gone, _ := sc.gone(v); gone {
			return nil
		}
		if errs.KindOf(err) != errs.Corrupt {
			return err
		}
		sc.found(object.Damage{Ref: ref, File: sc.s.files.Path(datafile.ID(v.file)), N: v.size, What: "checksum"})
		return nil
	}
	return sc.file(ref, v.file, v.size, sums, func() (bool, error) { return sc.gone(v) })
}

// gone says whether a version was deleted or replaced meanwhile.
func (sc *scrubber) gone(v *version) (bool, error) {
	b, err := get(sc.s.db, fileKey(v.file))
	if err != nil || b == nil {
		return b == nil, err
	}
	o, err := decodeOwner(b)
	return err == nil && o.seq != v.seq, err
}

func (sc *scrubber) file(ref object.Ref, file uint64, size int64, sums []uint64, gone func() (bool, error)) error {
	found, err := sc.s.files.Scrub(sc.ctx, datafile.ID(file), size, sums, sc.pace)
	if len(found) > 0 || err != nil {
		if out, e := gone(); e != nil || out {
			return e
		}
	}
	for _, d := range found {
		sc.found(object.Damage{Ref: ref, File: d.File, Off: d.Off, N: d.N, What: d.What})
	}
	return err
}

func (sc *scrubber) inline(ref object.Ref, v *version) error {
	_, what, err := readInline(sc.s.db, v)
	if err != nil || what == "" {
		sc.pace(v.size)
		return err
	}
	// A version that went meanwhile takes its bytes with it.
	bk := sc.s.bucketID(ref.Bucket)
	now, err := get(sc.s.db, objectKey(bk, ref.Key))
	if err != nil {
		return err
	}
	old, err := get(sc.s.db, versionKey(bk, ref.Key, v.seq))
	if err != nil {
		return err
	}
	if cur, e := decodeVersion(now, true); old == nil && (e != nil || cur.seq != v.seq) {
		return nil
	}
	sc.found(object.Damage{Ref: ref, N: v.size, What: what})
	return nil
}

// parts reads the parts of uploads in progress.
func (sc *scrubber) parts() error {
	return sc.s.each(kindFile, func(k, b []byte) error {
		o, err := decodeOwner(b)
		if err != nil || o.part < 0 {
			return err
		}
		id, _ := numberOf(k)
		from := partKey(o.seq, o.part)
		if o.part == 0 {
			from = partKey(o.seq, 1)
		}
		return eachIn(sc.s.db, from, numbered(kindPart, o.seq+1, 0), func(k, b []byte) error {
			p, number, err := splitPart(k, b, false)
			if err != nil {
				return err
			}
			if p.file != id {
				return nil
			}
			return sc.part(o, id, number, p)
		})
	})
}

func (sc *scrubber) part(o *owner, id uint64, number int, p *part) error {
	if err := sc.ctx.Err(); err != nil {
		return errs.Wrap("scrub", o.key, err)
	}
	ref := object.Ref{Bucket: sc.s.bucketName(o.bucket), Key: o.key}
	err := sc.s.readPart(p, sc.pace)
	var d *datafile.Damage
	if !errors.As(err, &d) {
		return err
	}
	now, err := sc.s.partAt(o.seq, number, true)
	if err != nil || now == nil || now.file != id || now.modified != p.modified {
		return err
	}
	sc.found(object.Damage{Ref: ref, File: d.File, Off: d.Off, N: d.N, What: d.What})
	return nil
}

// pace counts bytes, and waits where they came too fast.
func (sc *scrubber) pace(n int64) {
	sc.report.Bytes += n
	if sc.report.Bytes-sc.told > 64<<20 {
		sc.told = sc.report.Bytes
		sc.tell(nil)
	}
	if sc.o.Rate <= 0 {
		return
	}
	due := time.Duration(float64(sc.report.Bytes) / float64(sc.o.Rate) * float64(time.Second))
	if wait := due - time.Since(sc.began); wait > 0 {
		select {
		case <-time.After(wait):
		case <-sc.ctx.Done():
		}
	}
}

func (sc *scrubber) found(d object.Damage) {
	d.Time = sc.s.opts.Now()
	sc.s.damage(d)
	sc.report.Damaged++
	if len(sc.report.Damage) < MaxScrubDamage {
		sc.report.Damage = append(sc.report.Damage, d)
	}
	sc.tell(&d)
}

func (sc *scrubber) tell(d *object.Damage) {
	if sc.o.Progress != nil {
		sc.o.Progress(sc.report, d)
	}
}

// bucketName is the name of a bucket that has a number, or its number where it is gone.
func (s *Store) bucketName(id uint64) string {
	s.bucketMu.RLock()
	defer s.bucketMu.RUnlock()
	for name, b := range s.buckets {
		if b.id == id {
			return name
		}
	}
	return "#" + datafile.ID(id).String()
}

func (s *Store) bucketID(name string) uint64 {
	s.bucketMu.RLock()
	defer s.bucketMu.RUnlock()
	if b := s.buckets[name]; b != nil {
		return b.id
	}
	return 0
}
