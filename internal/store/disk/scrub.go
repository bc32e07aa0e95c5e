// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// ScrubOptions are the settings of a scrub.
type ScrubOptions struct {
	// Rate limits the bytes read per second; 0 means no limit.
	Rate int64
	// Progress is called from time to time with the report so far, and at once with each damage found; nil means no
	// calls. The second argument of Progress is the damage found, or nil if the call reports no damage.
	Progress func(ScrubReport, *object.Damage)
}

// ScrubReport is the result of a scrub.
type ScrubReport struct {
	Objects int64           // number of object versions whose content the scrub has read
	Files   int64           // number of these versions that have a data file of their own
	Bytes   int64           // bytes of content that the scrub has read
	Damage  []object.Damage // the first damages found, at most MaxScrubDamage; Damaged counts all damages
	Damaged int64
}

// MaxScrubDamage is the largest number of damages that a ScrubReport lists.
const MaxScrubDamage = 10000

// Scrub reads the content of every version and every part, and compares it with its checksums. Objects that are
// replaced or deleted during the scrub are skipped. Scrub returns an error only if it cannot continue; damage is no
// error.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) (ScrubReport, error) {
	const op = "scrub"
	end, err := s.begin(ctx, op, s.opts.Dir)
	if err != nil {
		return ScrubReport{}, err
	}
	defer end()
	sc := &scrubber{s: s, ctx: ctx, o: o, began: time.Now(), bucketName: s.bucketName}
	err = sc.run()
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
	still  bool // the store does not change during the scrub

	bucketName func(id uint64) string
}

func (sc *scrubber) run() error {
	for _, kind := range []byte{record.KindObject, record.KindVersion} {
		if err := sc.versions(kind); err != nil {
			return err
		}
	}
	return sc.parts()
}

// scrubStep is the number of versions that are read under one iterator. An iterator that is open for hours would keep
// Pebble from freeing the space of deleted records.
const scrubStep = 256

