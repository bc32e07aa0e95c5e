// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// naming names an object or a version.
type naming struct {
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
}

// deletion is the result of a deletion. If the content is kept as an older version, Undo names the delete marker, whose
// removal brings the object back.
type deletion struct {
	Key     string  `json:"key"`
	Version string  `json:"version"`
	Marker  bool    `json:"marker"`
	Undo    *naming `json:"undo"`
}

// newDeletion returns the result of a deletion. The parameter asked is the version that the request named.
func newDeletion(key, asked, version string, marker bool) deletion {
	d := deletion{Key: key, Version: version, Marker: marker}
	// A marker with the null version has replaced the content.
	if asked == "" && marker && version != "" && version != object.NullVersion {
		d.Undo = &naming{key, version}
	}
	return d
}

// remove handles DELETE buckets/{bucket}/object of the API: it deletes an object, or one version of it.
func (c objectPage) remove() (any, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	return c.removeOne(naming{key, c.query("version")})
}

func (c objectPage) removeOne(n naming) (deletion, error) {
	query := url.Values{}
	if n.Version != "" {
		query.Set("versionId", n.Version)
	}
	h, err := c.s3(http.MethodDelete, n.Key, query, nil, nil)
	if err != nil {
		return deletion{}, err
	}
	marker := h.Get("X-Amz-Delete-Marker") == "true"
	return newDeletion(n.Key, n.Version, h.Get("X-Amz-Version-Id"), marker), nil
}

// deletedReply is the result of the deletion of many objects.
type deletedReply struct {
	Deleted []deletion      `json:"deleted"`
	Errors  []deletionError `json:"errors"`
}

type deletionError struct {
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// mostDeletes is the largest number of objects that one request deletes.
const mostDeletes = s3.MostDeletes

// removeMany answers POST buckets/{bucket}/delete.
func (c objectPage) removeMany() (any, error) {
	var in struct {
		Objects []naming `json:"objects"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Objects) == 0 || len(in.Objects) > mostDeletes {
		return nil, invalid("the list has "+strconv.Itoa(len(in.Objects))+" objects; expected 1 to 1000", "")
	}
	out := deletedReply{Deleted: []deletion{}, Errors: []deletionError{}}
	var doc deleteDocument
	asked := map[naming]bool{}
	for _, n := range in.Objects {
		if !textXML(n.Key) {
			// XML would replace a character of the key, and the request would delete another object.
			d, err := c.removeOne(n)
			out.add(n, d, err)
			continue
		}
		asked[n] = true
		doc.Objects = append(doc.Objects, deleteEntry(n))
	}
	if len(doc.Objects) == 0 {
		return out, nil
	}
	body, err := xml.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var x deleteResult
	if _, err := c.s3(http.MethodPost, "", url.Values{"delete": {""}}, body, &x); err != nil {
		return nil, err
	}
	for _, d := range x.Deleted {
		version := d.MarkerVersion
		if version == "" {
			version = d.Version
		}
		out.Deleted = append(out.Deleted, newDeletion(d.Key, d.Version, version, d.Marker))
	}
	for _, e := range x.Errors {
		out.Errors = append(out.Errors, deletionError{e.Key, e.Version, e.Code, e.Message})
	}
	return out, nil
}

func (r *deletedReply) add(n naming, d deletion, err error) {
	if err == nil {
		r.Deleted = append(r.Deleted, d)
		return
	}
	e := deletionError{n.Key, n.Version, "InternalError", err.Error()}
	var f *s3.Fault
	if errors.As(err, &f) {
		e.Code, e.Message = f.Code, f.Message
	}
	r.Errors = append(r.Errors, e)
}

type deleteDocument struct {
	XMLName xml.Name      `xml:"Delete"`
	Objects []deleteEntry `xml:"Object"`
}

type deleteEntry struct {
	Key     string `xml:"Key"`
	Version string `xml:"VersionId,omitempty"`
}

type deleteResult struct {
	Deleted []struct {
		Key           string `xml:"Key"`
		Version       string `xml:"VersionId"`
		Marker        bool   `xml:"DeleteMarker"`
		MarkerVersion string `xml:"DeleteMarkerVersionId"`
	} `xml:"Deleted"`
	Errors []struct {
		Key     string `xml:"Key"`
		Version string `xml:"VersionId"`
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	} `xml:"Error"`
}

// textXML reports whether XML can hold all characters of a text.
func textXML(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' || r == 0xFFFE || r == 0xFFFF || r == 0xFFFD
	})
}

// undelete answers POST buckets/{bucket}/undelete. It removes a delete marker, and refuses to remove content.
func (c objectPage) undelete() (any, error) {
	var in naming
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Key == "" || in.Version == "" {
		return nil, invalid("the key or the version is missing", "")
	}
	_, err := c.head(in.Key, in.Version)
	var f *s3.Fault
	switch {
	case err == nil:
		return nil, &failed{http.StatusConflict, "NotADeleteMarker", "the version " + quoted(in.Version) +
			" is no delete marker, and its removal would remove content", ""}
	case !errors.As(err, &f) || f.Status != http.StatusMethodNotAllowed:
		return nil, err
	}
	_, err = c.removeOne(in)
	return nil, err
}

// restore answers POST buckets/{bucket}/restore: it makes a version the current one by a copy.
func (c objectPage) restore() (any, error) {
	var in naming
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Key == "" || in.Version == "" {
		return nil, invalid("the key or the version is missing", "")
	}
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	r := request(http.MethodPut, c.name(), in.Key, nil, nil)
	r.Header.Set("X-Amz-Copy-Source", s3.EscapePath("/"+c.name()+"/"+in.Key)+"?versionId="+url.QueryEscape(in.Version))
	h, err := c.S3.XML(c.r.Context(), c.as(), r, nil)
	if err != nil {
		return nil, err
	}
	return map[string]string{"version": h.Get("X-Amz-Version-Id")}, nil
}
