// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of listings.
const (
	mostRows    = 1000 // rows of a page
	mostPages   = 20   // pages of S3 that one search reads
	searchTime  = time.Second
	longestText = 1024 // bytes of a search
)

// objectRow is one object in a listing.
type objectRow struct {
	Key      string    `json:"key"`
	Size     int64     `json:"size"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
	Class    string    `json:"class"`
}

// listing is one page of a listing.
type listing struct {
	Prefix   string      `json:"prefix"`
	Prefixes []string    `json:"prefixes"`
	Objects  []objectRow `json:"objects"`
	Next     string      `json:"next"`
	Scanned  int         `json:"scanned,omitempty"` // keys that a search has read
}

// listXML is the reply of ListObjectsV2. Keys are encoded as in URLs, because XML cannot hold all characters.
type listXML struct {
	Next     string `xml:"NextContinuationToken"`
	Contents []struct {
		Key      string    `xml:"Key"`
		Size     int64     `xml:"Size"`
		ETag     string    `xml:"ETag"`
		Modified time.Time `xml:"LastModified"`
		Class    string    `xml:"StorageClass"`
	} `xml:"Contents"`
	Prefixes []struct {
		Prefix string `xml:"Prefix"`
	} `xml:"CommonPrefixes"`
}

// objects answers GET buckets/{bucket}/objects.
func (c objectPage) objects() (any, error) {
	limit, err := c.number("limit", mostRows, 1, mostRows)
	if err != nil {
		return nil, err
	}
	if search := c.query("search"); search != "" {
		return c.search(search)
	}
	return c.list(c.query("prefix"), c.query("delimiter"), c.query("token"), int(limit))
}

// list returns one page of a listing by S3.
func (c objectPage) list(prefix, delimiter, token string, limit int) (*listing, error) {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"prefix": prefix, "delimiter": delimiter, "continuation-token": token} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var x listXML
	if _, err := c.s3(http.MethodGet, "", query, nil, &x); err != nil {
		return nil, err
	}
	page := &listing{Prefix: prefix, Prefixes: make([]string, 0, len(x.Prefixes)),
		Objects: make([]objectRow, 0, len(x.Contents)), Next: x.Next}
	for _, p := range x.Prefixes {
		page.Prefixes = append(page.Prefixes, decoded(p.Prefix))
	}
	for _, o := range x.Contents {
		page.Objects = append(page.Objects, objectRow{decoded(o.Key), o.Size, strings.Trim(o.ETag, `"`), o.Modified, o.Class})
	}
	return page, nil
}

// decoded returns a key of a listing with encoding-type=url.
func decoded(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// search lists the keys that contain a text. One request reads a bounded number of keys, and says where to go on.
func (c objectPage) search(text string) (any, error) {
	if len(text) > longestText || !utf8.ValidString(text) {
		return nil, invalid("the search is no text of up to 1024 bytes", "")
	}
	want := strings.ToLower(text)
	out := &listing{Prefix: c.query("prefix"), Prefixes: []string{}, Objects: []objectRow{}, Next: c.query("token")}
	began := time.Now()
	for range mostPages {
		page, err := c.list(out.Prefix, "", out.Next, mostRows)
		if err != nil {
			return nil, err
		}
		out.Scanned += len(page.Objects)
		for _, o := range page.Objects {
			if strings.Contains(strings.ToLower(o.Key), want) {
				out.Objects = append(out.Objects, o)
			}
		}
		if out.Next = page.Next; out.Next == "" || len(out.Objects) >= mostRows || time.Since(began) > searchTime {
			break
		}
	}
	return out, nil
}

// number returns a number of the query, or a default if it is missing.
func (c *call) number(name string, def, low, high int64) (int64, error) {
	text := c.query(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, invalid(name+" is "+quoted(text)+"; expected a number from "+strconv.FormatInt(low, 10)+" to "+
			strconv.FormatInt(high, 10), "")
	}
	return n, nil
}

// key returns the key in the query.
func (c *call) key() (string, error) {
	key := c.query("key")
	if key == "" || len(key) > 1024 || !utf8.ValidString(key) {
		return "", invalid("key is "+quoted(key)+"; expected a key of 1 to 1024 bytes in UTF-8", "")
	}
	return key, nil
}

// versionRow is one version or delete marker in a listing.
type versionRow struct {
	Key      string    `json:"key"`
	Version  string    `json:"version"`
	Latest   bool      `json:"latest"`
	Marker   bool      `json:"marker"`
	Size     int64     `json:"size"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
}

// versionXML is one entry of ListObjectVersions.
type versionXML struct {
	Key      string    `xml:"Key"`
	Version  string    `xml:"VersionId"`
	Latest   bool      `xml:"IsLatest"`
	Size     int64     `xml:"Size"`
	ETag     string    `xml:"ETag"`
	Modified time.Time `xml:"LastModified"`
}

// versions answers GET buckets/{bucket}/versions.
func (c objectPage) versions() (any, error) {
	limit, err := c.number("limit", mostRows, 1, mostRows)
	if err != nil {
		return nil, err
	}
	query := url.Values{"versions": {""}, "encoding-type": {"url"}, "max-keys": {strconv.FormatInt(limit, 10)}}
	for name, from := range map[string]string{"prefix": "prefix", "delimiter": "delimiter", "key-marker": "key_marker",
		"version-id-marker": "version_marker"} {
		if value := c.query(from); value != "" {
			query.Set(name, value)
		}
	}
	var x struct {
		More        bool         `xml:"IsTruncated"`
		NextKey     string       `xml:"NextKeyMarker"`
		NextVersion string       `xml:"NextVersionIdMarker"`
		Versions    []versionXML `xml:"Version"`
		Markers     []versionXML `xml:"DeleteMarker"`
		Prefixes    []struct {
			Prefix string `xml:"Prefix"`
		} `xml:"CommonPrefixes"`
	}
	if _, err := c.s3(http.MethodGet, "", query, nil, &x); err != nil {
		return nil, err
	}
	out := struct {
		Versions    []versionRow `json:"versions"`
		Prefixes    []string     `json:"prefixes"`
		NextKey     string       `json:"next_key"`
		NextVersion string       `json:"next_version"`
		More        bool         `json:"more"`
	}{mergeVersions(x.Versions, x.Markers), []string{}, decoded(x.NextKey), x.NextVersion, x.More}
	for _, p := range x.Prefixes {
		out.Prefixes = append(out.Prefixes, decoded(p.Prefix))
	}
	return out, nil
}

// mergeVersions returns versions and delete markers in the order of a listing: by key, newest first.
func mergeVersions(versions, markers []versionXML) []versionRow {
	out := make([]versionRow, 0, len(versions)+len(markers))
	row := func(v *versionXML, marker bool) versionRow {
		return versionRow{decoded(v.Key), v.Version, v.Latest, marker, v.Size, strings.Trim(v.ETag, `"`), v.Modified}
	}
	for len(versions) > 0 || len(markers) > 0 {
		if len(versions) == 0 || len(markers) > 0 && newer(&markers[0], &versions[0]) {
			out = append(out, row(&markers[0], true))
			markers = markers[1:]
			continue
		}
		out = append(out, row(&versions[0], false))
		versions = versions[1:]
	}
	return out
}

// newer reports whether a comes before b in a listing of versions.
func newer(a, b *versionXML) bool {
	if ka, kb := decoded(a.Key), decoded(b.Key); ka != kb {
		return ka < kb
	}
	if a.Latest != b.Latest {
		return a.Latest
	}
	return a.Modified.After(b.Modified)
}