// versions reads all versions of one kind, a few at a time.
func (sc *scrubber) versions(kind byte) error {
	type item struct {
		bucket uint64
		key    string
		v      *record.Version
	}
	from, to := []byte{kind}, []byte{kind + 1}
	for from != nil {
		var items []item
		var next []byte
		err := metadb.Each(sc.s.db, from, to, func(k, b []byte) error {
			if len(items) == scrubStep {
				next = bytes.Clone(k)
				return metadb.ErrStop
			}
			bucket, _ := record.NumberOf(k)
			key := string(k[min(9, len(k)):])
			if kind == record.KindVersion {
				key, _, _ = record.SplitVersionKey(k)
			}
			v, err := record.DecodeVersion(b, false)
			if err != nil {
				sc.unread(bucket, key, err)
				return nil
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

// unread reports a record that cannot be read, so that its content cannot be found.
func (sc *scrubber) unread(bucket uint64, key string, err error) {
	sc.s.background(&errs.Error{Op: "scrub", Name: key, Err: err})
	sc.found(object.Damage{Ref: object.Ref{Bucket: sc.bucketName(bucket), Key: key}, What: object.DamageRecord})
}

// version reads one version.
func (sc *scrubber) version(bucket uint64, key string, v *record.Version) error {
	if err := sc.ctx.Err(); err != nil {
		return errs.Wrap("scrub", key, err)
	}
	if sc.s.yield.Load() {
		return errs.New(errs.Other, "scrub", sc.s.opts.Dir, "ended because the store becomes writable").WithFix("scrub again")
	}
	if v.Marker() {
		return nil
	}
	ref := object.Ref{Bucket: sc.bucketName(bucket), Key: key, Version: sc.s.names.Version(v)}
	sc.report.Objects++
	gone := func() (bool, error) { return sc.gone(bucket, key, v) }
	if v.File == 0 {
		return sc.inline(ref, v, gone)
	}
	sc.report.Files++
	sums, err := metadb.LoadSums(sc.s.db, v)
	if err == nil && (v.Size > datafile.MaxSize || int64(len(sums)) != record.BlocksOf(v.Size)) {
		err = record.Unreadable("version", v.Encode())
	}
	if err != nil {
		if out, _ := gone(); out {
			return nil
		}
		if errs.KindOf(err) != errs.Corrupt {
			return err
		}
		sc.found(object.Damage{Ref: ref, File: sc.s.files.Path(datafile.ID(v.File)), N: v.Size, What: "checksum"})
		return nil
	}
	return sc.file(ref, v, sums, gone)
}

// gone reports whether a version was deleted or replaced meanwhile, so that its content is removed too.
func (sc *scrubber) gone(bucket uint64, key string, v *record.Version) (bool, error) {
	if sc.still {
		return false, nil
	}
	now, err := metadb.Get(sc.s.db, record.ObjectKey(bucket, key))
	if err != nil {
		return false, err
	}
	old, err := metadb.Get(sc.s.db, record.VersionKey(bucket, key, v.Seq))
	if err != nil || old != nil {
		return false, err
	}
	cur, err := record.DecodeVersion(now, true)
	return err != nil || cur.Seq != v.Seq, nil
}

func (sc *scrubber) file(ref object.Ref, v *record.Version, sums []uint64, gone func() (bool, error)) error {
	found, err := sc.s.files.Scrub(sc.ctx, datafile.ID(v.File), v.Size, sums, sc.pace)
	if len(found) > 0 || err != nil {
		if out, e := gone(); e != nil || out {
			return e
		}
	}
	for _, d := range found {
		sc.found(object.Damage{Ref: ref, File: d.File, Off: d.Off, N: d.N, What: v.Wrong(d.What)})
	}
	return err
}

func (sc *scrubber) inline(ref object.Ref, v *record.Version, gone func() (bool, error)) error {
	_, what, err := metadb.LoadInline(sc.s.db, v)
	if err != nil || what == "" {
		sc.pace(v.Size)
		return err
	}
	if out, err := gone(); out || err != nil {
		return err
	}
	sc.found(object.Damage{Ref: ref, N: v.Size, What: what})
	return nil
}

// parts reads the parts of uploads in progress.
func (sc *scrubber) parts() error {
	return sc.s.each(record.KindPart, func(k, b []byte) error {
		upload, _ := record.NumberOf(k)
		p, number, err := record.SplitPart(k, b, false)
		if err != nil {
			sc.unread(0, fmt.Sprintf("part of upload %d", upload), err)
			return nil
		}
		if p.File == 0 {
			return nil
		}
		o := &record.Owner{Seq: upload, Key: fmt.Sprintf("part %d of upload %d", number, upload)}
		f, err := metadb.Get(sc.s.db, record.FileKey(p.File))
		if err != nil {
			return err
		}
		if known, err := record.DecodeOwner(f); err == nil {
			o = known
		}
		return sc.part(o, upload, number, p)
	})
}

func (sc *scrubber) part(o *record.Owner, upload uint64, number int, p *record.Part) error {
	if err := sc.ctx.Err(); err != nil {
		return errs.Wrap("scrub", o.Key, err)
	}
	ref := object.Ref{Bucket: sc.bucketName(o.Bucket), Key: o.Key}
	err := sc.s.readPart(p, sc.pace)
	var d *datafile.Damage
	if !errors.As(err, &d) {
		if errs.KindOf(err) != errs.Corrupt {
			return err
		}
		sc.unread(o.Bucket, o.Key, err)
		return nil
	}
	now, err := sc.s.partAt(upload, number, true)
	if err != nil || now == nil || now.File != p.File || now.Modified != p.Modified {
		return err
	}
	sc.found(object.Damage{Ref: ref, File: d.File, Off: d.Off, N: d.N, What: d.What})
	return nil
}

// pace counts bytes, and waits if the scrub is faster than its rate.
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

// bucketName returns the name of the bucket with this number, or the number if the bucket does not exist.
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
