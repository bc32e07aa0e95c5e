// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	// batch is the number of due versions at which a pass removes them.
	batch = 500
	// step is the largest number of removals in one durable step.
	step = 1000
	// saveEvery is the number of pages without a removal after which a pass saves how far it has come.
	saveEvery = 16
)

// errStale is the error of the judge for a version that is not the examined one, or not due any more.
var errStale = errors.New("the version has changed since it was examined")

// errLocked is the error of the judge for a version that must not be removed now.
var errLocked = errors.New("a retention or a legal hold protects the version")

// pass is a pass in progress over one bucket.
type pass struct {
	w        *Worker
	ctx      context.Context
	bucket   string
	config   *Config
	report   *Report
	progress func(Report)
	// unversioned means that a removal of a current version frees its bytes.
	unversioned bool

	key   string // key whose versions are examined
	seen  int    // number of its versions that were examined
	first object.Info
	prev  time.Time // time of the version that was examined last
	due   []removal // due versions of the key, newest first

	ready    []removal // due versions of completed keys
	counted  Counts    // examined versions that are not in the report yet
	unsaved  int       // pages since the last save
	complete string    // last key whose due versions are in ready
}

// removal is a version that is due.
type removal struct {
	key, version string
	action       Action
	modified     time.Time
	place        Place
	size         int64 // bytes that the removal frees; the judge of the store sets it again
	order        int   // place among the removals of the same key, oldest first
}

// pass makes or resumes the pass of a report, and returns the report at its end.
func (w *Worker) pass(ctx context.Context, b *object.Bucket, r *Report, doc []byte,
	progress func(Report)) (*Report, error) {
	const op = "apply lifecycle rules"
	config, err := Parse(doc)
	if err != nil {
		return nil, errs.New(errs.Invalid, op, b.Name, err.Error()).WithFix("put the lifecycle configuration again")
	}
	if r.Pass == nil || r.Pass.Ended != nil || r.Config != digest(doc) {
		r.Pass = &Pass{Started: w.Now().UTC()}
	}
	r.Config, r.Rules = digest(doc), len(config.Rules)
	ctx = object.WithRequester(ctx, object.Requester{Principal: object.PrincipalLifecycle})
	p := &pass{w: w, ctx: ctx, bucket: b.Name, config: config, report: r, progress: progress,
		unversioned: b.Versioning == object.VersioningOff}
	began := r.Pass.Removed()
	err = p.run()
	w.Ended(w.Now(), err)
	if err != nil {
		return nil, errs.Wrap(op, b.Name, err)
	}
	if n := r.Pass.Removed() - began; n > 0 && !r.DryRun {
		c := r.Pass.Counts
		w.Log.Info("lifecycle rules were applied", "bucket", b.Name, "expired", c.Expired, "noncurrent", c.Noncurrent,
			"markers", c.Markers, "uploads", c.Uploads, "bytes", c.Bytes, "locked", c.Locked, "failed", c.Failed)
	}
	return p.report, nil
}

func (p *pass) run() error {
	if err := p.versions(); err != nil {
		return err
	}
	if p.config.Aborts() {
		if err := p.uploads(); err != nil {
			return err
		}
	}
	next := p.report.clone()
	now := p.w.Now().UTC()
	next.Pass.Ended, next.Pass.After = &now, nil
	next.Last = next.Pass
	return p.save(next)
}

// versions removes the due versions of all keys behind the place where the pass was interrupted.
func (p *pass) versions() error {
	l := object.List{Bucket: p.bucket, Versions: true, Attributes: p.readsTags(), After: string(p.report.Pass.After)}
	for {
		page, err := p.w.Store.List(p.ctx, l)
		if err != nil {
			return err
		}
		for i := range page.Objects {
			if err := p.see(&page.Objects[i]); err != nil {
				return err
			}
		}
		if !page.Truncated {
			break
		}
		l.After, l.AfterVersion = page.Next, page.NextVersion
		if p.unsaved++; p.unsaved >= saveEvery {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	p.endKey()
	return p.flush()
}

// readsTags reports whether a rule needs the tags of versions, which makes the listing slower.
func (p *pass) readsTags() bool {
	return slices.ContainsFunc(p.config.Rules, func(r Rule) bool { return len(r.selection().tags) > 0 })
}

// see examines the next version of the listing.
func (p *pass) see(info *object.Info) error {
	if p.seen == 0 || info.Key != p.key {
		p.endKey()
		if len(p.ready) >= batch {
			if err := p.flush(); err != nil {
				return err
			}
		}
		p.key = info.Key
	}
	place := Place{Latest: p.seen == 0, Since: p.prev, Newer: p.seen - 1}
	p.seen++
	p.prev = info.Modified
	if place.Latest {
		p.first = *info // judged when all versions of the key are known
		return nil
	}
	p.judge(info, place)
	return nil
}

// judge adds a version to the due ones, if it is due.
func (p *pass) judge(info *object.Info, place Place) {
	v := p.config.Judge(p.w.Calendar, info, place)
	if v.Action == ActionNone || v.At.After(p.w.Now()) {
		return
	}
	r := removal{key: info.Key, version: info.Version, action: v.Action, modified: info.Modified, place: place}
	if v.Action == ActionNoncurrent || p.unversioned {
		r.size = info.Size
	}
	p.due = append(p.due, r)
}

// endKey ends the examination of a key. The due versions of the key are removed from the oldest to the newest: a
// version that became noncurrent long ago stays due, even if the removals are interrupted.
func (p *pass) endKey() {
	if p.seen == 0 {
		return
	}
	older := p.due
	p.due = nil
	p.judge(&p.first, Place{Latest: true, Alone: p.seen == 1})
	p.due = append(p.due, older...)
	slices.Reverse(p.due)
	for i := range p.due {
		p.due[i].order = i
	}
	p.ready = append(p.ready, p.due...)
	p.counted.Examined += int64(p.seen)
	p.complete, p.seen, p.due = p.key, 0, p.due[:0]
}

// flush removes the due versions of all completed keys, and saves how far the pass has come.
func (p *pass) flush() error {
	p.unsaved = 0
	ready := p.ready
	p.ready = nil
	if p.report.DryRun {
		for i := range ready {
			p.counted.Add(ready[i].done())
		}
		ready = nil
	}
	if len(ready) == 0 {
		return p.save(p.advanced())
	}
	slices.SortStableFunc(ready, func(a, b removal) int { return a.order - b.order })
	for len(ready) > 0 {
		n := 1
		for n < len(ready) && n < step && ready[n].order == ready[0].order {
			n++
		}
		some := ready[:n]
		ready = ready[n:]
		if err := p.remove(some, len(ready) == 0); err != nil {
			return err
		}
	}
	return nil
}

// advanced returns the report with everything that was examined up to the last completed key.
func (p *pass) advanced() *Report {
	next := p.report.clone()
	next.add(p.counted)
	if p.complete != "" {
		next.Pass.After = []byte(p.complete)
	}
	return next
}

// save makes next the report of the pass.
func (p *pass) save(next *Report) error {
	if !p.report.DryRun {
		n, err := next.note()
		if err != nil {
			return err
		}
		if err := p.w.Store.PutRecord(p.ctx, n.Kind, n.Name, n.Value); err != nil {
			return err
		}
	}
	p.adopt(next)
	return nil
}

// adopt makes next, which is durable, the report of the pass.
func (p *pass) adopt(next *Report) {
	done := next.Pass.Counts
	for i, f := range p.report.Pass.fields() {
		*done.fields()[i] -= *f
	}
	p.counted = Counts{Examined: p.counted.Examined - done.Examined}
	p.report = next
	if !next.DryRun {
		p.w.Observe(done)
	}
	if p.progress != nil {
		p.progress(*next)
	}
}
