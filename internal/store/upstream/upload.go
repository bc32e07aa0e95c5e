// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

func checkPart(op, name string, number int) error {
	if number < 1 || number > object.MaxParts {
		return object.Fail(op, name, object.ErrInvalidPart, fmt.Sprintf("part number %d, expected 1 to %d", number,
			object.MaxParts))
	}
	return nil
}

func partQuery(id string, number int) url.Values {
	return url.Values{"uploadId": {id}, "partNumber": {strconv.Itoa(number)}}
}

// CreateUpload implements object.Uploads.
func (t *Through) CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error) {
	const op = "begin upload of"
	if err := t.check(op, bucket, key); err != nil {
		return "", err
	}
	name := t.b.label(key)
	if err := object.CheckAttributes(op, name, attributes); err != nil {
		return "", err
	}
	h, err := headersOf(op, name, attributes)
	if err != nil {
		return "", err
	}
	if err := t.b.probed(ctx); err != nil {
		return "", err
	}
	u := &upload{key: key, attributes: object.MergeAttributes(attributes, nil), algorithm: attributes[object.AttrSumAlgo],
		kind: attributes[object.AttrSumType], started: t.b.now()}
	if u.algorithm != "" && t.b.proven(ctx, Checksums) && t.b.Capabilities().Has(TrailerCRC64) && short(u.algorithm) &&
		(u.algorithm != "CRC64NVME" || t.b.Capabilities().Has(UploadCRC64)) {
		h.Set("X-Amz-Checksum-Algorithm", u.algorithm)
		if u.kind != "" {
			h.Set("X-Amz-Checksum-Type", u.kind)
		}
	}
	q := &call{op: op, change: true, Request: s3.Request{Method: http.MethodPost, Bucket: t.b.o.Bucket, Key: t.b.path(key),
		Query: url.Values{"uploads": {""}}, Header: h}}
	var x struct {
		UploadID string `xml:"UploadId"`
	}
	got, err := t.b.readHeaders(ctx, q, name, "InitiateMultipartUploadResult", &x)
	if err != nil {
		return "", err
	}
	if x.UploadID == "" || len(x.UploadID) > 4096 {
		return "", nonsense(op, name, "the reply names no upload")
	}
	u.id = x.UploadID
	// A server that does not repeat the algorithm does not know it.
	u.upstream = u.algorithm != "" && strings.EqualFold(got.Get("X-Amz-Checksum-Algorithm"), u.algorithm)
	t.b.uploads.add(u)
	return u.id, nil
}

// GetUpload implements object.Uploads. The upstream does not tell the attributes of an upload: after a restart, only
// the checksum's algorithm is known. An upload that was begun here is not asked for again.
func (t *Through) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	const op = "look at upload of"
	if err := t.check(op, bucket, key); err != nil {
		return object.Upload{}, err
	}
	u, err := t.upload(ctx, key, id)
	if err != nil {
		return object.Upload{}, err
	}
	return object.Upload{Bucket: t.name, Key: key, ID: id, Started: u.started, Attributes: u.attributes,
		Forgotten: u.forgotten, NoSums: u.algorithm != "" && !u.upstream}, nil
}

// upload returns what is known about an upload, from memory or from the upstream.
func (t *Through) upload(ctx context.Context, key, id string) (upload, error) {
	if id == "" {
		return upload{}, object.Fail("look at upload of", t.b.label(key), object.ErrNoSuchUpload, "no upload is named")
	}
	if u, ok := t.b.uploads.get(key, id); ok {
		return u, nil
	}
	x, err := t.b.partsPage(ctx, key, id, 0, 1)
	if err != nil {
		return upload{}, err
	}
	u := upload{key: key, id: id, attributes: map[string]string{}, forgotten: true}
	if x.ChecksumAlgorithm != "" && x.ChecksumAlgorithm != "null" {
		u.algorithm, u.kind, u.upstream, u.forgotten = x.ChecksumAlgorithm, x.ChecksumType, true, false
		u.attributes[object.AttrSumAlgo], u.attributes[object.AttrSumType] = u.algorithm, u.kind
	}
	addClass(u.attributes, x.StorageClass)
	if len(x.Parts) > 0 {
		u.started = parseTime(x.Parts[0].LastModified)
	}
	return u, nil
}

// PutPart implements object.Uploads.
func (t *Through) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	const op = "put part of"
	if err := t.check(op, p.Bucket, p.Key); err != nil {
		return object.PartInfo{}, err
	}
	name := t.b.label(p.Key)
	if err := checkPart(op, name, p.Number); err != nil {
		return object.PartInfo{}, err
	}
	u, err := t.upload(ctx, p.Key, p.Upload)
	if err != nil {
		return object.PartInfo{}, err
	}
	if p.Size < 0 {
		body, err := spooled(op, name, p.Body)
		if err != nil {
			return object.PartInfo{}, err
		}
		p.Body, p.Size = body, int64(body.Len())
	}
	w := &write{b: t.b, op: op, key: p.Key, of: ofUpload, query: partQuery(p.Upload, p.Number), size: p.Size,
		header: http.Header{}, body: p.Body, md5: p.MD5, finish: p.Finish}
	if u.upstream && t.b.Capabilities().Has(TrailerCRC64) {
		w.algorithm = u.algorithm
	}
	h, err := w.send(ctx)
	if err != nil {
		if errors.Is(err, object.ErrNoSuchUpload) {
			t.b.uploads.forget(p.Upload)
		}
		return object.PartInfo{}, err
	}
	part := object.PartInfo{Number: p.Number, Size: p.Size, ETag: unquote(h.Get("ETag")), CRC64: w.sum,
		Modified: dateOf(h, t.b.now), Attributes: w.attrs}
	if part.ETag == "" {
		return object.PartInfo{}, nonsense(op, name, "the reply names no ETag")
	}
	t.b.uploads.put(p.Upload, part)
	return part, nil
}

// partsDocument is the reply to ListParts.
type partsDocument struct {
	IsTruncated       bool
	StorageClass      string
	ChecksumAlgorithm string
	ChecksumType      string
	Parts             []partEntry `xml:"Part"`
}

type partEntry struct {
	PartNumber   int
	LastModified string
	ETag         string
	Size         int64
	sumFields
}

// partsPage asks for one page of the parts of an upload.
func (b *Bucket) partsPage(ctx context.Context, key, id string, after, limit int) (*partsDocument, error) {
	query := url.Values{"uploadId": {id}, "max-parts": {strconv.Itoa(limit)}}
	if after > 0 {
		query.Set("part-number-marker", strconv.Itoa(after))
	}
	q := &call{op: "list parts of", of: ofUpload, Request: s3.Request{Method: http.MethodGet, Bucket: b.o.Bucket,
		Key: b.path(key), Query: query}}
	var x partsDocument
	if err := b.read(ctx, q, b.label(key), "ListPartsResult", &x); err != nil {
		if errors.Is(err, object.ErrNoSuchKey) {
			err = object.Fail(q.op, b.label(key), object.ErrNoSuchUpload, errs.MessageOf(err))
		}
		if errors.Is(err, object.ErrNoSuchUpload) {
			b.uploads.forget(id)
		}
		return nil, err
	}
	last := after
	for i := range x.Parts {
		p := &x.Parts[i]
		if p.PartNumber <= last || p.PartNumber > object.MaxParts || p.Size < 0 || len(x.Parts) > limit {
			return nil, nonsense("list parts of", b.label(key), fmt.Sprintf("the upstream lists %d parts with part %d of %d "+
				"bytes after part %d", len(x.Parts), p.PartNumber, p.Size, last))
		}
		last = p.PartNumber
	}
	return &x, nil
}

// ListParts implements object.Uploads.
func (t *Through) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo, bool,
	error) {
	const op = "list parts of"
	if err := t.check(op, bucket, key); err != nil {
		return nil, false, err
	}
	if id == "" {
		return nil, false, object.Fail(op, t.b.label(key), object.ErrNoSuchUpload, "no upload is named")
	}
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	x, err := t.b.partsPage(ctx, key, id, after, limit)
	if err != nil {
		return nil, false, err
	}
	u, _ := t.b.uploads.get(key, id)
	algorithm := u.algorithm
	if x.ChecksumAlgorithm != "" && x.ChecksumAlgorithm != "null" {
		algorithm = x.ChecksumAlgorithm
	}
	var parts []object.PartInfo
	for i := range x.Parts {
		e := &x.Parts[i]
		p := object.PartInfo{Number: e.PartNumber, Size: e.Size, ETag: unquote(e.ETag), Modified: parseTime(e.LastModified)}
		fillSum(&p, algorithm, &e.sumFields)
		t.b.uploads.fill(id, &p)
		parts = append(parts, p)
	}
	return parts, x.IsTruncated && len(parts) > 0, nil
}

// fillSum sets the checksum of a part from the document of a reply.
func fillSum(p *object.PartInfo, algorithm string, s *sumFields) {
	if raw, err := base64.StdEncoding.DecodeString(s.ChecksumCRC64NVME); err == nil && len(raw) == 8 {
		p.CRC64 = binary.BigEndian.Uint64(raw)
	}
	if v := s.of(algorithm); v != nil && *v != "" && algorithm != "CRC64NVME" {
		p.Attributes = map[string]string{object.AttrSum: *v}
	}
}

// AbortUpload implements object.Uploads.
func (t *Through) AbortUpload(ctx context.Context, bucket, key, id string) error {
	const op = "abort upload of"
	if err := t.check(op, bucket, key); err != nil {
		return err
	}
	if id == "" {
		return object.Fail(op, t.b.label(key), object.ErrNoSuchUpload, "no upload is named")
	}
	err := t.b.done(ctx, &call{op: op, of: ofUpload, change: true, Request: s3.Request{Method: http.MethodDelete,
		Bucket: t.b.o.Bucket, Key: t.b.path(key), Query: url.Values{"uploadId": {id}}}})
	if err == nil || errors.Is(err, object.ErrNoSuchUpload) {
		t.b.uploads.forget(id)
	}
	return err
}

