// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Unfinished is a multipart upload that was neither completed nor aborted.
type Unfinished struct {
	Key, ID string
}

// ListUnfinished returns the first unfinished uploads below a prefix, at most 1000. A caller that aborts what is
// returned calls ListUnfinished again until there are none.
func (a Admin) ListUnfinished(ctx context.Context, bucket, prefix string) ([]Unfinished, error) {
	if err := checkBucket(bucket); err != nil {
		return nil, err
	}
	q := &call{op: "list uploads of", method: http.MethodGet, bucket: bucket,
		query: url.Values{"uploads": {""}, "encoding-type": {"url"}}}
	if prefix != "" {
		q.query.Set("prefix", prefix)
	}
	body, _, err := a.c.text(ctx, q, mostList)
	if err != nil {
		return nil, err
	}
	all, err := parseUnfinished(body)
	return all, errs.Wrap(q.op, q.name(), err)
}

// parseUnfinished reads a reply to ListMultipartUploads.
func parseUnfinished(body []byte) ([]Unfinished, error) {
	var x struct {
		XMLName  xml.Name `xml:"ListMultipartUploadsResult"`
		Encoding string   `xml:"EncodingType"`
		Uploads  []struct {
			Key      string
			UploadID string `xml:"UploadId"`
		} `xml:"Upload"`
	}
	if err := xml.Unmarshal(body, &x); err != nil || len(x.Uploads) > mostEntries {
		return nil, errs.New(errs.Corrupt, "read list", "", "the reply is no list of uploads").
			WithFix("check that the endpoint is one of S3")
	}
	var all []Unfinished
	for _, u := range x.Uploads {
		key := u.Key
		if x.Encoding == "url" {
			var err error
			if key, err = url.QueryUnescape(u.Key); err != nil {
				key = ""
			}
		}
		if key == "" || u.UploadID == "" || len(u.UploadID) > 4096 {
			return nil, errs.New(errs.Corrupt, "read list", "",
				fmt.Sprintf("the reply lists the upload %q of the key %q", clip(u.UploadID), clip(u.Key)))
		}
		all = append(all, Unfinished{Key: key, ID: u.UploadID})
	}
	return all, nil
}

// AbortUnfinished ends an unfinished upload and removes its parts. An upload that has ended already is no error.
func (a Admin) AbortUnfinished(ctx context.Context, bucket string, u Unfinished) error {
	if err := checkName(bucket, u.Key); err != nil {
		return err
	}
	q := &call{op: "abort upload of", method: http.MethodDelete, bucket: bucket, key: u.Key,
		query: url.Values{"uploadId": {u.ID}}}
	_, _, err := a.c.text(ctx, q, mostError)
	if CodeOf(err) == "NoSuchUpload" {
		return nil
	}
	return err
}
