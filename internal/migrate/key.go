// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// plan is what is left to do for one key.
type plan struct {
	add  []versions.Entry // versions that the target lacks, oldest first
	kept int64            // versions that only the target has
	// refused says why nothing can be done.
	refused error
}

// compare plans a key. Versions are only added above the newest one of the target, so that they stay in order. The
// target may have versions that the source has deleted meanwhile; they are left alone.
func compare(bucket string, from, to *versions.Key) plan {
	source, target := canonical(from.Entries), canonical(to.Entries)
	matched, at := 0, 0
	for i := range target {
		if matched < len(source) && versions.Same(&source[matched], &target[i]) {
			matched++
			at = i + 1
		}
	}
	p := plan{kept: int64(len(target) - matched)}
	if matched == len(source) {
		return p
	}
	if at < len(target) {
		newest := &target[len(target)-1]
		if !source[len(source)-1].Modified.After(newest.Modified) {
			p.refused = errs.New(errs.Invalid, "migrate", s3.URL(bucket, from.Name),
				fmt.Sprintf("the target has a version of %s that the source does not have, and that is not older than the "+
					"newest one of the source", newest.Modified.UTC().Format(time.RFC3339))).
				WithFix("delete the key at the target and run again, or leave it out")
			return p
		}
	}
	p.add = missing(from.Entries, source[:matched])
	return p
}

// canonical returns the versions in an order that does not depend on how a server lists versions of the same time.
func canonical(all []versions.Entry) []versions.Entry {
	out := slices.Clone(all)
	for i := 0; i < len(out); {
		j := i + 1
		for j < len(out) && out[j].Modified.UnixMilli() == out[i].Modified.UnixMilli() && !out[j].Latest {
			j++
		}
		slices.SortStableFunc(out[i:j], func(a, b versions.Entry) int {
			switch {
			case a.Marker != b.Marker && a.Marker:
				return 1
			case a.Marker != b.Marker:
				return -1
			}
			return cmp.Compare(a.ETag, b.ETag)
		})
		i = j
	}
	return out
}

// missing returns the versions of all that are not among have, in the order of all.
func missing(all, have []versions.Entry) []versions.Entry {
	left := slices.Clone(have)
	var out []versions.Entry
	for i := range all {
		at := slices.IndexFunc(left, func(e versions.Entry) bool {
			return e.Version == all[i].Version &&
				versions.Same(&e, &all[i])
		})
		if at < 0 {
			out = append(out, all[i])
			continue
		}
		left = slices.Delete(left, at, at+1)
	}
	return out
}

// tries is how often a key is compared anew after a failure without progress.
const tries = 6

// key copies what the target lacks of one key. After a failed request, key asks both servers again: the version may
// have been written although the reply was lost.
func (r *run) key(ctx context.Context, bucket string, from, to versions.Key, notes func(Note)) (Counts, error) {
	c := Counts{Keys: 1}
	for failed := 0; ; {
		p := compare(bucket, &from, &to)
		if failed == 0 {
			c.Present = int64(len(from.Entries) - len(p.add))
		}
		c.Kept = p.kept
		if p.refused != nil || len(p.add) == 0 {
			return c, p.refused
		}
		if r.DryRun {
			for _, e := range p.add {
				c.count(&e)
			}
			return c, nil
		}
		before := c
		err := r.addAll(ctx, bucket, p.add, to.Newest(), &c, notes)
		if err == nil {
			return c, nil
		}
		if c != before {
			failed = 0
		}
		if failed++; ctx.Err() != nil || failed >= tries || !worthRetry(err) {
			return c, err
		}
		if e := pause(ctx, failed); e != nil {
			return c, e
		}
		if from, err = r.From.Of(ctx, bucket, from.Name); err != nil {
			return c, err
		}
		if to, err = r.To.Of(ctx, bucket, from.Name); err != nil {
			return c, err
		}
	}
}

func (c *Counts) count(e *versions.Entry) {
	if e.Marker {
		c.Markers++
		return
	}
	c.Versions++
	c.Bytes += e.Size
}

// worthRetry reports whether a key may succeed at the next try: the connection failed, a server was busy, or one of the
// servers has changed.
func worthRetry(err error) bool {
	var f *s3.Fault
	if !errors.As(err, &f) {
		return errs.KindOf(err) != errs.Corrupt || errors.Is(err, object.ErrChanged)
	}
	switch f.Status {
	case http.StatusPreconditionFailed, http.StatusNotFound, http.StatusConflict, http.StatusRequestTimeout,
		http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusInsufficientStorage:
		return false
	}
	return f.Status >= 500 || f.Code == "IncompleteBody" || f.Code == "RequestTimeTooSkewed"
}

// pause waits before a retry.
func pause(ctx context.Context, failed int) error {
	wait := min(10*time.Second, 100*time.Millisecond<<failed)
	t := time.NewTimer(wait/2 + rand.N(wait/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// addAll adds versions to the target, oldest first. newest is the newest version of the key at the target.
func (r *run) addAll(ctx context.Context, bucket string, add []versions.Entry, newest string, c *Counts,
	notes func(Note)) error {
	for i := range add {
		e := &add[i]
		done, parted, err := r.addOne(ctx, bucket, e, newest, notes)
		if err != nil {
			return err
		}
		if newest = done.Version; newest == "" {
			newest = object.NullVersion
		}
		if done.Again {
			c.Twice++
		}
		if parted {
			c.Parted++
		}
		c.count(e)
	}
	return nil
}

func (r *run) addOne(ctx context.Context, bucket string, e *versions.Entry, newest string,
	notes func(Note)) (done versions.Added, parted bool, err error) {
	more := http.Header(originHeaders(e, newest))
	if e.Marker {
		done, err = r.To.AddMarker(ctx, bucket, e.Key, more)
		return done, false, err
	}
	v, err := r.From.Describe(ctx, bucket, *e, r.Now())
	if err != nil {
		return done, false, err
	}
	var begun *Upload
	note := func(id string) error {
		begun = &Upload{bucket, e.Key, id}
		if r.Journal == nil {
			return nil
		}
		return r.Journal.began(*begun)
	}
	done, err = r.To.Add(ctx, bucket, v, r.From.Content(bucket, *e), more, note)
	if begun != nil && r.Journal != nil {
		err = errors.Join(err, r.Journal.ended(*begun))
	}
	if err != nil {
		return done, false, err
	}
	if done.ETag != "" && done.ETag != e.ETag {
		return done, false, errs.New(errs.Corrupt, "migrate", s3.URL(bucket, e.Key),
			fmt.Sprintf("the copy has the ETag %q, expected %q", done.ETag, e.ETag))
	}
	for _, what := range v.Left {
		notes(Note{e.Key + " (version " + e.Version + ")", what + " was not copied"})
	}
	return done, begun != nil, nil
}
