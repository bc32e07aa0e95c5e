// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/object"
)

// encoder writes names with URL encoding if the client asked for it. XML cannot represent most control characters.
type encoder bool

// encoderOf reads the argument encoding-type, which versitygw does not pass on.
func encoderOf(ctx context.Context) (encoder, error) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return false, nil
	}
	switch kind := string(rctx.QueryArgs().Peek("encoding-type")); kind {
	case "":
		return false, nil
	case "url":
		return true, nil
	}
	return false, invalid("Invalid Encoding Method specified in Request. The encoding-type is url, or not given.")
}

func (e encoder) text(s string) string {
	if !e {
		return s
	}
	// S3 does not encode slashes and encodes a space as a plus.
	return strings.ReplaceAll(url.QueryEscape(s), "%2F", "/")
}

func (e encoder) some(s string) *string { return some(e.text(s)) }

func (e encoder) kind() types.EncodingType {
	if e {
		return types.EncodingTypeUrl
	}
	return ""
}

func (e encoder) prefixes(all []string) []types.CommonPrefix {
	out := make([]types.CommonPrefix, len(all))
	for i, p := range all {
		out[i] = types.CommonPrefix{Prefix: ptr(e.text(p))}
	}
	return out
}

// page returns one page of a listing, and the bucket. With a limit of 0 the page is empty.
func (b *backend) page(ctx context.Context, l object.List, limit *int32) (*object.Bucket, object.Page, error) {
	bk, err := b.bucketOf(ctx, l.Bucket)
	if err != nil {
		return nil, object.Page{}, err
	}
	if limit != nil {
		if l.Limit = int(min(*limit, 1000)); l.Limit <= 0 {
			return bk, object.Page{}, nil
		}
	}
	p, err := b.store.List(patient(ctx), l)
	return bk, p, b.s3Error("List", object.Ref{Bucket: l.Bucket}, err)
}

func (b *backend) ListObjects(ctx context.Context, in *s3.ListObjectsInput) (s3response.ListObjectsResult, error) {
	e, err := encoderOf(ctx)
	if err != nil {
		return s3response.ListObjectsResult{}, err
	}
	l := object.List{Bucket: own(in.Bucket), Prefix: own(in.Prefix), Delimiter: own(in.Delimiter), After: own(in.Marker),
		Attributes: true}
	bk, p, err := b.page(ctx, l, in.MaxKeys)
	if err != nil {
		return s3response.ListObjectsResult{}, err
	}
	if err := (entries{encoder: e, owners: bk}).insert(ctx, &p); err != nil {
		return s3response.ListObjectsResult{}, err
	}
	return s3response.ListObjectsResult{
		Name: &l.Bucket, Prefix: shown(ctx, "prefix", e.text(l.Prefix)), Marker: shown(ctx, "marker", e.text(l.After)),
		Delimiter: e.some(l.Delimiter), EncodingType: e.kind(),
		MaxKeys: in.MaxKeys, IsTruncated: &p.Truncated, NextMarker: e.some(p.Next),
	}, nil
}

func (b *backend) ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input) (s3response.ListObjectsV2Result,
	error) {
	e, err := encoderOf(ctx)
	if err != nil {
		return s3response.ListObjectsV2Result{}, err
	}
	token, start := own(in.ContinuationToken), own(in.StartAfter)
	after, err := keyOfToken(token)
	if err != nil {
		return s3response.ListObjectsV2Result{}, err
	}
	l := object.List{Bucket: own(in.Bucket), Prefix: own(in.Prefix), Delimiter: own(in.Delimiter),
		After: max(after, start), Attributes: true}
	bk, p, err := b.page(ctx, l, in.MaxKeys)
	if err != nil {
		return s3response.ListObjectsV2Result{}, err
	}
	w := entries{encoder: e}
	if in.FetchOwner != nil && *in.FetchOwner {
		w.owners = bk
	}
	if err := w.insert(ctx, &p); err != nil {
		return s3response.ListObjectsV2Result{}, err
	}
	return s3response.ListObjectsV2Result{
		Name: &l.Bucket, Prefix: shown(ctx, "prefix", e.text(l.Prefix)), StartAfter: e.some(start),
		Delimiter: e.some(l.Delimiter), EncodingType: e.kind(),
		ContinuationToken: shown(ctx, "continuation-token", token), NextContinuationToken: some(tokenOfKey(p.Next)),
		MaxKeys: in.MaxKeys, IsTruncated: &p.Truncated,
		KeyCount: ptr(int32(len(p.Objects) + len(p.Prefixes))),
	}, nil
}

// shown returns a parameter of a listing for the reply. It returns nil for an empty value, unless the request has
// the parameter.
func shown(ctx context.Context, name, value string) *string {
	if rctx, ok := ctx.(*fasthttp.RequestCtx); ok && rctx.QueryArgs().Has(name) {
		return &value
	}
	return some(value)
}

// tokenOfKey returns the continuation token of a listing that continues behind a key. The token is a checksum and
// the key, in an alphabet that every client transmits unchanged. The checksum distinguishes tokens from other text.
func tokenOfKey(key string) string {
	if key == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(key))),
		key...))
}

// keyOfToken returns the key of a continuation token.
func keyOfToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < 4 || binary.BigEndian.Uint32(raw) != crc32.ChecksumIEEE(raw[4:]) {
		return "", invalid("The continuation token provided is incorrect")
	}
	return string(raw[4:]), nil
}

func (b *backend) ListObjectVersions(ctx context.Context,
	in *s3.ListObjectVersionsInput) (s3response.ListVersionsResult, error) {
	e, err := encoderOf(ctx)
	if err != nil {
		return s3response.ListVersionsResult{}, err
	}
	l := object.List{
		Bucket: own(in.Bucket), Prefix: own(in.Prefix), Delimiter: own(in.Delimiter), After: own(in.KeyMarker),
		AfterVersion: own(in.VersionIdMarker), Versions: true, Attributes: true,
	}
	if l.After == "" {
		l.AfterVersion = "" // a version without a key has no meaning
	}
	bk, p, err := b.page(ctx, l, in.MaxKeys)
	if err != nil {
		return s3response.ListVersionsResult{}, err
	}
	out := s3response.ListVersionsResult{
		Name: &l.Bucket, Prefix: ptr(e.text(l.Prefix)), Delimiter: ptr(e.text(l.Delimiter)),
		KeyMarker: ptr(e.text(l.After)), EncodingType: e.kind(),
		VersionIdMarker: ptr(own(in.VersionIdMarker)), MaxKeys: in.MaxKeys, IsTruncated: &p.Truncated,
		NextKeyMarker: ptr(e.text(p.Next)), NextVersionIdMarker: ptr(p.NextVersion), CommonPrefixes: e.prefixes(p.Prefixes),
	}
	if asksExact(ctx) {
		return out, insertVersions(ctx, e, bk.Owner, &p)
	}
	for i := range p.Objects {
		o := &p.Objects[i]
		of := ownerIn(bk, o.Attributes)
		owner := &types.Owner{ID: &of, DisplayName: &of}
		if o.Marker {
			out.DeleteMarkers = append(out.DeleteMarkers, types.DeleteMarkerEntry{
				Key: ptr(e.text(o.Key)), VersionId: &o.Version, IsLatest: &o.Latest, LastModified: &o.Modified, Owner: owner,
			})
			continue
		}
		sum := full(o)
		out.Versions = append(out.Versions, s3response.ObjectVersion{
			Key: ptr(e.text(o.Key)), VersionId: &o.Version, IsLatest: &o.Latest, LastModified: &o.Modified, Size: &o.Size,
			ETag:  ptr(quoted(o.ETag)),
			Owner: owner, StorageClass: types.ObjectVersionStorageClass(classOf(o.Attributes)),
			ChecksumAlgorithm: sum.algorithms(), ChecksumType: sum.Type,
		})
	}
	return out, nil
}
