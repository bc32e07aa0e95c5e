// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
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
	// Entries are sorted by key, and the newest of a key comes first. If the server lists delete markers apart from
	// versions, both are merged by their times.
	Entries []VersionEntry
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
		query: url.Values{"versions": {""}, "encoding-type": {"url"}}, header: http.Header{object.HeaderExact: {"true"}}}
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
	XMLName      xml.Name // Version or DeleteMarker
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
		Other       []versionXML `xml:",any"` // in the order of the reply
		Encoding    string       `xml:"EncodingType"`
		More        bool         `xml:"IsTruncated"`
		NextKey     string       `xml:"NextKeyMarker"`
		NextVersion string       `xml:"NextVersionIdMarker"`
	}
	bad := func(msg string) (VersionPage, error) {
		return VersionPage{}, errs.New(errs.Corrupt, "read listing", "", msg).
			WithFix("check that the endpoint is one of S3")
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return bad("the reply is no listing of versions: " + clip(err.Error()))
	}
	if len(x.Other) > mostEntries {
		return bad(fmt.Sprintf("the reply has %d entries, expected at most %d", len(x.Other), mostEntries))
	}
	plainKey := func(s string) (string, error) {
		if x.Encoding != "url" {
			return s, nil
		}
		return url.QueryUnescape(s)
	}
	var p VersionPage
	for _, e := range x.Other {
		marker := e.XMLName.Local == "DeleteMarker"
		if !marker && e.XMLName.Local != "Version" {
			continue
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
	mergeMarkers(p.Entries)
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

// mergeMarkers merges the entries of a server that lists all delete markers before or after all versions. A listing in
// which both alternate is left in its order, which the server knows best.
func mergeMarkers(all []VersionEntry) {
	if len(all) == 0 {
		return
	}
	kind := all[0].Marker
	border := slices.IndexFunc(all, func(e VersionEntry) bool { return e.Marker != kind })
	if border < 0 || slices.ContainsFunc(all[border:], func(e VersionEntry) bool { return e.Marker == kind }) {
		return
	}
	v, m := all[:border], all[border:]
	if kind {
		v, m = m, v
	}
	out := make([]VersionEntry, 0, len(all))
	for len(v) > 0 || len(m) > 0 {
		if len(m) == 0 || len(v) > 0 && isBefore(&v[0], &m[0]) {
			out, v = append(out, v[0]), v[1:]
		} else {
			out, m = append(out, m[0]), m[1:]
		}
	}
	copy(all, out)
}

// isBefore reports whether a version stands before a delete marker in a listing.
func isBefore(version, marker *VersionEntry) bool {
	switch {
	case version.Key != marker.Key:
		return version.Key < marker.Key
	case version.Latest || marker.Latest:
		return version.Latest
	}
	return !marker.Modified.After(version.Modified)
}
