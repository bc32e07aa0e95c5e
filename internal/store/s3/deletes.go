// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5" //nolint:gosec // S3 defines Content-MD5
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Doomed is one object, or one version of an object, that DeleteMany removes.
type Doomed struct {
	Key     string
	Version string // empty: the current object; in a bucket with versions it is hidden, and its versions are kept
}

// MostDeletes is the largest number of objects that one request deletes.
const MostDeletes = 1000

// singleDeletes is the number of requests at once to a server that deletes objects one by one.
const singleDeletes = 8

// DeleteMany removes up to MostDeletes objects of one bucket, with one request if the server can. Missing objects are
// no error. The result fails has one error for each object, or nil if the object is removed. An error of the request as
// a whole is err, and then DeleteMany cannot tell what was removed.
func (a Admin) DeleteMany(ctx context.Context, bucket string, all []Doomed) (fails []error, err error) {
	if err := checkBucket(bucket); err != nil {
		return nil, err
	}
	if len(all) > MostDeletes {
		return nil, errs.New(errs.Invalid, "delete from", URL(bucket, ""),
			fmt.Sprintf("%d objects were named, expected at most %d", len(all), MostDeletes))
	}
	if len(all) == 0 {
		return nil, nil
	}
	for _, d := range all {
		if err := checkName(bucket, d.Key); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(all, func(d Doomed) bool { return !inXML(d.Key) }) {
		return a.oneByOne(ctx, bucket, all) // XML would name another key
	}
	if !a.c.noBatch.Load() {
		fails, err := a.batch(ctx, bucket, all)
		var f *Fault
		if err == nil || !errors.As(err, &f) || !refusesBatch(f) {
			return fails, err
		}
	}
	fails, err = a.oneByOne(ctx, bucket, all)
	if err == nil {
		a.c.noBatch.Store(true) // objects can be deleted here, but not many at once
	}
	return fails, err
}

// inXML reports whether XML can hold a key without a change.
func inXML(key string) bool {
	return utf8.ValidString(key) && !strings.ContainsFunc(key, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' || r == 0xFFFE || r == 0xFFFF
	})
}

// refusesBatch reports whether a server may have refused a request because it knows no DeleteObjects.
func refusesBatch(f *Fault) bool {
	switch f.Status {
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return true
	case http.StatusBadRequest:
		return f.Code != "MalformedXML" && f.Code != "ExpiredToken" && f.Code != "InvalidToken"
	}
	return false
}

// batch deletes objects with one DeleteObjects request.
func (a Admin) batch(ctx context.Context, bucket string, all []Doomed) ([]error, error) {
	type object struct {
		Key     string
		Version string `xml:"VersionId,omitempty"`
	}
	x := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ Delete"`
		Quiet   bool
		Objects []object `xml:"Object"`
	}{Quiet: true}
	for _, d := range all {
		x.Objects = append(x.Objects, object(d))
	}
	text, err := xml.Marshal(x)
	if err != nil {
		return nil, errs.Wrap("delete from", URL(bucket, ""), err)
	}
	q := &call{op: "delete from", method: http.MethodPost, bucket: bucket, query: url.Values{"delete": {""}}}
	q.sends(text)
	sum := md5.Sum(text) //nolint:gosec // S3 defines Content-MD5
	q.header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	body, _, err := a.c.text(ctx, q, mostList)
	if err != nil {
		return nil, err
	}
	return parseDeletes(body, bucket, all)
}

// parseDeletes reads a reply to DeleteObjects, which lists the objects that were not deleted.
func parseDeletes(body []byte, bucket string, all []Doomed) ([]error, error) {
	if f, ok := parseFault(body); ok {
		f.Status = http.StatusInternalServerError
		return nil, failure("delete from", URL(bucket, ""), &f)
	}
	var x struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Errors  []struct {
			Key, Code, Message string
			VersionID          string `xml:"VersionId"`
		} `xml:"Error"`
	}
	if err := xml.Unmarshal(body, &x); err != nil || len(x.Errors) > MostDeletes {
		return nil, errs.New(errs.Corrupt, "delete from", URL(bucket, ""), "the reply does not say what was deleted").
			WithFix("list what is there")
	}
	fails := make([]error, len(all))
	if len(x.Errors) == 0 {
		return fails, nil
	}
	at := map[Doomed]int{}
	for i, d := range all {
		at[d] = i
	}
	for _, e := range x.Errors {
		i, known := at[Doomed{e.Key, e.VersionID}]
		if !known { // some servers name the version "null", or none
			i, known = at[Doomed{Key: e.Key}]
		}
		if !known {
			return nil, errs.New(errs.Corrupt, "delete from", URL(bucket, ""),
				fmt.Sprintf("the reply says that %q was not deleted, which was not asked for", clip(e.Key)))
		}
		f := &Fault{Status: statusOfCode(e.Code), Code: clip(e.Code), Message: clip(e.Message)}
		if f.Code != "NoSuchKey" && f.Code != "NoSuchVersion" {
			fails[i] = failure("delete", URL(bucket, e.Key), f)
		}
	}
	return fails, nil
}

// statusOfCode returns the HTTP status that a code of DeleteObjects would have alone.
func statusOfCode(code string) int {
	switch code {
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch":
		return http.StatusForbidden
	case "NoSuchKey", "NoSuchVersion", "NoSuchBucket":
		return http.StatusNotFound
	case "InternalError":
		return http.StatusInternalServerError
	case "SlowDown", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "NotImplemented":
		return http.StatusNotImplemented
	}
	return http.StatusBadRequest
}

// oneByOne deletes objects with a request for each.
func (a Admin) oneByOne(ctx context.Context, bucket string, all []Doomed) ([]error, error) {
	fails := make([]error, len(all))
	var wait sync.WaitGroup
	room := make(chan struct{}, singleDeletes)
	for i, d := range all {
		room <- struct{}{}
		wait.Go(func() {
			fails[i] = a.DeleteVersion(ctx, bucket, d.Key, d.Version)
			<-room
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, failure("delete from", URL(bucket, ""), context.Cause(ctx))
	}
	return fails, nil
}

// DeleteVersion removes one version of an object for good, or does what Delete does if version is empty.
func (a Admin) DeleteVersion(ctx context.Context, bucket, key, version string) error {
	if err := checkName(bucket, key); err != nil {
		return err
	}
	q := &call{op: "delete", method: http.MethodDelete, bucket: bucket, key: key, query: versioned(version)}
	_, _, err := a.c.text(ctx, q, mostError)
	return err
}
