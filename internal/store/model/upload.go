// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"context"
	"crypto/md5"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
)

// upload is a multipart upload in progress.
type upload struct {
	info  object.Upload
	parts map[int]*part
}

// part is one acknowledged part. It is never changed, only replaced.
type part struct {
	info object.PartInfo
	data []byte
	md5  []byte // nil where the bucket's ETags are not made of it
}

// CreateUpload implements object.Uploads.
func (s *Store) CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error) {
	const op = "create upload"
	if err := object.CheckNew(op, key, attributes); err != nil {
		return "", err
	}
	if err := s.enter(ctx, op, bucket); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, bucket)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("u%016x", s.next())
	b.uploads[id] = &upload{
		info: object.Upload{Bucket: bucket, Key: key, ID: id, Started: now(),
			Attributes: object.MergeAttributes(attributes, nil)},
		parts: map[int]*part{},
	}
	return id, nil
}

// upload finds an upload; the mutex is held.
func (s *Store) upload(op, bucket, key, id string) (*bucket, *upload, error) {
	b, err := s.find(op, bucket)
	if err != nil {
		return nil, nil, err
	}
	u, ok := b.uploads[id]
	if !ok || u.info.Key != key {
		return nil, nil, object.Fail(op, key, object.ErrNoSuchUpload, id)
	}
	return b, u, nil
}

// GetUpload implements object.Uploads.
func (s *Store) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	const op = "get upload"
	if err := s.enter(ctx, op, bucket); err != nil {
		return object.Upload{}, err
	}
	defer s.mu.Unlock()
	_, u, err := s.upload(op, bucket, key, id)
	if err != nil {
		return object.Upload{}, err
	}
	i := u.info
	i.Attributes = maps.Clone(i.Attributes)
	return i, nil
}

// checkNumber refuses a part number that no part can have.
func checkNumber(op, key string, n int) error {
	if n < 1 || n > object.MaxParts {
		return object.Fail(op, key, object.ErrInvalidPart,
			fmt.Sprintf("part number %d, expected 1 to %d", n, object.MaxParts))
	}
	return nil
}

// PutPart implements object.Uploads.
func (s *Store) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	const op = "put part"
	if err := checkNumber(op, p.Key, p.Number); err != nil {
		return object.PartInfo{}, err
	}
	if err := s.enter(ctx, op, p.Bucket); err != nil {
		return object.PartInfo{}, err
	}
	b, _, err := s.upload(op, p.Bucket, p.Key, p.Upload)
	if err != nil {
		s.mu.Unlock()
		return object.PartInfo{}, err
	}
	kind := b.settings.ETag
	s.mu.Unlock()
	data, err := take(ctx, op, p.Key, p.Body, p.Size)
	if err != nil {
		return object.PartInfo{}, err
	}
	return s.keepPart(ctx, op, p, kind, data)
}

// keepPart makes data a part, in place of one with the same number.
func (s *Store) keepPart(ctx context.Context, op string, p object.PutPart, kind object.ETagKind,
	data []byte) (object.PartInfo, error) {
	w, _ := shown(data, p.MD5 || kind == object.ETagMD5, p.Plain)
	as, err := object.FinishAttributes(op, p.Key, nil, p.Finish, w)
	if err != nil {
		return object.PartInfo{}, err
	}
	if err := s.enter(ctx, op, p.Bucket); err != nil {
		return object.PartInfo{}, err
	}
	defer s.mu.Unlock()
	_, u, err := s.upload(op, p.Bucket, p.Key, p.Upload)
	if err != nil {
		return object.PartInfo{}, err
	}
	n := &part{data: data, info: object.PartInfo{
		Number: p.Number, Size: w.Size, ETag: object.ETagOf(kind, w), CRC64: w.CRC64, Modified: now(), Attributes: as,
	}}
	if kind == object.ETagMD5 {
		n.md5 = w.MD5
	}
	u.parts[p.Number] = n
	return object.CloneParts([]object.PartInfo{n.info})[0], nil
}

