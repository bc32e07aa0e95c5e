// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/xml"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// tagging is the document of the tags of an object.
type tagging struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ Tagging"`
	Tags    []tag    `xml:"TagSet>Tag"`
}

type tag struct{ Key, Value string }

// tags reads the tags of a version.
func (b *Bucket) tags(ctx context.Context, key, version string) (map[string]string, error) {
	query := versioned(version)
	query.Set("tagging", "")
	q := &call{op: "read tags of", of: about(version), Request: s3.Request{Method: http.MethodGet, Bucket: b.o.Bucket,
		Key: b.path(key), Query: query}}
	var x struct {
		Tags []tag `xml:"TagSet>Tag"`
	}
	if err := b.read(ctx, q, b.label(key), "Tagging", &x); err != nil {
		return nil, err
	}
	tags := make(map[string]string, len(x.Tags))
	for _, t := range x.Tags {
		tags[t.Key] = t.Value
	}
	return tags, nil
}

// putTags replaces the tags of a version; no tags at all remove them.
func (b *Bucket) putTags(ctx context.Context, key, version string, tags map[string]string) error {
	query := versioned(version)
	query.Set("tagging", "")
	if len(tags) == 0 {
		return b.done(ctx, &call{op: "remove tags of", of: about(version), Request: s3.Request{Method: http.MethodDelete,
			Bucket: b.o.Bucket, Key: b.path(key), Query: query}})
	}
	var x tagging
	for k, v := range tags {
		x.Tags = append(x.Tags, tag{k, v})
	}
	return b.post(ctx, "write tags of", key, version, query, x)
}

// post sends a PUT with an XML document about an object.
func (b *Bucket) post(ctx context.Context, op, key, version string, query url.Values, x any) error {
	doc, err := xml.Marshal(x)
	if err != nil {
		return errs.New(errs.Invalid, op, b.label(key), err.Error())
	}
	return b.done(ctx, &call{op: op, of: about(version), change: true, Request: s3.Request{Method: http.MethodPut,
		Bucket: b.o.Bucket, Key: b.path(key), Query: query, Text: doc, Header: withMD5(doc)}})
}

// done sends a request whose reply has no content of interest.
func (b *Bucket) done(ctx context.Context, q *call) error {
	r, err := b.send(ctx, q)
	if err != nil {
		return err
	}
	_, err = r.text(mostReply)
	if err != nil {
		return unavailable(q.op, b.name(q), explain(err))
	}
	return nil
}

// versioning reads the versioning state of the bucket.
func (b *Bucket) versioning(ctx context.Context) (object.Versioning, error) {
	var x struct{ Status string }
	err := b.document(ctx, "read versioning of", "", url.Values{"versioning": {""}}, "VersioningConfiguration", &x)
	switch {
	case errs.KindOf(err) == errs.Unsupported && err != nil:
		b.learn(Versioning, Finding{Detail: errs.MessageOf(err)})
		return object.VersioningOff, nil
	case err != nil:
		return "", err
	}
	switch v := object.Versioning(x.Status); v {
	case object.VersioningOff, object.VersioningEnabled, object.VersioningSuspended:
		b.learn(Versioning, Finding{Proven: true})
		return v, nil
	}
	return "", nonsense("read versioning of", b.label(""), "the state is "+x.Status)
}