// uploadsDocument is the reply to ListMultipartUploads.
type uploadsDocument struct {
	EncodingType                      string
	IsTruncated                       bool
	NextKeyMarker, NextUploadIdMarker string
	Upload                            []uploadEntry
	CommonPrefixes                    []struct{ Prefix string }
}

type uploadEntry struct {
	Key               string
	UploadID          string `xml:"UploadId"`
	Initiated         string
	StorageClass      string
	ChecksumAlgorithm string
	ChecksumType      string
}

// ListUploads implements object.Uploads.
func (t *Through) ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error) {
	const op = "list uploads"
	if l.Bucket != t.name {
		return object.UploadPage{}, object.Fail(op, l.Bucket, object.ErrNoSuchBucket, "")
	}
	if l.Limit <= 0 || l.Limit > 1000 {
		l.Limit = 1000
	}
	run := lister{b: t.b, op: op, prefix: l.Prefix, after: l.AfterKey, within: l.AfterID, limit: l.Limit, many: true,
		fetch: func(ctx context.Context, at cursor, n int) ([]listed, cursor, bool, error) {
			return t.b.uploadsPage(ctx, &l, at, n)
		}}
	entries, more, err := run.page(ctx, cursor{after: l.AfterKey, version: l.AfterID})
	if err != nil {
		return object.UploadPage{}, err
	}
	page := object.UploadPage{Truncated: more}
	for i := range entries {
		e := &entries[i]
		if e.group {
			page.Prefixes = append(page.Prefixes, e.key)
			continue
		}
		e.up.Bucket = t.name
		if u, ok := t.b.uploads.get(e.key, e.up.ID); ok {
			e.up.Attributes = u.attributes
		}
		page.Uploads = append(page.Uploads, e.up)
	}
	if more && len(entries) > 0 {
		last := &entries[len(entries)-1]
		page.NextKey, page.NextID = last.key, last.up.ID
	}
	return page, nil
}

// uploadsPage asks for one page of uploads.
func (b *Bucket) uploadsPage(ctx context.Context, l *object.UploadList, at cursor, n int) ([]listed, cursor, bool,
	error) {
	q := url.Values{"uploads": {""}, "encoding-type": {"url"}, "max-uploads": {strconv.Itoa(n)},
		"prefix": {b.path(l.Prefix)}}
	if l.Delimiter != "" {
		q.Set("delimiter", l.Delimiter)
	}
	if at.after != "" {
		q.Set("key-marker", b.path(at.after))
		if at.version != "" {
			q.Set("upload-id-marker", at.version)
		}
	}
	var x uploadsDocument
	if err := b.document(ctx, "list uploads", l.Prefix, q, "ListMultipartUploadsResult", &x); err != nil {
		return nil, at, false, err
	}
	bad := func(what string) ([]listed, cursor, bool, error) {
		return nil, at, false, nonsense("list uploads", b.label(l.Prefix), what)
	}
	if len(x.Upload)+len(x.CommonPrefixes) > mostEntries {
		return bad(fmt.Sprintf("the reply has more than %d entries", mostEntries))
	}
	enc := plainer(x.EncodingType == "url")
	var found []listed
	for _, e := range x.Upload {
		full, err := enc.text(e.Key)
		key, ok := strings.CutPrefix(full, b.o.Prefix)
		if err != nil || !ok || key == "" || e.UploadID == "" || len(e.UploadID) > 4096 {
			return bad(fmt.Sprintf("the reply lists the upload %.64q of %.64q", e.UploadID, e.Key))
		}
		up := object.Upload{Key: key, ID: e.UploadID, Started: parseTime(e.Initiated), Attributes: map[string]string{}}
		if e.ChecksumAlgorithm != "" {
			up.Attributes[object.AttrSumAlgo], up.Attributes[object.AttrSumType] = e.ChecksumAlgorithm, e.ChecksumType
		}
		addClass(up.Attributes, e.StorageClass)
		found = append(found, listed{key: key, id: up.ID, up: up})
	}
	for _, g := range x.CommonPrefixes {
		full, err := enc.text(g.Prefix)
		key, ok := strings.CutPrefix(full, b.o.Prefix)
		if err != nil || !ok || key == "" {
			return bad(fmt.Sprintf("the reply lists the prefix %.64q", g.Prefix))
		}
		found = append(found, listed{key: key, group: true})
	}
	sorted(found)
	next := cursor{}
	if x.IsTruncated {
		switch {
		case len(found) > 0:
			next = cursor{after: found[len(found)-1].key, version: found[len(found)-1].id}
		case x.NextKeyMarker != "":
			at, err := positionOf(b.o.Prefix, x.EncodingType, x.NextKeyMarker)
			if err != nil {
				return bad(err.Error())
			}
			next = cursor{after: at, version: x.NextUploadIdMarker}
		default:
			return bad("the upstream says that more follows, and sends no entry")
		}
	}
	return found, next, x.IsTruncated, nil
}
