// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Listing is a request for the objects of a bucket, sorted by key.
type Listing struct {
	Bucket    string
	Prefix    string
	Delimiter string // groups keys that have equal text between the prefix and this delimiter; empty: no groups
	After     string // only keys after this one are listed
	Token     string // Page.Next of the page before; if it is set, After is ignored
	Limit     int    // the largest number of entries and groups; 0: as many as the server returns
}

// Entry is one object in a listing.
type Entry struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

// Page is one page of a listing.
type Page struct {
	Entries []Entry
	Groups  []string // common prefixes, including the delimiter at their end
	Next    string   // the token of the next page; empty on the last page
}

// Limits of the memory that a reply can take.
const (
	mostList    = 16 << 20
	mostEntries = 10_000
)

// List returns one page of a listing. List fails with kind NotFound if the bucket does not exist.
func (c *Client) List(ctx context.Context, l Listing) (Page, error) {
	if l.Limit < 0 || l.Limit > 1000 {
		return Page{}, errs.New(errs.Invalid, "list", URL(l.Bucket, l.Prefix),
			fmt.Sprintf("limit %d is out of range; expected 1 to 1000, or 0 for all that come at once", l.Limit))
	}
	if l.Bucket == "" {
		return Page{}, errs.New(errs.Invalid, "list", "", "no bucket is named")
	}
	q := &call{op: "list", method: http.MethodGet, bucket: l.Bucket,
		query: url.Values{"list-type": {"2"}, "encoding-type": {"url"}}}
	for k, v := range map[string]string{"prefix": l.Prefix, "delimiter": l.Delimiter, "start-after": l.After,
		"continuation-token": l.Token} {
		if v != "" && (k != "start-after" || l.Token == "") {
			q.query.Set(k, v)
		}
	}
	if l.Limit > 0 {
		q.query.Set("max-keys", strconv.Itoa(l.Limit))
	}
	body, _, err := c.text(ctx, q, mostList)
	if err != nil {
		return Page{}, err
	}
	p, err := parseList(body)
	if err != nil {
		return Page{}, errs.Wrap("list", q.name(), err)
	}
	return p, nil
}

// text sends a call and reads its reply, of at most limit bytes, whole.
func (c *Client) text(ctx context.Context, q *call, limit int64) ([]byte, http.Header, error) {
	for t := c.tries(); ; q.traffic.retry() {
		resp, err := c.do(ctx, q, t)
		if err != nil {
			return nil, nil, err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
		resp.Body.Close()
		if int64(len(body)) > limit {
			return nil, nil, errs.New(errs.Corrupt, q.op, q.name(), fmt.Sprintf("the reply has more than %d bytes", limit))
		}
		if err == nil {
			return body, resp.Header, nil
		}
		if err := t.again(ctx, q.op, q.name(), err); err != nil {
			return nil, nil, err
		}
	}
}

// parseList reads a reply to ListObjectsV2.
func parseList(body []byte) (Page, error) {
	var x struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Encoding string   `xml:"EncodingType"`
		More     bool     `xml:"IsTruncated"`
		Next     string   `xml:"NextContinuationToken"`
		Contents []struct {
			Key          string
			Size         int64
			ETag         string
			LastModified string
		}
		CommonPrefixes []struct{ Prefix string }
	}
	bad := func(msg string) (Page, error) {
		return Page{}, errs.New(errs.Corrupt, "read listing", "", msg).WithFix("check that the endpoint is one of S3")
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return bad("the reply is no listing: " + clip(err.Error()))
	}
	if len(x.Contents)+len(x.CommonPrefixes) > mostEntries {
		return bad(fmt.Sprintf("the reply has %d entries, expected at most %d", len(x.Contents)+len(x.CommonPrefixes),
			mostEntries))
	}
	if x.More && x.Next == "" {
		return bad("the reply says that more follows and not how to ask for it")
	}
	plainKey := func(s string) (string, error) {
		if x.Encoding != "url" {
			return s, nil
		}
		return url.QueryUnescape(s)
	}
	var p Page
	for _, e := range x.Contents {
		key, err := plainKey(e.Key)
		if err != nil || key == "" || e.Size < 0 {
			return bad(fmt.Sprintf("the reply lists the key %q with %d bytes", clip(e.Key), e.Size))
		}
		m, _ := time.Parse(time.RFC3339, e.LastModified)
		p.Entries = append(p.Entries, Entry{Key: key, Size: e.Size, ETag: unquote(e.ETag), Modified: m})
	}
	for _, g := range x.CommonPrefixes {
		prefix, err := plainKey(g.Prefix)
		if err != nil {
			return bad(fmt.Sprintf("the reply lists the prefix %q", clip(g.Prefix)))
		}
		p.Groups = append(p.Groups, prefix)
	}
	if x.More {
		p.Next = x.Next
	}
	return p, nil
}
