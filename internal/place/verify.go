// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Outcome is the result for one key of two places.
type Outcome string

// The outcomes of a comparison.
const (
	Same      Outcome = "same"
	Different Outcome = "different"
	AbsentB   Outcome = "missing" // A has the key, and B does not
	AbsentA   Outcome = "extra"   // B has the key, and A does not
	Failed    Outcome = "failed"  // one side could not be read
)

// Finding is what a comparison found for one key.
type Finding struct {
	Key     string
	Outcome Outcome
	// How says what was compared: "size", "read" for all bytes of both sides, or the algorithm of a checksum. With
	// "crc64nvme+read", one side was read and compared with the checksum of the other.
	How          string
	SizeA, SizeB int64 // -1 if the side does not have the key
	// At is the offset of the first range that differs, for content that was read from both sides; otherwise -1.
	At  int64
	Err error // for Failed
}

// Comparison compares the content of two places.
type Comparison struct {
	A, B   Tree
	Filter *Filter // nil chooses every key
	// Read reads both sides even if both have a checksum of the whole content.
	Read bool
	// Reads is the number of ranges that are read at once; 0 means 16.
	Reads int
	// Progress, if not nil, is called with the bytes read so far, on any goroutine.
	Progress func(bytes int64)
}

// mostAhead is the number of keys that are compared at once, or wait for the result of an earlier key.
const mostAhead = 64

// mostFailed is the number of keys that may fail before a comparison ends.
const mostFailed = 100

// Run compares both places and calls each with the finding for every key, in the order of the keys, on one goroutine.
// An error of a listing, or of each, ends the comparison; a file or object that cannot be read is a finding. If A and B
// are single objects or files, only they are compared, whatever their names. A single object is compared with the
// object of its name in a folder B.
func (c Comparison) Run(ctx context.Context, each func(Finding) error) error {
	one, err := c.single(ctx)
	if err != nil {
		return err
	}
	if c.Reads == 0 {
		c.Reads = 16
	}
	reads := newReads(c)
	if one != nil {
		return each(reads.compare(ctx, *one))
	}
	return c.ordered(ctx, reads, each)
}

// single returns the pair if A is a single object or file.
func (c *Comparison) single(ctx context.Context) (*Pair, error) {
	a, left, err := c.A.Look(ctx)
	if err != nil {
		return nil, err
	}
	b, right, err := c.B.Look(ctx)
	if err != nil {
		return nil, err
	}
	missing := func(t Tree) error {
		return errs.New(errs.NotFound, "verify", t.String(), "nothing is there").
			WithFix("check the name; nebulaio ls lists what is there")
	}
	switch {
	case a == Missing:
		return nil, missing(c.A)
	case b == Missing:
		return nil, missing(c.B)
	case a == One && b == One:
		return &Pair{&left, &right}, nil
	case a == One:
		if c.B.Place, err = c.B.Join(left.Key); err != nil {
			return nil, err
		}
		if b, right, err = c.B.Look(ctx); err != nil {
			return nil, err
		}
		if b != One {
			return nil, missing(c.B)
		}
		return &Pair{&left, &right}, nil
	case b == One:
		return nil, errs.New(errs.Invalid, "verify", c.B.String(),
			fmt.Sprintf("is a single object or file, and %s is not", c.A)).WithFix("name two folders, or two objects")
	}
	return nil, nil
}

// ordered compares the keys of two folders, many at once, and reports them in order.
func (c Comparison) ordered(ctx context.Context, reads *reads, each func(Finding) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan chan Finding, mostAhead)
	reported := make(chan error, 1)
	go func() {
		var err error
		failed := 0
		for next := range queue {
			f := <-next
			if err != nil {
				continue
			}
			if err = each(f); err == nil && f.Outcome == Failed {
				if failed++; failed >= mostFailed || ctx.Err() != nil {
					err = f.Err
				}
			}
			if err != nil {
				cancel(err)
			}
		}
		reported <- err
	}()
	err := Merge(ctx, c.Filter.Of(c.A), c.Filter.Of(c.B), func(p Pair) error {
		next := make(chan Finding, 1)
		select {
		case queue <- next:
		case <-ctx.Done():
			return errs.Wrap("verify", c.A.String(), context.Cause(ctx))
		}
		go func() { next <- reads.compare(ctx, p) }()
		return nil
	})
	close(queue)
	if e := <-reported; e != nil {
		return e
	}
	return err
}

// path returns the local path of an entry, or its URL.
func (t Tree) nameOf(e *Entry) string {
	if t.Remote() {
		return s3.URL(t.Bucket, e.Name)
	}
	return filepath.Clean(strings.TrimSuffix(e.Name, "/"))
}
