// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// VersionEntry is one version of an object, or a delete marker.
type VersionEntry struct {
	Key      string
	Version  string // "null" for an object from before the bucket had versions
	Size     int64
	ETag     string
	Modified time.Time
	Latest   bool // the current version of its key
	Marker   bool // a delete marker: it hides the versions before it, and has no content
}

// VersionPage is one page of a listing of versions.
type VersionPage struct {
	Entries []VersionEntry // sorted by key; of one key, versions and delete markers are not in the order of their times
	// NextKey and NextVersion begin the next page; NextKey is empty on the last page.
	NextKey, NextVersion string
}

// ListVersions returns one page of the versions and delete markers of the objects below a prefix. The page begins after
// keyAfter and versionAfter, which are empty for the first page.
func (a Admin) ListVersions(ctx context.Context, bucket, prefix, keyAfter, versionAfter string) (VersionPage, error) {
	if err := checkBucket(bucket); err != nil {
		return VersionPage{}, err
	}
	q := &call{op: "list versions of", method: http.MethodGet, bucket: bucket,
		query: url.Values{"versions": {""}, "encoding-type": {"url"}}}
	for k, v := range map[string]string{"prefix": prefix, "key-marker": keyAfter, "version-id-marker": versionAfter} {
		if v != "" {
			q.query.Set(k, v)
		}
	}
	body, _, err := a.c.text(ctx, q, mostList)
	if err != nil {
		return VersionPage{}, err
	}
	p, err := parseVersions(body)
	if err != nil {
		return VersionPage{}, errs.Wrap(q.op, q.name(), err)
	}
	return p, nil
}

type versionXML struct {
	Key          string
	VersionID    string `xml:"VersionId"`
	IsLatest     bool
	Size         int64
	ETag         string
	LastModified string
}

// parseVersions reads a reply to ListObjectVersions.
func parseVersions(body []byte) (VersionPage, error) {
	var x struct {
		XMLName     xml.Name     `xml:"ListVersionsResult"`
		Encoding    string       `xml:"EncodingType"`
		More        bool         `xml:"IsTruncated"`
		NextKey     string       `xml:"NextKeyMarker"`
		NextVersion string       `xml:"NextVersionIdMarker"`
		Versions    []versionXML `xml:"Version"`
		Markers     []versionXML `xml:"DeleteMarker"`
	}
	bad := func(msg string) (VersionPage, error) {
		return VersionPage{}, errs.New(errs.Corrupt, "read listing", "", msg).
			WithFix("check that the endpoint is one of S3")
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return bad("the reply is no listing of versions: " + clip(err.Error()))
	}
	if n := len(x.Versions) + len(x.Markers); n > mostEntries {
		return bad(fmt.Sprintf("the reply has %d entries, expected at most %d", n, mostEntries))
	}
	plainKey := func(s string) (string, error) {
		if x.Encoding != "url" {
			return s, nil
		}
		return url.QueryUnescape(s)
	}
	var p VersionPage
	// Versions and markers are merged by key. A reply has each of both in order.
	for v, m := 0, 0; v < len(x.Versions) || m < len(x.Markers); {
		e, marker := versionXML{}, false
		if v < len(x.Versions) && (m == len(x.Markers) || x.Versions[v].Key <= x.Markers[m].Key) {
			e, v = x.Versions[v], v+1
		} else {
			e, marker, m = x.Markers[m], true, m+1
		}
		key, err := plainKey(e.Key)
		if err != nil || key == "" || e.Size < 0 || len(e.VersionID) > mostText {
			return bad(fmt.Sprintf("the reply lists the version %q of the key %q with %d bytes", clip(e.VersionID), clip(e.Key),
				e.Size))
		}
		modified, _ := time.Parse(time.RFC3339, e.LastModified)
		p.Entries = append(p.Entries, VersionEntry{Key: key, Version: e.VersionID, Size: e.Size, ETag: unquote(e.ETag),
			Modified: modified, Latest: e.IsLatest, Marker: marker})
	}
	if !x.More {
		return p, nil
	}
	var err error
	if p.NextKey, err = plainKey(x.NextKey); err != nil || p.NextKey == "" {
		return bad("the reply says that more follows and not how to ask for it")
	}
	p.NextVersion = x.NextVersion
	return p, nil
}