// CopyPart implements object.Uploads.
func (s *Store) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	const op = "copy part"
	if err := checkNumber(op, c.Key, c.Number); err != nil {
		return object.PartInfo{}, err
	}
	if err := s.enter(ctx, op, c.Bucket); err != nil {
		return object.PartInfo{}, err
	}
	b, _, err := s.upload(op, c.Bucket, c.Key, c.Upload)
	if err != nil {
		s.mu.Unlock()
		return object.PartInfo{}, err
	}
	kind := b.settings.ETag
	_, v, err := s.content(op, c.From)
	s.mu.Unlock()
	if err != nil {
		return object.PartInfo{}, err
	}
	size := int64(len(v.data))
	if c.N == -1 {
		c.N = size - c.Off
	}
	if c.Off < 0 || c.N < 0 || c.Off > size || c.N > size-c.Off {
		return object.PartInfo{}, object.Fail(op, c.From.Key, object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", c.N, c.Off, size))
	}
	p := object.PutPart{Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Finish: c.Finish}
	return s.keepPart(ctx, op, p, kind, v.data[c.Off:c.Off+c.N])
}

// ListParts implements object.Uploads.
func (s *Store) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo, bool,
	error) {
	const op = "list parts"
	if err := s.enter(ctx, op, bucket); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	_, u, err := s.upload(op, bucket, key, id)
	if err != nil {
		return nil, false, err
	}
	var all []object.PartInfo
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		if n > after {
			all = append(all, u.parts[n].info)
		}
	}
	if n := limitOf(limit); len(all) > n {
		return object.CloneParts(all[:n]), true, nil
	}
	return object.CloneParts(all), false, nil
}

// CompleteUpload implements object.Uploads. CompleteUpload checks the order of the parts first, then that the parts
// exist, then their sizes, and last the condition.
func (s *Store) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	const op = "complete upload"
	if err := s.enter(ctx, op, c.Bucket); err != nil {
		return object.Info{}, err
	}
	_, u, err := s.upload(op, c.Bucket, c.Key, c.Upload)
	if err != nil {
		s.mu.Unlock()
		return object.Info{}, err
	}
	parts, err := u.choose(op, c)
	as := u.info.Attributes
	s.mu.Unlock()
	if err != nil {
		return object.Info{}, err
	}
	v := join(parts)
	if v.info.Attributes, err = object.FinishAttributes(op, c.Key, as, c.Finish,
		object.CloneParts(v.info.Parts)); err != nil {
		return object.Info{}, err
	}
	if err := s.enter(ctx, op, c.Bucket); err != nil {
		return object.Info{}, err
	}
	defer s.mu.Unlock()
	b, u, err := s.upload(op, c.Bucket, c.Key, c.Upload)
	if err != nil {
		return object.Info{}, err
	}
	for _, p := range parts {
		if u.parts[p.info.Number] != p {
			return object.Info{}, object.Fail(op, c.Key, object.ErrInvalidPart,
				fmt.Sprintf("part %d was replaced meanwhile", p.info.Number))
		}
	}
	if err := holds(op, c.Key, c.Condition, b.current(c.Key)); err != nil {
		return object.Info{}, err
	}
	v.info.Bucket, v.info.Key = c.Bucket, c.Key
	v.origin = c.Origin
	info, err := s.judged(op, b, c.Judge, v)
	if err == nil {
		delete(b.uploads, c.Upload)
	}
	return info, err
}

