// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

var _ object.Upstream = (*Settings)(nil)

// Settings is the versioning state and the object lock of an upstream's bucket.
type Settings struct{ b *Bucket }

// SettingsOf returns the settings of a bucket on its upstream.
func SettingsOf(b *Bucket) *Settings { return &Settings{b} }

// lockDocument is the object lock configuration of a bucket.
type lockDocument struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ObjectLockConfiguration"`
	Enabled string   `xml:"ObjectLockEnabled"`
	Rule    *lockRule
}

type lockRule struct {
	DefaultRetention struct {
		Mode  string
		Days  int32 `xml:",omitempty"`
		Years int32 `xml:",omitempty"`
	}
}

// Lock implements object.Upstream.
func (t *Settings) Lock(ctx context.Context) (*object.Lock, error) {
	const op = "read object lock of"
	var x struct {
		Enabled string `xml:"ObjectLockEnabled"`
		Rule    *lockRule
	}
	q := &call{op: op, of: ofBucket, raw: true, Request: s3.Request{Method: http.MethodGet, Bucket: t.b.o.Bucket,
		Query: url.Values{"object-lock": {""}}}}
	err := t.b.read(ctx, q, t.b.label(""), "ObjectLockConfiguration", &x)
	if f := faultOf(err); f != nil {
		switch {
		case f.Code == "ObjectLockConfigurationNotFoundError", kindOf(f) == errs.Unsupported:
			return nil, nil
		}
		return nil, refused(op, t.b.label(""), f, ofBucket)
	}
	if err != nil || x.Enabled != "Enabled" {
		return nil, err
	}
	l := &object.Lock{}
	if x.Rule != nil {
		d := x.Rule.DefaultRetention
		l.Mode, l.Days, l.Years = d.Mode, d.Days, d.Years
	}
	return l, nil
}

// SetLock implements object.Upstream.
func (t *Settings) SetLock(ctx context.Context, l object.Lock) error {
	x := lockDocument{Enabled: "Enabled"}
	if l.Mode != "" {
		x.Rule = &lockRule{}
		d := &x.Rule.DefaultRetention
		d.Mode, d.Days, d.Years = l.Mode, l.Days, l.Years
	}
	return t.set(ctx, "write object lock of", "object-lock", x)
}

// Versioning implements object.Upstream.
func (t *Settings) Versioning(ctx context.Context) (object.Versioning, error) {
	return t.b.versioning(ctx)
}

// SetVersioning implements object.Upstream.
func (t *Settings) SetVersioning(ctx context.Context, v object.Versioning) error {
	const op = "write versioning of"
	if v != object.VersioningEnabled && v != object.VersioningSuspended {
		return errs.New(errs.Invalid, op, t.b.label(""), fmt.Sprintf("the state %.64q, expected %s or %s", v,
			object.VersioningEnabled, object.VersioningSuspended))
	}
	x := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ VersioningConfiguration"`
		Status  string
	}{Status: string(v)}
	err := t.set(ctx, op, "versioning", x)
	t.b.state.Store(nil) // it is asked for again
	return err
}

// set writes a document about the bucket.
func (t *Settings) set(ctx context.Context, op, resource string, x any) error {
	doc, err := xml.Marshal(x)
	if err != nil {
		return errs.New(errs.Invalid, op, t.b.label(""), err.Error())
	}
	return t.b.done(ctx, &call{op: op, of: ofBucket, change: true, Request: s3.Request{Method: http.MethodPut,
		Bucket: t.b.o.Bucket, Query: url.Values{resource: {""}}, Text: doc, Header: withMD5(doc)}})
}
