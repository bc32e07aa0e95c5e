// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/object"
)

func (w *walk) createUpload() error {
	b, k, as := w.bucketName(), w.key(), w.attributesOf()
	w.note("create upload %q %q", b, k)
	im, em := w.m.CreateUpload(w.ctx, b, k, as)
	is, es := w.s.CreateUpload(w.ctx, b, k, as)
	if em == nil && es == nil {
		w.uploads[im] = is
	}
	return differ(em, es, "", "")
}

// pick picks an upload in progress, or one that never was.
func (w *walk) pick() (u object.Upload, store string) {
	var all []object.Upload
	for _, b := range slices.Compact(slices.Clone(w.buckets)) {
		if us, err := allUploads(w.ctx, w.m, object.UploadList{Bucket: b}); err == nil {
			all = append(all, us...)
		}
	}
	if len(all) == 0 || w.r.IntN(30) == 0 {
		return object.Upload{Bucket: w.bucketName(), Key: w.key(), ID: "none"}, "none"
	}
	// Few at a time, so that they get many parts.
	u = all[w.r.IntN(min(3, len(all)))]
	return u, w.uploads[u.ID]
}

// partData makes a part: mostly of one size, as clients do.
func (w *walk) partData() []byte {
	if w.most > 0 {
		return Bytes(w.r.Uint64(), oneOf(w, w.most, w.most, w.most, w.most/2+1, 0))
	}
	switch w.r.IntN(10) {
	case 0:
		return Bytes(w.r.Uint64(), w.r.IntN(1000))
	case 1:
		return Bytes(w.r.Uint64(), 350_001)
	case 2:
		return nil
	}
	return Bytes(w.r.Uint64(), 30_001)
}

func (w *walk) putPart() error {
	u, id := w.pick()
	data := w.partData()
	size, body, finish := w.body(data)
	p := object.PutPart{Bucket: u.Bucket, Key: u.Key, Upload: u.ID, Number: 1 + w.r.IntN(5), Size: size,
		MD5: w.r.IntN(2) == 0}
	p.Finish = func(wr object.Written) (map[string]string, error) {
		return map[string]string{"crc": fmt.Sprint(wr.CRC64)}, finish()
	}
	w.note("part %d of %q %q %s, %d bytes announced as %d", p.Number, u.Bucket, u.Key, u.ID, len(data), size)
	p.Body = body()
	pm, em := w.m.PutPart(w.ctx, p)
	p.Body, p.Upload = body(), id
	ps, es := w.s.PutPart(w.ctx, p)
	return differ(em, es, showPart(pm, false), showPart(ps, false))
}

func (w *walk) copyPart() error {
	u, id := w.pick()
	c := object.CopyPart{From: object.Ref{Bucket: w.bucketName(), Key: w.key()}, Bucket: u.Bucket, Key: u.Key,
		Upload: u.ID, Number: 1 + w.r.IntN(5), N: -1}
	vm, vs := w.version(c.From.Bucket, c.From.Key)
	c.From.Version = vm
	if i, err := w.m.Stat(w.ctx, c.From); err == nil && w.r.IntN(3) > 0 {
		c.Off = w.r.Int64N(i.Size + 2)
		c.N = w.r.Int64N(max(i.Size-c.Off, 0) + 2)
		if c.Off >= i.Size {
			c.N++ // an empty range at the end may or may not lie within the object
		}
	}
	if w.r.IntN(3) == 0 {
		c.Finish = func(wr object.Written) (map[string]string, error) {
			return map[string]string{"size": fmt.Sprint(wr.Size)}, nil
		}
	}
	w.note("part %d of %s is %+v, %d from %d", c.Number, u.ID, c.From, c.N, c.Off)
	pm, em := w.m.CopyPart(w.ctx, c)
	c.From.Version, c.Upload = vs, id
	ps, es := w.s.CopyPart(w.ctx, c)
	return differ(em, es, showPart(pm, false), showPart(ps, false))
}

func (w *walk) listParts() error {
	u, id := w.pick()
	after, limit := w.r.IntN(5), w.r.IntN(4)
	w.note("list parts of %s after %d, at most %d", u.ID, after, limit)
	pm, mm, em := w.m.ListParts(w.ctx, u.Bucket, u.Key, u.ID, after, limit)
	ps, ms, es := w.s.ListParts(w.ctx, u.Bucket, u.Key, id, after, limit)
	var a, b string
	for _, p := range pm {
		a += showPart(p, false)
	}
	for _, p := range ps {
		b += showPart(p, false)
	}
	return differ(em, es, fmt.Sprint(a, mm), fmt.Sprint(b, ms))
}

