// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Admin makes, lists, empties and removes buckets with the client that it comes from. An Admin is safe for concurrent
// use.
type Admin struct{ c *Client }

// Admin returns the requests about whole buckets, their versions and their cache.
func (c *Client) Admin() Admin { return Admin{c} }

// Bucket is one bucket of an account.
type Bucket struct {
	Name    string
	Created time.Time
	Region  string // empty if the server does not say
}

// mostBuckets limits the buckets that a client lists.
const mostBuckets = 100_000

// ListBuckets returns the buckets of the account, in the order of the server. The result has at most 100,000 buckets.
func (a Admin) ListBuckets(ctx context.Context) ([]Bucket, error) {
	var all []Bucket
	seen := map[string]bool{}
	for token := ""; ; {
		q := &call{op: "list buckets of", method: http.MethodGet}
		if token != "" {
			q.query = url.Values{"continuation-token": {token}}
		}
		body, _, err := a.c.text(ctx, q, mostList)
		if err != nil {
			return nil, errs.Wrap("list buckets of", a.c.base.Host, err)
		}
		some, next, err := parseBuckets(body)
		if err != nil {
			return nil, errs.Wrap("list buckets of", a.c.base.Host, err)
		}
		fresh := 0
		for _, b := range some {
			if !seen[b.Name] {
				seen[b.Name] = true
				all = append(all, b)
				fresh++
			}
		}
		switch {
		case next == "" || next == token:
			return all, nil
		case fresh == 0 || len(all) > mostBuckets:
			return nil, errs.New(errs.Corrupt, "list buckets of", a.c.base.Host,
				fmt.Sprintf("the list does not end: %d buckets by now", len(all))).
				WithFix("check that the endpoint is one of S3")
		}
		token = next
	}
}

// parseBuckets reads a reply to ListBuckets.
func parseBuckets(body []byte) (all []Bucket, next string, err error) {
	var x struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Next    string   `xml:"ContinuationToken"`
		Buckets struct {
			Bucket []struct {
				Name         string
				CreationDate string
				BucketRegion string
			}
		}
	}
	bad := func(msg string) ([]Bucket, string, error) {
		return nil, "", errs.New(errs.Corrupt, "read list", "", msg).WithFix("check that the endpoint is one of S3")
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return bad("the reply is no list of buckets: " + clip(err.Error()))
	}
	if len(x.Buckets.Bucket) > mostBuckets {
		return bad(fmt.Sprintf("the reply has %d buckets, expected at most %d", len(x.Buckets.Bucket), mostBuckets))
	}
	for _, b := range x.Buckets.Bucket {
		if b.Name == "" || strings.ContainsAny(b.Name, "/?#") {
			return bad(fmt.Sprintf("the reply lists the bucket %q", clip(b.Name)))
		}
		created, _ := time.Parse(time.RFC3339, b.CreationDate)
		all = append(all, Bucket{Name: b.Name, Created: created, Region: clip(b.BucketRegion)})
	}
	return all, x.Next, nil
}

// CreateBucket makes a bucket. The region is that of the client. CreateBucket fails with an error that matches
// fs.ErrExist if the name is taken, also by a bucket of the same account.
func (a Admin) CreateBucket(ctx context.Context, bucket string) error {
	if err := checkBucket(bucket); err != nil {
		return err
	}
	q := &call{op: "make bucket", method: http.MethodPut, bucket: bucket}
	if a.c.o.Region != DefaultRegion {
		text, err := xml.Marshal(struct {
			XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CreateBucketConfiguration"`
			Location string   `xml:"LocationConstraint"`
		}{Location: a.c.o.Region})
		if err != nil {
			return errs.Wrap(q.op, q.name(), err)
		}
		q.sends(text)
	}
	_, _, err := a.c.text(ctx, q, mostError)
	return err
}

// DeleteBucket removes an empty bucket. A bucket that holds objects, versions or unfinished uploads is refused by the
// server with the code BucketNotEmpty.
func (a Admin) DeleteBucket(ctx context.Context, bucket string) error {
	if err := checkBucket(bucket); err != nil {
		return err
	}
	_, _, err := a.c.text(ctx, &call{op: "remove bucket", method: http.MethodDelete, bucket: bucket}, mostError)
	return err
}

func checkBucket(bucket string) error {
	if bucket == "" || strings.ContainsAny(bucket, "/?#") {
		return errs.New(errs.Invalid, "name bucket", strconv.Quote(bucket), "is no bucket; expected a name without slashes")
	}
	return nil
}

// sends sets the content of a small request.
func (q *call) sends(text []byte) {
	q.body = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	q.size, q.hash = int64(len(text)), hashOf(text)
	if q.header == nil {
		q.header = http.Header{}
	}
	q.header.Set("Content-Type", "application/xml")
}
