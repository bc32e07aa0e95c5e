// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	// tick is the time between two looks at the configurations of all buckets.
	tick = time.Minute
	// recordKind is the kind of the records that hold reports, by bucket and ID.
	recordKind = "inventory"
	// fileRows is the number of rows of one CSV file.
	fileRows = 500_000
)

// Store is what a Worker needs of a store.
type Store interface {
	object.Buckets
	object.Objects
	object.Lister
	object.Records
}

// Report tells about the last inventory of a configuration.
type Report struct {
	Bucket   string    `json:"bucket"`
	ID       string    `json:"id"`
	Created  time.Time `json:"bucket_created"`
	Schedule string    `json:"schedule"`
	Enabled  bool      `json:"enabled"`
	// Started, Ended, Objects, Manifest and Target describe the last complete inventory.
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Objects  int64      `json:"objects"` // rows of the inventory
	Target   string     `json:"destination"`
	Manifest string     `json:"manifest,omitempty"` // key of manifest.json in the destination
	Error    string     `json:"error,omitempty"`    // why the last try failed; empty after a success
	// Pending are the keys of an inventory that is being written. After a crash they are removed.
	Pending []string `json:"pending,omitempty"`
}

// Worker writes the inventories of all buckets. At most one inventory of a Worker is written at a time.
type Worker struct {
	store Store
	now   func() time.Time
	log   *slog.Logger
	rows  int
	one   chan struct{} // holds a value while an inventory is written
}

// New returns a Worker with the clock now.
func New(s Store, now func() time.Time, log *slog.Logger) *Worker {
	return &Worker{store: s, now: now, log: log, rows: fileRows, one: make(chan struct{}, 1)}
}

// Run writes the inventories that are due, until ctx ends. A daily inventory is due after each midnight UTC, and a
// weekly one after each midnight UTC before Sunday. A new configuration is due at once.
func (w *Worker) Run(ctx context.Context) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := w.each(ctx, "", "", func(b *object.Bucket, c *Config, r *Report) error {
			if !c.Enabled || !w.due(c, r) {
				return nil
			}
			_, err := w.write(ctx, b, c, r)
			return err
		}); err != nil && ctx.Err() == nil {
			w.log.Warn("writing an inventory failed", "error", err, "fix", "the server tries again in the next period")
		}
		timer.Reset(tick)
	}
}

// due reports whether the period of the last try has ended.
func (w *Worker) due(c *Config, r *Report) bool {
	if r.Started == nil {
		return true
	}
	begin := w.now().UTC().Truncate(24 * time.Hour)
	if c.Frequency == weekly {
		begin = begin.AddDate(0, 0, -int(begin.Weekday()))
	}
	return r.Started.Before(begin)
}

// each calls do for the configurations of all buckets, or only for the named ones. It returns the first error at the
// end.
func (w *Worker) each(ctx context.Context, bucket, id string, do func(*object.Bucket, *Config, *Report) error) error {
	buckets, err := w.store.ListBuckets(ctx)
	if err != nil {
		return err
	}
	var first error
	for i := range buckets {
		b := &buckets[i]
		if bucket != "" && b.Name != bucket {
			continue
		}
		all, err := ConfigsOf(b)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if id != "" && name != id {
				continue
			}
			var r *Report
			if r, err = w.report(ctx, b, all[name]); err == nil {
				err = do(b, all[name], r)
			}
			if err != nil && first == nil {
				first = err
			}
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

// report returns the report of a configuration.
func (w *Worker) report(ctx context.Context, b *object.Bucket, c *Config) (*Report, error) {
	r := &Report{}
	value, err := w.store.Record(ctx, recordKind, b.Name+"/"+c.ID)
	switch {
	case errors.Is(err, object.ErrNoSuchRecord):
	case err != nil:
		return nil, err
	case json.Unmarshal(value, r) != nil || !r.Created.Equal(b.Created):
		r = &Report{} // of an older bucket with the same name
	}
	r.Bucket, r.ID, r.Created, r.Schedule, r.Enabled, r.Target = b.Name, c.ID, b.Created, c.Frequency, c.Enabled,
		c.Target()
	return r, nil
}

func (w *Worker) save(ctx context.Context, r *Report) error {
	value, err := json.Marshal(r)
	if err != nil {
		return errs.Wrap("save the inventory report", r.Bucket, err)
	}
	return w.store.PutRecord(ctx, recordKind, r.Bucket+"/"+r.ID, value)
}

// Reports returns the reports of all configurations, ordered by bucket and ID.
func (w *Worker) Reports(ctx context.Context) ([]Report, error) {
	all := []Report{}
	err := w.each(ctx, "", "", func(_ *object.Bucket, _ *Config, r *Report) error {
		all = append(all, *r)
		return nil
	})
	return all, err
}

// RunNow writes the inventories of a bucket now, also disabled ones, and returns their reports. If id is not "", RunNow
// writes only that one. RunNow fails with kind NotFound if there is no such configuration.
func (w *Worker) RunNow(ctx context.Context, bucket, id string) ([]Report, error) {
	all := []Report{}
	err := w.each(ctx, bucket, id, func(b *object.Bucket, c *Config, r *Report) error {
		done, err := w.write(ctx, b, c, r)
		if err == nil {
			all = append(all, *done)
		}
		return err
	})
	if err == nil && len(all) == 0 {
		err = errs.New(errs.NotFound, "write the inventory", bucket+"/"+id, "there is no such inventory configuration").
			WithFix("put an inventory configuration")
	}
	return all, err
}
