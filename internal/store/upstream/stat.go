// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

func versioned(version string) url.Values {
	if version == "" {
		return url.Values{}
	}
	return url.Values{"versionId": {version}}
}

// about tells the meaning of a bare 404 for an object or a version.
func about(version string) subject {
	if version == "" {
		return ofObject
	}
	return ofVersion
}

// Stat asks the upstream for the description of an object. An empty version means the current version. If ifNoneMatch
// is not empty, and the object has this ETag, About.NotModified is set and the rest of About may be empty.
//
// Stat fails with object.ErrNoSuchKey, object.ErrNoSuchVersion, object.ErrNoSuchBucket or ErrUnavailable. If the
// current version is a delete marker, Stat fails with object.ErrNoSuchKey and sets Marker, the version and Modified. If
// version names a delete marker, Stat succeeds and sets Marker.
func (b *Bucket) Stat(ctx context.Context, key, version, ifNoneMatch string) (About, error) {
	const op = "look at"
	if err := object.CheckKey(op, b.path(key)); err != nil || key == "" {
		return About{}, errors.Join(err, object.CheckKey(op, key))
	}
	q := &call{op: op, of: about(version), Request: s3.Request{Method: http.MethodHead, Bucket: b.o.Bucket,
		Key: b.path(key), Query: versioned(version), Header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}}}
	if ifNoneMatch != "" {
		q.Header.Set("If-None-Match", `"`+ifNoneMatch+`"`)
	}
	r, err := b.once(ctx, q)
	var f *s3.Fault
	if err != nil {
		if f = faultOf(err); f == nil {
			return About{}, err
		}
		return b.missing(ctx, q, key, version, f)
	}
	defer r.Close()
	if r.StatusCode == http.StatusNotModified {
		return b.unmodified(q, r.Header, key, version, ifNoneMatch)
	}
	if r.ContentLength < 0 {
		return About{}, nonsense(op, b.label(key), "the reply to HEAD has no Content-Length")
	}
	a, err := b.aboutOf(key, version, r.Header, r.ContentLength)
	if err != nil {
		return About{}, err
	}
	return a, b.addTags(ctx, &a, r.Header)
}

// unmodified reads a reply with status 304.
func (b *Bucket) unmodified(q *call, h http.Header, key, version, ifNoneMatch string) (About, error) {
	if ifNoneMatch == "" {
		return About{}, nonsense(q.op, b.label(key), "the upstream answers with HTTP 304 to a request without condition")
	}
	if tag := unquote(h.Get("ETag")); tag != "" && tag != ifNoneMatch {
		return About{}, nonsense(q.op, b.label(key),
			fmt.Sprintf("the upstream answers with HTTP 304 for the ETag %.64q, and "+
				"was asked about %.64q", tag, ifNoneMatch))
	}
	return About{NotModified: true,
		Identity: object.Identity{Origin: b.origin, Key: key, Version: version, ETag: ifNoneMatch}}, nil
}

// missing translates the refusal of a HEAD. The reply to a HEAD has no body, so that a delete marker, a missing version
// and a missing bucket look alike.
func (b *Bucket) missing(ctx context.Context, q *call, key, version string, f *s3.Fault) (About, error) {
	name := b.label(key)
	if a := markerOf(b.origin, key, version, f); a.Marker {
		if version != "" {
			return a, nil
		}
		return a, refused(q.op, name, f, ofObject)
	}
	switch {
	case f.Status == http.StatusNotFound && version == "" && f.Code == "NotFound":
		return About{}, b.absent(ctx, q.op, key, f)
	case f.Status == http.StatusMethodNotAllowed && version != "":
		// A HEAD of a delete marker by its version gets 405, from some servers without the header.
		return About{Marker: true, Identity: object.Identity{Origin: b.origin, Key: key, Version: version}}, nil
	case f.Status == http.StatusNotFound && version != "", f.Status == http.StatusBadRequest,
		f.Status == http.StatusForbidden, f.Status == http.StatusUnauthorized:
		return About{}, b.explained(ctx, q, f)
	}
	return About{}, refused(q.op, name, f, q.of)
}

// absent tells a missing key from a missing bucket. A bucket that has answered before is not asked for again.
func (b *Bucket) absent(ctx context.Context, op, key string, f *s3.Fault) error {
	if b.seen.Load() {
		return refused(op, b.label(key), f, ofObject)
	}
	r, err := b.send(ctx, &call{op: op, of: ofBucket, Request: s3.Request{Method: http.MethodHead, Bucket: b.o.Bucket}})
	if err == nil {
		b.seen.Store(true)
		r.Close()
	}
	if errors.Is(err, object.ErrNoSuchBucket) || errors.Is(err, ErrUnavailable) {
		return err
	}
	return refused(op, b.label(key), f, ofObject)
}

// explained asks for the reason of a refused HEAD with a GET of one byte.
func (b *Bucket) explained(ctx context.Context, q *call, f *s3.Fault) error {
	get := *q
	get.Method, get.Header = http.MethodGet, http.Header{"Range": {"bytes=0-0"}}
	r, err := b.once(ctx, &get)
	if err == nil {
		r.Close()
		return refused(q.op, b.name(q), f, q.of)
	}
	if told := faultOf(err); told != nil && told.Status == f.Status {
		f = told
	}
	return refused(q.op, b.name(q), f, q.of)
}

// once sends a request like send, but returns an error reply as an *s3.Fault.
func (b *Bucket) once(ctx context.Context, q *call) (*reply, error) {
	raw := *q
	raw.raw = true
	return b.send(ctx, &raw)
}

// addTags reads the tags of an object that has some.
func (b *Bucket) addTags(ctx context.Context, a *About, h http.Header) error {
	caps := b.Capabilities()
	count := h.Get("x-amz-tagging-count")
	if count == "" && (caps.Lacks(Tagging) || caps.Has(TagCount) || caps.Probed.IsZero()) || count == "0" {
		return nil
	}
	tags, err := b.tags(ctx, a.Identity.Key, a.Identity.Version)
	switch {
	case err == nil:
		if len(tags) > 0 {
			a.Attributes[object.AttrTags] = encodeTags(tags)
		}
		return nil
	case errs.KindOf(err) == errs.Permission, errs.KindOf(err) == errs.Unsupported, errs.KindOf(err) == errs.NotFound:
		return nil // the upstream does not show them
	}
	return err
}

func unquote(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }
