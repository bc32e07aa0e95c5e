// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// late are the settings that are copied after the objects: a lifecycle would delete versions, and a notification would
// tell of copies.
var late = []string{"tagging", "cors", "encryption", "policy", "publicAccessBlock", "lifecycle", "notification"}

// foreign are settings that name other servers of the source. They are not copied, and the report says so.
var foreign = map[string]string{
	"replication": "a replication names targets of the source; set up a replication of the target instead",
	"logging":     "a log bucket is a decision for the target; set it up there",
}

// document reads a setting of a bucket. The result is nil if the bucket does not have the setting, or if the server
// does not know it.
func document(ctx context.Context, s *versions.Server, bucket, setting string) ([]byte, error) {
	body, _, err := s.Admin().Ask(ctx, "read "+setting+" of",
		s3.Request{Method: http.MethodGet, Bucket: bucket, Query: url.Values{setting: {""}}}, s3.MostSetting)
	if err != nil {
		var f *s3.Fault
		if errors.As(err, &f) && (f.Status == http.StatusNotFound && f.Code != "NoSuchBucket" ||
			f.Status == http.StatusNotImplemented || f.Code == "MethodNotAllowed") {
			return nil, nil
		}
		return nil, err
	}
	if setting != "policy" && isEmpty(body) {
		return nil, nil
	}
	return body, nil
}

// isEmpty reports whether an XML document has no element below its root.
func isEmpty(body []byte) bool {
	d := xml.NewDecoder(bytes.NewReader(body))
	for depth := 0; ; {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return false // the target will say what is wrong
		}
		switch t.(type) {
		case xml.StartElement:
			if depth++; depth > 1 {
				return false
			}
		case xml.EndElement:
			depth--
		}
	}
}

// put writes a setting of a bucket at the target.
func (b *bucketRun) put(ctx context.Context, setting string, text []byte) error {
	sum := md5.Sum(text)
	h := http.Header{"Content-Md5": {base64.StdEncoding.EncodeToString(sum[:])}}
	if setting == "policy" {
		h.Set("Content-Type", "application/json")
	}
	_, _, err := b.To.Admin().Ask(ctx, "set "+setting+" of", s3.Request{Method: http.MethodPut, Bucket: b.out.Name,
		Query: url.Values{setting: {""}}, Text: text, Header: h}, s3.MostSetting)
	return err
}

// prepare makes the bucket at the target, with the versioning and the object lock of the source. The result is false if
// there is no bucket, which only a dry run leaves so.
func (b *bucketRun) prepare(ctx context.Context) (exists bool, err error) {
	versioning, err := document(ctx, b.From, b.out.Name, "versioning")
	if err != nil {
		return false, err
	}
	lock, err := document(ctx, b.From, b.out.Name, "object-lock")
	if err != nil {
		return false, err
	}
	_, _, err = b.To.Admin().Ask(ctx, "look for", s3.Request{Method: http.MethodHead, Bucket: b.out.Name}, s3.MostSetting)
	if err == nil || errs.KindOf(err) != errs.NotFound {
		if err != nil {
			return false, err
		}
		return true, b.agree(ctx, versioning, lock)
	}
	b.out.Made = true
	if b.DryRun {
		return false, nil
	}
	r := s3.Request{Method: http.MethodPut, Bucket: b.out.Name}
	if lock != nil {
		r.Header = http.Header{"X-Amz-Bucket-Object-Lock-Enabled": {"true"}}
	}
	if _, _, err := b.To.Admin().Ask(ctx, "make bucket", r, s3.MostSetting); err != nil {
		return false, err
	}
	return true, b.agree(ctx, versioning, lock)
}

// agree gives the bucket of the target the versioning and the object lock of the source.
func (b *bucketRun) agree(ctx context.Context, versioning, lock []byte) error {
	for _, s := range []struct {
		name string
		want []byte
	}{{"versioning", versioning}, {"object-lock", lock}} {
		if s.want == nil {
			continue
		}
		have, err := document(ctx, b.To, b.out.Name, s.name)
		if err != nil {
			return err
		}
		if sameDocument(s.want, have) {
			continue
		}
		if b.DryRun {
			b.out.Settings = append(b.out.Settings, s.name)
			continue
		}
		if err := b.put(ctx, s.name, plainDocument(s.want)); err != nil {
			return err
		}
		b.out.Settings = append(b.out.Settings, s.name)
	}
	return nil
}

// settings copies the settings that objects do not need. A setting that the target refuses, or has already with another
// value, is noted.
func (b *bucketRun) settings(ctx context.Context) error {
	for _, name := range late {
		want, err := document(ctx, b.From, b.out.Name, name)
		if err != nil || want == nil {
			if err != nil {
				b.note(Note{name, "the source does not tell it: " + err.Error()})
			}
			continue
		}
		var have []byte
		if !b.out.Made || !b.DryRun {
			if have, err = document(ctx, b.To, b.out.Name, name); err != nil {
				return err
			}
		}
		switch {
		case have != nil && sameDocument(want, have):
			continue
		case have != nil:
			b.note(Note{name, "the target has another one, which was left as it is"})
			continue
		case b.DryRun:
			b.out.Settings = append(b.out.Settings, name)
			continue
		}
		if name != "policy" {
			want = plainDocument(want)
		}
		if err := b.put(ctx, name, want); err != nil {
			if ctx.Err() != nil {
				return err
			}
			b.note(Note{name, "the target refuses it: " + err.Error()})
			continue
		}
		b.out.Settings = append(b.out.Settings, name)
	}
	for name, why := range foreign {
		if doc, err := document(ctx, b.From, b.out.Name, name); err == nil && doc != nil {
			b.note(Note{name, why})
		}
	}
	return nil
}

// sameDocument compares two documents without spaces, attributes and the first line.
func sameDocument(a, b []byte) bool { return bytes.Equal(plainDocument(a), plainDocument(b)) }

// plainDocument returns an XML document with elements and texts alone. Other servers write declarations and names of
// schemas, which a strict target refuses. A document that is no XML is returned without spaces.
func plainDocument(doc []byte) []byte {
	if trimmed := bytes.TrimSpace(doc); len(trimmed) == 0 || trimmed[0] != '<' {
		return bytes.Join(bytes.Fields(trimmed), nil)
	}
	var out bytes.Buffer
	d := xml.NewDecoder(bytes.NewReader(doc))
	text := ""
	for {
		t, err := d.Token()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return out.Bytes()
			}
			return doc // the target will say what is wrong
		}
		switch t := t.(type) {
		case xml.StartElement:
			text = ""
			out.WriteString("<" + t.Name.Local + ">")
		case xml.CharData:
			text += string(t)
		case xml.EndElement:
			if text = strings.TrimSpace(text); text != "" {
				_ = xml.EscapeText(&out, []byte(text)) // a buffer never fails
			}
			text = ""
			out.WriteString("</" + t.Name.Local + ">")
		}
	}
}