// choose returns the parts that c names, or an error that names a missing or wrong part.
func (u *upload) choose(op string, c object.Complete) ([]*part, error) {
	if err := c.CheckOrder(op); err != nil {
		return nil, err
	}
	var parts []*part
	for _, want := range c.Parts {
		p, ok := u.parts[want.Number]
		if !ok || want.ETag != "" && want.ETag != p.info.ETag {
			return nil, object.Fail(op, c.Key, object.ErrInvalidPart,
				fmt.Sprintf("part %d with ETag %q", want.Number, want.ETag))
		}
		parts = append(parts, p)
	}
	for _, p := range parts[:len(parts)-1] {
		if p.info.Size < c.MinPart {
			return nil, object.Fail(op, c.Key, object.ErrPartTooSmall,
				fmt.Sprintf("part %d has %d bytes, expected at least %d", p.info.Number, p.info.Size, c.MinPart))
		}
	}
	return parts, nil
}

// join makes one content of parts. Its ETag is made of MD5s where every part has one.
func join(parts []*part) *version {
	v := &version{}
	var sums []byte
	for _, p := range parts {
		v.data = append(v.data, p.data...)
		sums = append(sums, p.md5...)
		v.info.Parts = append(v.info.Parts, p.info)
	}
	v.info.Parts = object.CloneParts(v.info.Parts)
	v.info.Size = int64(len(v.data))
	v.info.CRC64 = checksum.Of(v.data)
	if _, sealed := parts[0].info.Attributes[object.AttrSealedPart]; sealed {
		v.info.Stored, v.info.Size, v.info.CRC64 = v.info.Size, 0, 0
		join := checksum.NewJoiner()
		for _, p := range parts {
			v.info.CRC64 = join.After(v.info.CRC64, p.info.Size) ^ p.info.CRC64
			v.info.Size += p.info.Size
		}
	}
	v.info.ETag = object.CRC64ETag(v.info.CRC64, v.info.Size, len(parts))
	if len(sums) == md5.Size*len(parts) {
		v.info.ETag = fmt.Sprintf("%x-%d", md5.Sum(sums), len(parts))
	}
	return v
}

// AbortUpload implements object.Uploads.
func (s *Store) AbortUpload(ctx context.Context, bucket, key, id string) error {
	const op = "abort upload"
	if err := s.enter(ctx, op, bucket); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, _, err := s.upload(op, bucket, key, id)
	if err != nil {
		return err
	}
	delete(b.uploads, id)
	return nil
}

// ListUploads implements object.Uploads. ListUploads computes the whole listing and cuts the page out of it.
func (s *Store) ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error) {
	const op = "list uploads"
	if err := s.enter(ctx, op, l.Bucket); err != nil {
		return object.UploadPage{}, err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, l.Bucket)
	if err != nil {
		return object.UploadPage{}, err
	}
	ups := slices.SortedFunc(maps.Values(b.uploads), func(x, y *upload) int {
		return cmp.Or(strings.Compare(x.info.Key, y.info.Key), strings.Compare(x.info.ID, y.info.ID))
	})
	type line struct {
		prefix string
		up     object.Upload
	}
	var all []line
	for _, u := range ups {
		i := u.info
		i.Attributes = maps.Clone(i.Attributes)
		if !strings.HasPrefix(i.Key, l.Prefix) || i.Key < l.AfterKey || i.Key == l.AfterKey &&
			(l.AfterID == "" || i.ID <= l.AfterID) {
			continue
		}
		p, grouped := group(i.Key, l.Prefix, l.Delimiter)
		if !grouped {
			all = append(all, line{up: i})
		} else if p != l.AfterKey && (len(all) == 0 || all[len(all)-1].prefix != p) {
			all = append(all, line{prefix: p})
		}
	}
	var page object.UploadPage
	if n := limitOf(l.Limit); len(all) > n {
		all = all[:n]
		page.Truncated = true
		last := all[n-1]
		page.NextKey, page.NextID = cmp.Or(last.prefix, last.up.Key), last.up.ID
	}
	for _, e := range all {
		if e.prefix != "" {
			page.Prefixes = append(page.Prefixes, e.prefix)
		} else {
			page.Uploads = append(page.Uploads, e.up)
		}
	}
	return page, nil
}
