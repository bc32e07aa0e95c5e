// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// SetAttributes implements object.Objects. Only tags, retention and legal hold can be changed, each by a request of its
// own. SetAttributes reads the attributes, and then writes those that differ: it is no atomic step.
func (t *Through) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	const op = "change attributes of"
	name := t.b.label(ref.Key)
	info, err := t.Stat(ctx, ref)
	if err != nil {
		return err
	}
	if info.Marker {
		return object.Fail(op, name, object.ErrIsMarker, ref.Version)
	}
	// A version that was found without tags may have them, if the upstream does not count tags.
	old := info.Attributes
	next := maps.Clone(old)
	if err := change(next); err != nil {
		return err
	}
	for k := range object.MergeAttributes(old, next) {
		was, had := old[k]
		is, has := next[k]
		if was == is && had == has && k != object.AttrTags {
			continue
		}
		switch k {
		case object.AttrTags, object.AttrRetention, object.AttrHold:
		default:
			return cannot(op, name, fmt.Sprintf("The attribute %q of an object on another S3 server cannot be changed.", k))
		}
	}
	version := t.b.named(ctx, ref.Version)
	if err := t.setTags(ctx, ref.Key, version, old[object.AttrTags], next); err != nil {
		return err
	}
	if next[object.AttrRetention] != old[object.AttrRetention] {
		if err := t.b.putRetention(ctx, ref.Key, version, old[object.AttrRetention], next[object.AttrRetention]); err != nil {
			return err
		}
	}
	if next[object.AttrHold] != old[object.AttrHold] {
		return t.b.putHold(ctx, ref.Key, version, next[object.AttrHold] == "1")
	}
	return nil
}

// setTags writes the tags if they differ. Tags that were absent and are absent are removed all the same, because the
// upstream may not have shown them.
func (t *Through) setTags(ctx context.Context, key, version, old string, next map[string]string) error {
	doc, has := next[object.AttrTags]
	if doc == old && (has || t.b.Capabilities().Has(TagCount) || old == "") {
		return nil
	}
	tags, err := decodeTags("write tags of", t.b.label(key), doc)
	if err != nil {
		return err
	}
	return t.b.putTags(ctx, key, version, tags)
}

// putRetention replaces the retention of a version.
func (b *Bucket) putRetention(ctx context.Context, key, version, old, next string) error {
	const op = "write retention of"
	var was, is retention
	if next != "" {
		if err := json.Unmarshal([]byte(next), &is); err != nil || is.RetainUntilDate == nil {
			return errs.New(errs.Invalid, op, b.label(key), fmt.Sprintf("retention %.64q, expected a mode and a date", next))
		}
	}
	x := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ Retention"`
		Mode    string   `xml:",omitempty"`
		Until   string   `xml:"RetainUntilDate,omitempty"`
	}{Mode: is.Mode}
	if is.RetainUntilDate != nil {
		x.Until = is.RetainUntilDate.UTC().Format("2006-01-02T15:04:05Z")
	}
	doc, err := xml.Marshal(x)
	if err != nil {
		return errs.New(errs.Invalid, op, b.label(key), err.Error())
	}
	query := versioned(version)
	query.Set("retention", "")
	q := &call{op: op, of: about(version), change: true, Request: s3.Request{Method: http.MethodPut, Bucket: b.o.Bucket,
		Key: b.path(key), Query: query, Text: doc, Header: withMD5(doc)}}
	if old != "" && json.Unmarshal([]byte(old), &was) == nil && strings.EqualFold(was.Mode, "GOVERNANCE") {
		// The caller's function has agreed to the change. The upstream would refuse to shorten a retention otherwise.
		q.Header.Set("X-Amz-Bypass-Governance-Retention", "true")
	}
	return b.done(ctx, q)
}

// putHold sets or takes away the legal hold of a version.
func (b *Bucket) putHold(ctx context.Context, key, version string, on bool) error {
	query := versioned(version)
	query.Set("legal-hold", "")
	x := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ LegalHold"`
		Status  string
	}{Status: "OFF"}
	if on {
		x.Status = "ON"
	}
	return b.post(ctx, "write legal hold of", key, version, query, x)
}
