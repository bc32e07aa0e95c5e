// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 names it
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// completeDocument is the content of a completion.
type completeDocument struct {
	XMLName xml.Name       `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
	Parts   []completePart `xml:"Part"`
}

type completePart struct {
	PartNumber int
	ETag       string
	sumFields
}

// CompleteUpload implements object.Uploads. The parts of the upstream are compared with the request and shown to Finish
// before the completion is sent.
func (t *Through) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	const op = "complete upload of"
	if err := t.check(op, c.Bucket, c.Key); err != nil {
		return object.Info{}, err
	}
	name := t.b.label(c.Key)
	u, err := t.upload(ctx, c.Key, c.Upload)
	if err != nil {
		return object.Info{}, err
	}
	if err := c.CheckOrder(op); err != nil {
		return object.Info{}, err
	}
	parts, size, err := t.chosen(ctx, &c)
	if err != nil {
		return object.Info{}, err
	}
	attrs, err := object.FinishAttributes(op, c.Key, u.attributes, c.Finish, object.CloneParts(parts))
	if err != nil {
		return object.Info{}, err
	}
	if _, err := t.judge(ctx, op, c.Judge); err != nil {
		return object.Info{}, err
	}
	h := http.Header{"Content-Type": {"application/xml"}}
	if err := t.b.condition(ctx, op, name, h, c.Condition, completeGuards); err != nil {
		return object.Info{}, err
	}
	whole, summed := t.b.joined(parts, &u)
	doc := completeDocument{}
	for i := range parts {
		p := completePart{PartNumber: parts[i].Number, ETag: `"` + parts[i].ETag + `"`}
		if f := p.of(u.algorithm); f != nil && u.upstream {
			if *f = parts[i].Attributes[object.AttrSum]; u.algorithm == "CRC64NVME" {
				*f = sumText(parts[i].CRC64)
			}
		}
		doc.Parts = append(doc.Parts, p)
	}
	if u.upstream && u.kind == fullObject {
		value := attrs[object.AttrSum]
		if u.algorithm == "CRC64NVME" {
			value = sumText(whole)
		}
		if value != "" {
			h.Set(sumHeader+u.algorithm, value)
			h.Set("X-Amz-Checksum-Type", fullObject)
		}
	}
	text, err := xml.Marshal(doc)
	if err != nil {
		return object.Info{}, errs.New(errs.Invalid, op, name, err.Error())
	}
	q := &call{op: op, of: ofUpload, assembles: true, Request: s3.Request{Method: http.MethodPost, Bucket: t.b.o.Bucket,
		Key: t.b.path(c.Key), Query: url.Values{"uploadId": {c.Upload}}, Text: text, Header: h}}
	var x struct {
		ETag string
		sumFields
	}
	got, err := t.b.readHeaders(ctx, q, name, "CompleteMultipartUploadResult", &x)
	if err != nil {
		return object.Info{}, err
	}
	i := object.Info{Bucket: t.name, Key: c.Key, Version: version(got), Latest: true, Size: size, ETag: unquote(x.ETag),
		CRC64: whole, NoCRC64: !summed, Modified: dateOf(got, t.b.now), Parts: parts, Attributes: attrs}
	if i.ETag == "" {
		// Ceph 16 leaves the ETag of the reply empty.
		if i.ETag, err = t.completed(ctx, c.Key, got.Get("x-amz-version-id"), parts, size); err != nil {
			return object.Info{}, uncertain(op, name, err)
		}
	}
	switch {
	case summed && u.kind == fullObject && u.algorithm == "CRC64NVME" && x.ChecksumCRC64NVME != "" &&
		x.ChecksumCRC64NVME != sumText(whole):
		return object.Info{}, uncertain(op, name, nonsense(op, name, fmt.Sprintf("the object has the CRC-64/NVME %.32q, "+
			"expected %q", x.ChecksumCRC64NVME, sumText(whole))))
	}
	t.b.uploads.complete(c.Key, c.Upload, i.ETag, attrs)
	if !u.upstream {
		unsummed(&i)
		i.NoCRC64 = !summed || x.ChecksumCRC64NVME == ""
	}
	return i, nil
}

// completed returns the ETag of an object that was just made of parts: the one that S3 defines for these parts. If the
// reply named a version, that version must have the ETag. Otherwise another write may have replaced the object already.
func (t *Through) completed(ctx context.Context, key, version string, parts []object.PartInfo,
	size int64) (string, error) {
	const op = "complete upload of"
	sum := md5.New() //nolint:gosec // S3 names it
	for i := range parts {
		raw, err := hex.DecodeString(parts[i].ETag)
		if err != nil || len(raw) != md5.Size {
			return "", nonsense(op, t.b.label(key), "the reply names no ETag")
		}
		sum.Write(raw)
	}
	want := fmt.Sprintf("%x-%d", sum.Sum(nil), len(parts))
	if version == "" {
		return want, nil
	}
	a, err := t.b.Stat(ctx, key, version, "")
	if err != nil {
		return "", err
	}
	if a.Identity.ETag != want || a.Identity.Size != size {
		return "", nonsense(op, t.b.label(key), fmt.Sprintf("the reply names no ETag, and the object has the ETag %.64q "+
			"instead of %q", a.Identity.ETag, want))
	}
	return want, nil
}

// chosen returns the parts that a completion names, as the upstream has them.
func (t *Through) chosen(ctx context.Context, c *object.Complete) ([]object.PartInfo, int64, error) {
	const op = "complete upload of"
	name := t.b.label(c.Key)
	have := map[int]object.PartInfo{}
	for after, more := 0, true; more; {
		var page []object.PartInfo
		var err error
		if page, more, err = t.ListParts(ctx, c.Bucket, c.Key, c.Upload, after, 1000); err != nil {
			return nil, 0, err
		}
		for i := range page {
			have[page[i].Number] = page[i]
			after = page[i].Number
		}
	}
	var parts []object.PartInfo
	var size int64
	for i, want := range c.Parts {
		p, ok := have[want.Number]
		switch {
		case !ok:
			return nil, 0, object.Fail(op, name, object.ErrInvalidPart, fmt.Sprintf("part %d was not uploaded", want.Number))
		case want.ETag != "" && want.ETag != p.ETag:
			return nil, 0, object.Fail(op, name, object.ErrInvalidPart, fmt.Sprintf("part %d has the ETag %q, expected %q",
				want.Number, p.ETag, want.ETag))
		case i < len(c.Parts)-1 && p.Size < c.MinPart:
			return nil, 0, object.Fail(op, name, object.ErrPartTooSmall, fmt.Sprintf("part %d has %d bytes, expected %d",
				want.Number, p.Size, c.MinPart))
		}
		parts = append(parts, p)
		size += p.Size
	}
	return parts, size, nil
}

// joined returns the CRC-64/NVME of parts together, and whether it is known.
func (b *Bucket) joined(parts []object.PartInfo, u *upload) (sum uint64, ok bool) {
	for i := range parts {
		p := &parts[i]
		if p.CRC64 == 0 && p.Size > 0 {
			return 0, false // a part that was not sent by this server, and has no checksum
		}
		sum = b.join.After(sum, p.Size) ^ p.CRC64
	}
	return sum, true
}

// Sizes of the parts of content that is too large or has no known length.
const (
	partSize     = 16 << 20
	largePart    = 64 << 20
	largeParts   = 1000 // parts of partSize, before parts of largePart follow
	abortTimeout = 10 * time.Second
)

// spooled reads content of unknown length into memory.
func spooled(op, name string, r io.Reader) (*bytes.Reader, error) {
	data, err := io.ReadAll(io.LimitReader(r, largePart+1))
	if err != nil {
		return nil, err
	}
	if len(data) > largePart {
		return nil, object.Fail(op, name, object.ErrTooLarge, fmt.Sprintf("a part of unknown length has more than %d bytes",
			largePart))
	}
	return bytes.NewReader(data), nil
}

// putParts writes an object as a multipart upload. The content passes through a buffer of one part.
func (t *Through) putParts(ctx context.Context, p object.Put) (info object.Info, err error) {
	const op = "put"
	name := t.b.label(p.Key)
	// The condition is checked before anything is sent, whether the upstream can check it at the end.
	if err := t.b.condition(ctx, op, name, http.Header{}, p.Condition, completeGuards); err != nil {
		return object.Info{}, err
	}
	judged, err := t.judge(ctx, op, p.Judge)
	if err != nil {
		return object.Info{}, err
	}
	attrs := object.MergeAttributes(p.Attributes, judged)
	id, err := t.CreateUpload(ctx, p.Bucket, p.Key, attrs)
	if err != nil {
		return object.Info{}, err
	}
	defer func() {
		if err != nil {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
			defer cancel()
			_ = t.AbortUpload(late, p.Bucket, p.Key, id)
		}
	}()
	all := &held{src: p.Body, join: t.b.join}
	if p.MD5 {
		all.md5 = md5.New() //nolint:gosec // S3 names it
	}
	c := object.Complete{Bucket: p.Bucket, Key: p.Key, Upload: id, Condition: p.Condition}
	buf := make([]byte, partSize)
	for n := 1; ; n++ {
		if n == largeParts {
			buf = make([]byte, largePart)
		}
		got, rerr := io.ReadFull(p.Body, buf)
		ended := rerr == io.ErrUnexpectedEOF || rerr == io.EOF
		if rerr != nil && !ended {
			return object.Info{}, rerr
		}
		all.add(buf[:got])
		if got > 0 || n == 1 {
			part, err := t.PutPart(ctx, object.PutPart{Bucket: p.Bucket, Key: p.Key, Upload: id, Number: n, Size: int64(got),
				Body: bytes.NewReader(buf[:got])})
			if err != nil {
				return object.Info{}, err
			}
			c.Parts = append(c.Parts, object.CompletedPart{Number: n, ETag: part.ETag})
		}
		if ended {
			break
		}
	}
	w := all.written()
	if p.Size >= 0 && w.Size != p.Size {
		return object.Info{}, object.Fail(op, name, object.ErrIncompleteBody, fmt.Sprintf("%d bytes, expected %d", w.Size,
			p.Size))
	}
	var more map[string]string
	if p.Finish != nil {
		if more, err = p.Finish(w); err != nil {
			return object.Info{}, err
		}
	}
	info, err = t.CompleteUpload(ctx, c)
	if err != nil {
		return object.Info{}, err
	}
	if info.Size != w.Size {
		return object.Info{}, uncertain(op, name, nonsense(op, name, fmt.Sprintf("the object has %d bytes, %d were sent",
			info.Size, w.Size)))
	}
	info.CRC64 = w.CRC64
	maps.Copy(info.Attributes, more)
	if info.NoCRC64 {
		unsummed(&info)
	}
	return info, nil
}
