// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// recordKind is the kind of the records that hold reports, by the name of the bucket.
const recordKind = "lifecycle"

// Counts are the numbers of what lifecycle rules have done.
type Counts struct {
	Examined   int64 `json:"examined"`   // versions and delete markers that were compared with the rules
	Expired    int64 `json:"expired"`    // current versions that were removed or covered by a delete marker
	Noncurrent int64 `json:"noncurrent"` // noncurrent versions and delete markers that were removed
	Markers    int64 `json:"markers"`    // delete markers without other versions that were removed
	Uploads    int64 `json:"uploads"`    // multipart uploads that were aborted
	Bytes      int64 `json:"bytes"`      // bytes of content of removed versions
	Locked     int64 `json:"locked"`     // due versions that a retention or a legal hold protected
	Failed     int64 `json:"failed"`     // removals that failed; the next pass tries them again
}

func (c *Counts) fields() [8]*int64 {
	return [8]*int64{&c.Examined, &c.Expired, &c.Noncurrent, &c.Markers, &c.Uploads, &c.Bytes, &c.Locked, &c.Failed}
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	mine, theirs := c.fields(), d.fields()
	for i := range mine {
		*mine[i] += *theirs[i]
	}
}

// Removed returns the number of versions, delete markers and uploads that were removed.
func (c *Counts) Removed() int64 { return c.Expired + c.Noncurrent + c.Markers + c.Uploads }

// Pass is one walk over all versions and uploads of a bucket.
type Pass struct {
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"` // missing while the pass is in progress
	// After is the key up to which the pass has come, in base64. A pass that was interrupted goes on behind it.
	After []byte `json:"after,omitempty"`
	Counts
}

// Report tells what the lifecycle rules of a bucket have done.
type Report struct {
	Bucket  string    `json:"bucket"`
	Created time.Time `json:"bucket_created"`
	Config  string    `json:"configuration"` // SHA-256 of the configuration that the pass applies
	Rules   int       `json:"rules"`
	Pass    *Pass     `json:"pass,omitempty"` // newest pass, which may be in progress
	Last    *Pass     `json:"last,omitempty"` // last complete pass
	Total   Counts    `json:"total"`          // of all passes since the bucket was created
	DryRun  bool      `json:"dry_run,omitempty"`
}

// clone returns a copy of the report that can be changed without changing the report. Complete passes never change.
func (r *Report) clone() *Report {
	c := *r
	if r.Pass != nil {
		pass := *r.Pass
		c.Pass = &pass
	}
	return &c
}

// add counts what was done in the pass and in total.
func (r *Report) add(c Counts) {
	r.Pass.Add(c)
	r.Total.Add(c)
}

// note returns the record of the report.
func (r *Report) note() (object.Note, error) {
	value, err := json.Marshal(r)
	return object.Note{Kind: recordKind, Name: r.Bucket, Value: value}, err
}

// digest names a configuration.
func digest(doc []byte) string {
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:])
}

// reportOf returns the report of a bucket. If there is none, or only one of an older bucket with the same name, the
// report is empty.
func reportOf(ctx context.Context, records object.Records, b *object.Bucket) (*Report, error) {
	empty := &Report{Bucket: b.Name, Created: b.Created}
	value, err := records.Record(ctx, recordKind, b.Name)
	if errors.Is(err, object.ErrNoSuchRecord) {
		return empty, nil
	}
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, errs.New(errs.Corrupt, "read the lifecycle report", b.Name, err.Error())
	}
	if !r.Created.Equal(b.Created) {
		return empty, nil
	}
	return &r, nil
}

// Reports returns the reports of all buckets that have lifecycle rules or had them, in the order of their names.
func Reports(ctx context.Context, s interface {
	object.Buckets
	object.Records
}) ([]Report, error) {
	buckets, err := s.ListBuckets(ctx)
	if err != nil {
		return nil, err
	}
	all := []Report{}
	for i := range buckets {
		r, err := reportOf(ctx, s, &buckets[i])
		if err != nil {
			return nil, err
		}
		doc, has := buckets[i].Settings[Setting]
		if !has && r.Pass == nil {
			continue
		}
		r.Rules = 0
		if c, err := Parse(doc); err == nil {
			r.Rules = len(c.Rules)
		}
		all = append(all, *r)
	}
	return all, nil
}

// forget removes the reports of buckets that do not exist any more.
func forget(ctx context.Context, records object.Records, buckets []object.Bucket) error {
	names, err := records.RecordNames(ctx, recordKind)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for i := range buckets {
		there[buckets[i].Name] = true
	}
	for _, name := range names {
		if there[name] {
			continue
		}
		if err := records.DeleteRecord(ctx, recordKind, name); err != nil && !errors.Is(err, object.ErrNoSuchRecord) {
			return err
		}
	}
	return nil
}
