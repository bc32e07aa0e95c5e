// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Delete implements object.Objects. S3 does not say whether a deleted object existed: Deleted.Existed is false only if
// the upstream says that there was no such version.
func (t *Through) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	const op = "delete"
	if err := t.check(op, d.Bucket, d.Key); err != nil {
		return object.Deleted{}, err
	}
	d.Version = t.b.named(ctx, d.Version)
	if _, err := t.judge(ctx, op, d.Judge); err != nil {
		return object.Deleted{}, err
	}
	q := &call{op: op, of: about(d.Version), change: true, Request: s3.Request{Method: http.MethodDelete,
		Bucket: t.b.o.Bucket, Key: t.b.path(d.Key), Query: versioned(d.Version), Header: http.Header{}}}
	bypass(q.Header, d.Bypass)
	if err := t.b.condition(ctx, op, t.b.label(d.Key), q.Header, d.Condition, deleteGuards); err != nil {
		return object.Deleted{}, err
	}
	r, err := t.b.send(ctx, q)
	switch {
	case d.Condition == (object.Condition{}) && (errors.Is(err, object.ErrNoSuchVersion) || errors.Is(err,
		object.ErrNoSuchKey)):
		return object.Deleted{Version: d.Version}, nil
	case err != nil:
		return object.Deleted{}, err
	}
	h := r.Header
	if _, err := r.text(mostReply); err != nil {
		return object.Deleted{}, unavailable(op, t.b.label(d.Key), explain(err))
	}
	return object.Deleted{Version: h.Get("x-amz-version-id"), Marker: h.Get("x-amz-delete-marker") == "true",
		Existed: true}, nil
}

// bypass asks the upstream to override a retention in the mode GOVERNANCE.
func bypass(h http.Header, is bool) {
	if is {
		h.Set("X-Amz-Bypass-Governance-Retention", "true")
	}
}

// deleteDocument is the content of a request that deletes many objects.
type deleteDocument struct {
	XMLName xml.Name       `xml:"http://s3.amazonaws.com/doc/2006-03-01/ Delete"`
	Objects []deleteObject `xml:"Object"`
	Quiet   bool
}

type deleteObject struct {
	Key       string
	VersionID string `xml:"VersionId,omitempty"`
}

// deleteReply is the reply to a request that deletes many objects.
type deleteReply struct {
	Deleted []struct {
		Key                   string
		VersionID             string `xml:"VersionId"`
		DeleteMarker          bool
		DeleteMarkerVersionID string `xml:"DeleteMarkerVersionId"`
	}
	Error []struct {
		Key       string
		VersionID string `xml:"VersionId"`
		Code      string
		Message   string
	}
}

// DeleteMany implements object.Objects. Deletions with conditions, and of keys that XML cannot carry, are sent one by
// one.
func (t *Through) DeleteMany(ctx context.Context, bucket string, ds []object.Deletion) ([]object.Deleted, []error) {
	out, failures := make([]object.Deleted, len(ds)), make([]error, len(ds))
	batches := map[bool][]int{} // by Bypass, which is a header of the whole request
	for i := range ds {
		ds := ds[i]
		if ds.Bucket == "" {
			ds.Bucket = bucket
		}
		if err := t.check("delete", ds.Bucket, ds.Key); err != nil {
			failures[i] = err
			continue
		}
		if ds.Condition != (object.Condition{}) || !inXML(t.b.path(ds.Key)) {
			out[i], failures[i] = t.Delete(ctx, ds)
			continue
		}
		if _, failures[i] = t.judge(ctx, "delete", ds.Judge); failures[i] == nil {
			batches[ds.Bypass] = append(batches[ds.Bypass], i)
		}
	}
	for _, batch := range batches {
		for some := range slices.Chunk(batch, 1000) {
			t.deleteBatch(ctx, ds, some, out, failures)
		}
	}
	return out, failures
}

// inXML reports whether a document can carry the text.
func inXML(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	return true
}

// deleteBatch deletes the objects with the given indices in one request. All have the same Bypass.
func (t *Through) deleteBatch(ctx context.Context, ds []object.Deletion, batch []int, out []object.Deleted,
	failures []error) {
	const op = "delete"
	type entry struct{ key, version string }
	doc, at := deleteDocument{}, map[entry][]int{}
	for _, i := range batch {
		e := entry{t.b.path(ds[i].Key), ds[i].Version}
		if at[e] = append(at[e], i); len(at[e]) == 1 {
			doc.Objects = append(doc.Objects, deleteObject{Key: e.key, VersionID: e.version})
		}
		failures[i] = nonsense(op, t.b.label(ds[i].Key), "the reply does not name the object")
	}
	all := func(err error) {
		for _, i := range batch {
			failures[i] = err
		}
	}
	x, err := sendDeletions(ctx, t.b, doc, ds[batch[0]].Bypass)
	if err != nil {
		all(err)
		return
	}
	for _, d := range x.Deleted {
		for _, i := range at[entry{d.Key, d.VersionID}] {
			out[i] = object.Deleted{Version: d.VersionID, Marker: d.DeleteMarker, Existed: true}
			if d.DeleteMarker && d.DeleteMarkerVersionID != "" {
				out[i].Version = d.DeleteMarkerVersionID
			}
			failures[i] = nil
		}
	}
	for _, e := range x.Error {
		for _, i := range at[entry{e.Key, e.VersionID}] {
			f := &s3.Fault{Code: e.Code, Message: e.Message, Status: s3.StatusOfCode(e.Code)}
			if failures[i] = refused(op, t.b.label(ds[i].Key), f, about(ds[i].Version)); e.Code == "NoSuchVersion" ||
				e.Code == "NoSuchKey" {
				out[i], failures[i] = object.Deleted{Version: ds[i].Version}, nil
			}
		}
	}
}

// sendDeletions sends a list of deletions.
func sendDeletions(ctx context.Context, b *Bucket, doc deleteDocument, override bool) (deleteReply, error) {
	const op = "delete"
	var x deleteReply
	text, err := xml.Marshal(doc)
	if err != nil {
		return x, errs.New(errs.Invalid, op, b.origin, err.Error())
	}
	q := &call{op: op, of: ofBucket, change: true, Request: s3.Request{Method: http.MethodPost, Bucket: b.o.Bucket,
		Query: url.Values{"delete": {""}}, Text: text, Header: withMD5(text)}}
	bypass(q.Header, override)
	return x, b.read(ctx, q, b.label(""), "DeleteResult", &x)
}

// DeleteNothing implements object.Upstream.
func (t *Settings) DeleteNothing(ctx context.Context) error {
	_, err := sendDeletions(ctx, t.b, deleteDocument{}, false)
	return err
}
