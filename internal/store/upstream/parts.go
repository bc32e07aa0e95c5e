// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// mostKnownParts limits the objects whose parts are remembered.
const mostKnownParts = 1024

// partMemory remembers the parts of multipart objects. The parts of one content never change.
type partMemory struct {
	mu sync.Mutex
	of map[[sha256.Size]byte][]object.PartInfo
}

func (m *partMemory) get(id object.Identity) ([]object.PartInfo, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.of[id.Hash()]
	return object.CloneParts(p), ok
}

func (m *partMemory) put(id object.Identity, parts []object.PartInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= mostKnownParts {
		m.of = map[[sha256.Size]byte][]object.PartInfo{}
	}
	m.of[id.Hash()] = object.CloneParts(parts)
}

// Parts returns the parts of a multipart object in order, or nil if the upstream does not tell them. The parts of one
// content are asked for once, and only if the upstream is proven to answer GetObjectAttributes.
func (b *Bucket) Parts(ctx context.Context, a About) ([]object.PartInfo, error) {
	if a.Parts == 0 || !b.Capabilities().Has(ObjectAttributes) {
		return nil, nil
	}
	if parts, ok := b.known.get(a.Identity); ok {
		return parts, nil
	}
	var parts []object.PartInfo
	var size int64
	for after, more := 0, true; more; {
		query := versioned(a.Identity.Version)
		query.Set("attributes", "")
		q := &call{op: "read parts of", of: about(a.Identity.Version), Request: s3.Request{Method: http.MethodGet,
			Bucket: b.o.Bucket, Key: b.path(a.Identity.Key), Query: query, Header: http.Header{
				"X-Amz-Object-Attributes": {"ETag,ObjectParts"}, "X-Amz-Max-Parts": {"1000"},
				"X-Amz-Part-Number-Marker": {strconv.Itoa(after)}}}}
		var x struct {
			ETag        string
			ObjectParts struct {
				IsTruncated bool
				Part        []partEntry
			}
		}
		if err := b.read(ctx, q, b.label(a.Identity.Key), "GetObjectAttributesResponse", &x); err != nil {
			return nil, err
		}
		if unquote(x.ETag) != a.Identity.ETag {
			return nil, changed(b.label(a.Identity.Key), "the parts are those of the ETag "+unquote(x.ETag))
		}
		for i := range x.ObjectParts.Part {
			e := &x.ObjectParts.Part[i]
			if e.PartNumber <= after || e.PartNumber > object.MaxParts || e.Size < 0 {
				return nil, nil // the upstream tells nonsense about parts, which nobody needs
			}
			after = e.PartNumber
			p := object.PartInfo{Number: e.PartNumber, Size: e.Size, Modified: a.Modified}
			fillSum(&p, a.Attributes[object.AttrSumAlgo], &e.sumFields)
			parts = append(parts, p)
			size += e.Size
		}
		more = x.ObjectParts.IsTruncated && len(x.ObjectParts.Part) > 0
	}
	if size != a.Identity.Size {
		parts = nil // Amazon tells parts only if they have checksums
	}
	b.known.put(a.Identity, parts)
	return object.CloneParts(parts), nil
}

// partOf returns the place of one part of a multipart object, by a HEAD of the part. An upstream that is known to
// ignore part numbers answers with the whole object, and so does partOf.
func partOf(ctx context.Context, b *Bucket, a About, number int) (*object.PartRange, error) {
	const op = "look at part of"
	name := b.label(a.Identity.Key)
	if !b.proven(ctx, PartNumber) {
		if b.Capabilities().Lacks(PartNumber) {
			return &object.PartRange{Range: object.Range{N: a.Identity.Size}}, nil
		}
		return nil, cannot(op, name, "The upstream is not proven to know the parts of an object.")
	}
	query := versioned(a.Identity.Version)
	query.Set("partNumber", strconv.Itoa(number))
	r, err := b.send(ctx, &call{op: op, of: about(a.Identity.Version), Request: s3.Request{Method: http.MethodHead,
		Bucket: b.o.Bucket, Key: b.path(a.Identity.Key), Query: query}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if tag := unquote(r.Header.Get("ETag")); tag != a.Identity.ETag {
		return nil, changed(name, "the part is one of the ETag "+tag)
	}
	p := &object.PartRange{Count: partsOf(a.Identity.ETag, r.Header.Get("x-amz-mp-parts-count"))}
	off, n, size, ok := s3.ParseContentRange(r.Header.Get("Content-Range"))
	switch {
	case ok && size == a.Identity.Size:
		p.Range = object.Range{Off: off, N: n}
	case a.Parts == 1 && r.ContentLength == a.Identity.Size:
		p.Range = object.Range{N: a.Identity.Size}
	default:
		return nil, nonsense(op, name, "the reply names the range "+strconv.Quote(r.Header.Get("Content-Range")))
	}
	return p, nil
}

// stateAge is how long the versioning state of the bucket is believed.
const stateAge = time.Minute

// versioningState is the versioning state of the bucket at one time.
type versioningState struct {
	is object.Versioning
	at time.Time
}

// named returns the version for a request. In a bucket without versions, the null version is the object itself, and an
// upstream may refuse its name.
func (b *Bucket) named(ctx context.Context, version string) string {
	if version != object.NullVersion {
		return version
	}
	s := b.state.Load()
	if s == nil || b.now().Sub(s.at) > stateAge {
		is, err := b.versioning(ctx)
		if err != nil {
			return version
		}
		s = &versioningState{is, b.now()}
		b.state.Store(s)
	}
	if s.is == object.VersioningOff {
		return ""
	}
	return version
}
