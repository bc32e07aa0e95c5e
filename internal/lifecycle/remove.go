// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/object"
)

// done counts a removal that was made.
func (r *removal) done() Counts {
	c := Counts{Bytes: r.size}
	switch r.action {
	case ActionExpire:
		c.Expired = 1
	case ActionNoncurrent:
		c.Noncurrent = 1
	case ActionMarker:
		c.Markers = 1
	}
	return c
}

// remove removes versions of different keys in one durable step, together with the report. If last is true, the report
// also says how far the pass has come.
func (p *pass) remove(some []removal, last bool) error {
	ds := make([]object.Deletion, len(some))
	for i := range some {
		ds[i] = p.deletion(&some[i])
	}
	var next *Report
	var early []error // the results of single removals, before the step is durable
	var failed error
	_, fails := p.w.Store.DeleteNoted(p.ctx, p.bucket, ds, func(out []object.Deleted, errs []error) object.Note {
		next = p.report.clone()
		if last {
			next = p.advanced()
		}
		early = append([]error(nil), errs...)
		for i := range some {
			next.add(p.result(&some[i], out[i], errs[i]))
		}
		var n object.Note
		n, failed = next.note()
		return n
	})
	for i, err := range fails {
		if err != nil && (early == nil || early[i] == nil) {
			return err // the step failed as a whole
		}
	}
	if failed != nil {
		return failed
	}
	p.adopt(next)
	return p.w.wait(p.ctx, len(some))
}

// result counts the result of one removal.
func (p *pass) result(r *removal, out object.Deleted, err error) Counts {
	switch {
	case err == nil && out.Existed:
		return r.done()
	case err == nil, errors.Is(err, errStale), errors.Is(err, object.ErrPrecondition), errors.Is(err, object.ErrNoSuchKey):
		return Counts{} // somebody else has changed or removed it meanwhile
	case errors.Is(err, errLocked):
		return Counts{Locked: 1}
	}
	p.w.Log.Warn("a lifecycle rule could not remove a version", "bucket", p.bucket, "key", r.key, "version", r.version,
		"error", err, "fix", "the next pass tries again")
	return Counts{Failed: 1}
}

// deletion returns the request that makes a removal. The store judges again, in the same atomic step as the removal, so
// that a version that was written, tagged or locked meanwhile stays.
func (p *pass) deletion(r *removal) object.Deletion {
	d := object.Deletion{Ref: object.Ref{Bucket: p.bucket, Key: r.key}}
	switch r.action {
	case ActionExpire:
		d.Condition.IfModified = &r.modified
		d.Judge = func(c object.Change) (map[string]string, error) { return nil, p.expires(r, c) }
	case ActionMarker:
		d.Version = r.version
		d.Condition.IfNoneMatch = "*" // no object was written above the marker meanwhile
	default:
		d.Version = r.version
		d.Judge = func(c object.Change) (map[string]string, error) { return nil, p.removes(r, c) }
	}
	return d
}

// expires judges the removal of a current version.
func (p *pass) expires(r *removal, c object.Change) error {
	r.size = 0
	now := p.w.Now()
	if c.Removed != nil {
		if object.Locked(c.Removed.Attributes, now) {
			return errLocked
		}
		r.size = c.Removed.Size
	}
	current := c.Current
	if current == nil {
		current = c.Removed
	}
	if current == nil {
		return errStale
	}
	v := p.config.Judge(p.w.Calendar, current, Place{Latest: true})
	if v.Action != ActionExpire || v.At.After(now) {
		return errStale
	}
	return nil
}

// removes judges the removal of a noncurrent version. A noncurrent delete marker has no content and no lock.
func (p *pass) removes(r *removal, c object.Change) error {
	r.size = 0
	was := c.Removed
	if was == nil {
		return nil
	}
	now := p.w.Now()
	if was.Latest || !was.Modified.Equal(r.modified) {
		return errStale
	}
	if object.Locked(was.Attributes, now) {
		return errLocked
	}
	if v := p.config.Judge(p.w.Calendar, was, r.place); v.Action != ActionNoncurrent || v.At.After(now) {
		return errStale
	}
	r.size = was.Size
	return nil
}

// uploads aborts those multipart uploads of the bucket that are older than the rules allow.
func (p *pass) uploads() error {
	l := object.UploadList{Bucket: p.bucket}
	for {
		page, err := p.w.Store.ListUploads(p.ctx, l)
		if err != nil {
			return err
		}
		for i := range page.Uploads {
			if err := p.abort(&page.Uploads[i]); err != nil {
				return err
			}
		}
		if !page.Truncated {
			return nil
		}
		l.AfterKey, l.AfterID = page.NextKey, page.NextID
	}
}

// abort aborts an upload if it is due.
func (p *pass) abort(u *object.Upload) error {
	v := p.config.JudgeUpload(p.w.Calendar, u)
	if v.Action == ActionNone || v.At.After(p.w.Now()) {
		return p.ctx.Err()
	}
	next := p.report.clone()
	next.add(Counts{Uploads: 1})
	if next.DryRun {
		p.adopt(next)
		return nil
	}
	n, err := next.note()
	if err != nil {
		return err
	}
	err = p.w.Store.AbortNoted(p.ctx, p.bucket, u.Key, u.ID, n)
	if errors.Is(err, object.ErrNoSuchUpload) {
		return nil // it was completed or aborted meanwhile
	}
	if err != nil {
		return err
	}
	p.adopt(next)
	return p.w.wait(p.ctx, 1)
}