func (w *walk) complete() error {
	u, id := w.pick()
	c := object.Complete{Bucket: u.Bucket, Key: u.Key, Upload: u.ID, Condition: w.condition(u.Bucket, u.Key),
		MinPart: oneOf[int64](w, 0, 0, 0, 100)}
	ps, _, _ := w.m.ListParts(w.ctx, u.Bucket, u.Key, u.ID, 0, 0)
	for _, p := range ps {
		if w.r.IntN(8) > 0 {
			c.Parts = append(c.Parts, object.CompletedPart{Number: p.Number, ETag: oneOf(w, p.ETag, p.ETag, "")})
		}
	}
	switch w.r.IntN(12) {
	case 0:
		slices.Reverse(c.Parts)
	case 1:
		c.Parts = append(c.Parts, object.CompletedPart{Number: 9})
	case 2:
		if len(c.Parts) > 0 {
			c.Parts[0].ETag = "0123"
		}
	case 3:
		c.Finish = func([]object.PartInfo) (map[string]string, error) { return nil, errMine }
	case 4, 5:
		c.Finish = func(ps []object.PartInfo) (map[string]string, error) {
			return map[string]string{"parts": fmt.Sprint(len(ps))}, nil
		}
	}
	if len(c.Parts) == 0 {
		return nil // which sentinel that is the contract leaves open
	}
	w.note("complete %+v", c)
	im, em := w.m.CompleteUpload(w.ctx, c)
	c.Upload = id
	is, es := w.s.CompleteUpload(w.ctx, c)
	return w.made(im, is, em, es)
}

func (w *walk) abort() error {
	u, id := w.pick()
	w.note("abort %s", u.ID)
	return differ(w.m.AbortUpload(w.ctx, u.Bucket, u.Key, u.ID), w.s.AbortUpload(w.ctx, u.Bucket, u.Key, id), "", "")
}

func (w *walk) settings() error {
	b := w.bucketName()
	v := oneOf(w, object.VersioningEnabled, object.VersioningEnabled, object.VersioningSuspended)
	doc := fmt.Sprint(w.step)
	w.note("versioning of %q becomes %q", b, v)
	change := func(b *object.Bucket) error {
		b.Versioning = v
		b.Settings = map[string][]byte{"doc": []byte(doc)}
		return nil
	}
	return differ(w.m.UpdateBucket(w.ctx, b, change), w.s.UpdateBucket(w.ctx, b, change), "", "")
}

func (w *walk) makeBucket() error {
	b := object.Bucket{Name: w.bucketName(), Owner: "me", ETag: object.ETagMD5}
	if b.Name == "c" || object.IsDirectory(b.Name) {
		b.ETag = object.ETagCRC64
	}
	w.note("create bucket %q", b.Name)
	return differ(w.m.CreateBucket(w.ctx, b), w.s.CreateBucket(w.ctx, b), "", "")
}

// dropBucket deletes a bucket, half of the time after it was emptied.
func (w *walk) dropBucket() error {
	b := w.bucketName()
	w.note("delete bucket %q", b)
	if w.r.IntN(2) == 0 {
		all, _ := AllVersions(w.ctx, w.m, b)
		for _, i := range all {
			dm, em := w.m.Delete(w.ctx, object.Deletion{Ref: object.Ref{Bucket: b, Key: i.Key, Version: i.Version}})
			ds, es := w.s.Delete(w.ctx, object.Deletion{Ref: object.Ref{Bucket: b, Key: i.Key,
				Version: w.storeVersion(i.Version)}})
			if err := w.deleted(dm, ds, em, es); err != nil {
				return fmt.Errorf("emptying the bucket: %q %q: %w", i.Key, i.Version, err)
			}
		}
	}
	return differ(w.m.DeleteBucket(w.ctx, b), w.s.DeleteBucket(w.ctx, b), "", "")
}

func (w *walk) record() error {
	kind, name := oneOf(w, recordKinds...), oneOf(w, "n", "m", "\x00", "\xff")
	w.note("record %q %q", kind, name)
	if w.r.IntN(3) == 0 {
		return differ(w.m.DeleteRecord(w.ctx, kind, name), w.s.DeleteRecord(w.ctx, kind, name), "", "")
	}
	value := w.data()
	return differ(w.m.PutRecord(w.ctx, kind, name, value), w.s.PutRecord(w.ctx, kind, name, value), "", "")
}

// compare compares everything that is visible.
func (w *walk) compare() error {
	w.note("compare")
	m, err := Dump(w.ctx, w.m, false)
	if err != nil {
		return fmt.Errorf("dump of the model: %w", err)
	}
	s, err := Dump(w.ctx, w.s, false)
	if err != nil {
		return fmt.Errorf("dump of the store: %w", err)
	}
	if d := Diff(m, s); d != "" {
		return fmt.Errorf("(- model, + store):\n%s", d)
	}
	return nil
}

func (w *walk) reopen() error {
	if w.target.Reopen == nil {
		return nil
	}
	w.note("reopen")
	w.s = w.target.Reopen(w.T, w.s)
	return w.compare()
}
