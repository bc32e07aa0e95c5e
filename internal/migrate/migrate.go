// SPDX-License-Identifier: Apache-2.0

// Package migrate copies the buckets of another S3 server, with all versions of their objects and their settings, to a
// NebulaIO server. The other server is only read, and goes on serving.
package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Options say what is copied, from where and to where.
type Options struct {
	From, To *versions.Server
	// Buckets are the names of the buckets that are copied; empty means all buckets of the source.
	Buckets []string
	Prefix  string // beginning of the keys that are copied; empty means all keys
	Workers int    // number of keys that are copied at the same time; 0 means 8
	// DryRun compares both servers and changes nothing.
	DryRun bool
	// Journal, if not nil, lets a run go on where the last one was killed.
	Journal *Journal
	// Progress, if not nil, is called after each key. Calls do not overlap.
	Progress func(Progress)
	Now      func() time.Time // nil means time.Now
}

// Progress is how far a run has come.
type Progress struct {
	Bucket   string
	Keys     int64 // keys that were compared
	Versions int64 // versions and delete markers that were copied
	Bytes    int64 // bytes of content that were copied
}

// Report is the result of a run.
type Report struct {
	DryRun  bool           `json:"dry_run,omitempty"`
	Source  string         `json:"source"`
	Target  string         `json:"target"`
	Buckets []BucketReport `json:"buckets"`
	Total   Counts         `json:"total"`
}

// Counts count the keys and versions of a run.
type Counts struct {
	Keys     int64 `json:"keys"`     // keys at the source
	Versions int64 `json:"versions"` // versions that were copied; with DryRun, that would be copied
	Markers  int64 `json:"markers"`  // delete markers that were copied, likewise
	Bytes    int64 `json:"bytes"`    // bytes of the copied versions
	Present  int64 `json:"present"`  // versions and delete markers that the target had already
	Twice    int64 `json:"twice"`    // versions that were read twice, because their ETag is no digest of their content
	Parted   int64 `json:"parted"`   // versions that were copied part by part
	Kept     int64 `json:"kept"`     // versions that only the target has; they were left alone
	Resumed  int64 `json:"resumed"`  // buckets in which the run went on where the last one ended
	Failed   int64 `json:"failed"`   // keys that could not be copied as a whole
}

func (c *Counts) add(d Counts) {
	c.Keys += d.Keys
	c.Versions += d.Versions
	c.Markers += d.Markers
	c.Bytes += d.Bytes
	c.Present += d.Present
	c.Twice += d.Twice
	c.Parted += d.Parted
	c.Kept += d.Kept
	c.Resumed += d.Resumed
	c.Failed += d.Failed
}

// BucketReport is the result of one bucket.
type BucketReport struct {
	Name  string `json:"name"`
	Made  bool   `json:"made,omitempty"` // the bucket was made by this run
	After string `json:"after,omitempty"`
	Counts
	Settings []string  `json:"settings"` // settings that were copied, such as "policy"
	Notes    []Note    `json:"notes"`    // what was not copied and why; at most 1000
	Failures []Failure `json:"failures"` // keys that failed and why; at most 1000
}

// Note is something that the target does not have as the source has it.
type Note struct {
	Name string `json:"name"` // setting or key
	Why  string `json:"why"`
}

// Failure is a key that was not copied as a whole.
type Failure struct {
	Key   string `json:"key"`
	Error string `json:"error"`
}

// mostNotes limits the notes and failures of a bucket in the report.
const mostNotes = 1000

// run is one call of Run.
type run struct {
	Options
	mu    sync.Mutex
	total Progress
}

// Run copies the buckets. If some keys could not be copied, Run returns the report and an error. The run can be
// repeated: it compares both servers, and copies what is missing. A version that the target has already is not copied
// again.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &run{Options: o}
	out := Report{DryRun: o.DryRun, Source: o.From.Endpoint(), Target: o.To.Endpoint(), Buckets: []BucketReport{}}
	names, err := r.names(ctx)
	if err != nil {
		return out, err
	}
	if o.Journal != nil && !o.DryRun {
		if err := r.endUploads(ctx); err != nil {
			return out, err
		}
	}
	for _, name := range names {
		b, err := r.bucket(ctx, name)
		out.Buckets = append(out.Buckets, b)
		out.Total.add(b.Counts)
		if err != nil {
			return out, err
		}
	}
	if o.Journal != nil && !o.DryRun {
		if err := o.Journal.finish(); err != nil {
			return out, err
		}
	}
	for i := range out.Buckets {
		if b := &out.Buckets[i]; len(b.Failures) > 0 {
			return out, errs.New(errs.IO, "migrate", out.Source,
				fmt.Sprintf("%d keys were not copied as a whole; the first is %s: %s",
					out.Total.Failed, s3.URL(b.Name, b.Failures[0].Key), b.Failures[0].Error)).
				WithFix("remove the cause, and run the same command again: it copies what is missing")
		}
	}
	return out, nil
}

// names returns the buckets that are copied.
func (r *run) names(ctx context.Context) ([]string, error) {
	all, err := r.From.Admin().ListBuckets(ctx)
	if err != nil && len(r.Buckets) > 0 && errs.KindOf(err) == errs.Permission {
		return r.Buckets, nil // an account may be allowed to read a bucket and not to list buckets
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	for _, want := range r.Buckets {
		if !slices.Contains(names, want) {
			return nil, errs.New(errs.NotFound, "migrate", s3.URL(want, ""), "no such bucket at "+r.From.Endpoint()).
				WithFix("its buckets are: " + strings.Join(names[:min(len(names), 20)], ", "))
		}
	}
	if len(r.Buckets) > 0 {
		return r.Buckets, nil
	}
	return names, nil
}

// endUploads ends the multipart uploads that a killed run has left at the target.
func (r *run) endUploads(ctx context.Context) error {
	for _, u := range r.Journal.uploads() {
		if err := r.To.Abort(ctx, u.Bucket, u.Key, u.ID); err != nil && errs.KindOf(err) != errs.NotFound {
			return err
		}
		if err := r.Journal.ended(u); err != nil {
			return err
		}
	}
	return nil
}

// told adds to the progress.
func (r *run) told(bucket string, c Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Bucket = bucket
	r.total.Keys += c.Keys
	r.total.Versions += c.Versions + c.Markers
	r.total.Bytes += c.Bytes
	if r.Progress != nil {
		r.Progress(r.total)
	}
}

// originHeaders are the headers that make a write at the target a copy of a version.
func originHeaders(e *versions.Entry, newest string) map[string][]string {
	h := map[string][]string{
		object.HeaderOriginModified: {e.Modified.UTC().Format("2006-01-02T15:04:05.000Z07:00")},
		object.HeaderOriginVersion:  {e.Version},
		object.HeaderOriginNewest:   {newest},
	}
	if versions.IsNull(e) {
		h[object.HeaderOriginVersion] = []string{"null"}
	}
	if !e.Marker {
		h[object.HeaderOriginETag] = []string{e.ETag}
	}
	return h
}
