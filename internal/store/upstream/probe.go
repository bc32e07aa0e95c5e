// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// ProbePrefix begins the keys of the scratch objects of Probe, below the prefix of the bucket.
const ProbePrefix = ".nebulaio-probe-"

// Probe finds out which abilities the upstream has, with scratch objects below ProbePrefix that it deletes afterwards.
// Probe takes about 40 small requests. Probe fails, and keeps the old record, if the upstream is unavailable or does
// not let this server write. Probe also fails if the bucket locks every new object, because the scratch objects could
// not be deleted. Calls of Probe at the same time wait for one another.
func (b *Bucket) Probe(ctx context.Context) error {
	select {
	case b.probing <- struct{}{}:
		defer func() { <-b.probing }()
	case <-ctx.Done():
		return cancelled(ctx, "probe", b.origin)
	}
	return b.probe(ctx)
}

// probe does the work of Probe.
func (b *Bucket) probe(ctx context.Context) error {
	p := &prober{b: b, ctx: ctx, found: map[Ability]Finding{}, key: b.path(ProbePrefix + rand.Text())}
	err := p.retained()
	if err == nil {
		err = p.run()
		p.clean()
	}
	if err != nil {
		b.unprobed.Store(b.now().UnixNano())
		return errs.Wrap("probe", b.origin, err)
	}
	next := Capabilities{Probed: b.now().UTC(), Findings: p.found}
	b.caps.Store(&next)
	if b.o.Learned != nil {
		b.o.Learned(next)
	}
	return nil
}

// prober asks one upstream after the other ability.
type prober struct {
	b     *Bucket
	ctx   context.Context
	key   string
	found map[Ability]Finding
	dirt  []string // keys to delete
	err   error    // the upstream became unavailable
}

// retained fails if the bucket locks every new object for some time.
func (p *prober) retained() error {
	s := p.shoot(http.MethodGet, "", url.Values{"object-lock": {""}}, nil, nil)
	var x struct {
		Rule *struct{ DefaultRetention struct{ Mode string } }
	}
	if p.err != nil || s.status != http.StatusOK || decode(s.body, "ObjectLockConfiguration", &x) != nil ||
		x.Rule == nil ||
		x.Rule.DefaultRetention.Mode == "" {
		return p.err
	}
	return cannot("probe", p.b.origin, "The bucket locks every new object, so that a scratch object could not be deleted.")
}

// shot is the result of one request of a probe.
type shot struct {
	status int
	code   string
	header http.Header
	body   []byte
}

// shoot sends a request. An error reply is a result.
func (p *prober) shoot(method, key string, query url.Values, h http.Header, content []byte) shot {
	if p.err != nil {
		return shot{}
	}
	q := &call{op: "probe", raw: true, change: true, Request: s3.Request{Method: method, Bucket: p.b.o.Bucket, Key: key,
		Query: query, Header: h, Text: content}}
	r, err := p.b.send(p.ctx, q)
	if f := faultOf(err); f != nil {
		return shot{status: f.Status, code: f.Code}
	}
	if err != nil {
		p.err = err
		return shot{}
	}
	s := shot{status: r.StatusCode, header: r.Header}
	if s.body, err = r.text(mostReply); err != nil {
		p.err = unavailable("probe", p.b.origin, explain(err))
	}
	return s
}

// put writes a scratch object.
func (p *prober) put(key string, h http.Header, content []byte) shot {
	p.dirt = append(p.dirt, key)
	return p.shoot(http.MethodPut, key, nil, h, content)
}

// note records a finding. The text says what the upstream did if it lacks the ability.
func (p *prober) note(a Ability, proven bool, format string, args ...any) {
	if p.err != nil {
		return
	}
	f := Finding{Proven: proven}
	if !proven {
		f.Detail = fmt.Sprintf(format, args...)
	}
	p.found[a] = f
}

var probeText = []byte("nebulaio probes what this server can do")

const wrongTag = `"00000000000000000000000000000000"`

// run asks after every ability.
func (p *prober) run() error {
	first := p.put(p.key, nil, probeText)
	if p.err != nil {
		return p.err
	}
	etag := unquote(first.header.Get("ETag"))
	if first.status/100 != 2 || etag == "" {
		return refused("probe", p.b.origin, &s3.Fault{Status: max(first.status, 400), Code: first.code,
			Message: "a scratch object cannot be written"}, ofBucket)
	}
	p.reads(etag)
	p.writes(etag)
	p.copies(etag)
	p.sums()
	p.uploads()
	p.rest()
	p.deletes()
	return p.err
}

// reads probes conditions and parts of reads.
func (p *prober) reads(etag string) {
	s := p.shoot(http.MethodGet, p.key, nil, http.Header{"If-Match": {wrongTag}, "Range": {"bytes=0-3"}}, nil)
	p.note(RangeIfMatch, s.status == http.StatusPreconditionFailed, "answered %d to a wrong If-Match", s.status)
	s = p.shoot(http.MethodHead, p.key, nil, http.Header{"If-None-Match": {`"` + etag + `"`}}, nil)
	p.note(NotModified, s.status == http.StatusNotModified, "answered %d instead of 304", s.status)
	s = p.shoot(http.MethodHead, p.key, url.Values{"partNumber": {"2"}}, nil, nil)
	p.note(PartNumber, s.status == http.StatusRequestedRangeNotSatisfiable || s.status == http.StatusBadRequest,
		"answered %d for a part that does not exist", s.status)
	s = p.shoot(http.MethodGet, p.key, url.Values{"attributes": {""}},
		http.Header{"X-Amz-Object-Attributes": {"ObjectSize"}}, nil)
	var x struct{ ObjectSize int64 }
	p.note(ObjectAttributes, s.status == http.StatusOK && decode(s.body, "GetObjectAttributesResponse", &x) == nil &&
		x.ObjectSize == int64(len(probeText)), "answered %d %s", s.status, s.code)
}

// writes probes conditions of PUT.
func (p *prober) writes(etag string) {
	s := p.put(p.key, http.Header{"If-None-Match": {"*"}}, []byte("x"))
	fresh := p.put(p.key+"-new", http.Header{"If-None-Match": {"*"}}, probeText)
	p.note(PutIfNoneMatch, s.status == http.StatusPreconditionFailed && fresh.status == http.StatusOK,
		"answered %d for an object that exists and %d for one that does not", s.status, fresh.status)
	s = p.put(p.key, nil, probeText) // the state before, whatever happened
	if tag := unquote(s.header.Get("ETag")); tag != "" {
		etag = tag
	}
	try := func(right, wrong string) (int, int) {
		w := p.put(p.key, http.Header{"If-Match": {wrong}}, probeText)
		r := p.put(p.key, http.Header{"If-Match": {right}}, probeText)
		return r.status, w.status
	}
	good := func(right, wrong int) bool { return right == http.StatusOK && wrong == http.StatusPreconditionFailed }
	right, wrong := try(`"`+etag+`"`, wrongTag)
	if good(right, wrong) {
		p.note(PutIfMatch, true, "")
		p.note(BareIfMatch, false, "takes quotes")
		return
	}
	bareRight, bareWrong := try(etag, unquote(wrongTag))
	bare := good(bareRight, bareWrong)
	p.note(BareIfMatch, bare, "answered %d to the right ETag without quotes", bareRight)
	p.note(PutIfMatch, bare, "answered %d to the right ETag and %d to a wrong one", right, wrong)
}

// copies probes conditions of copies.
func (p *prober) copies(string) {
	source := "/" + p.b.o.Bucket + "/" + s3.EscapePath(p.key)
	p.put(p.key, nil, probeText)
	s := p.put(p.key+"-copy", http.Header{"X-Amz-Copy-Source": {source}, "X-Amz-Copy-Source-If-Match": {wrongTag}}, nil)
	p.note(CopySourceIfMatch, s.status == http.StatusPreconditionFailed, "answered %d to a wrong source", s.status)
	s = p.put(p.key+"-copy", http.Header{"X-Amz-Copy-Source": {source}}, nil)
	again := p.put(p.key+"-copy", http.Header{"X-Amz-Copy-Source": {source}, "If-None-Match": {"*"}}, nil)
	p.note(CopyIfNoneMatch, s.status == http.StatusOK && again.status == http.StatusPreconditionFailed,
		"answered %d for a target that exists", again.status)
}

// sums probes checksums of single requests.
func (p *prober) sums() {
	key, sum := p.key+"-sum", checksum.Of(probeText)
	name := sumHeader + "CRC64NVME"
	wrong := p.put(key, http.Header{name: {sumText(sum + 1)}}, probeText)
	s := p.put(key, http.Header{name: {sumText(sum)}}, probeText)
	head := p.shoot(http.MethodHead, key, nil, http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}, nil)
	p.note(Checksums, wrong.status == http.StatusBadRequest && s.status == http.StatusOK &&
		head.header.Get(name) == sumText(sum), "answered %d to a wrong checksum, and has %q", wrong.status,
		head.header.Get(name))
	p.note(ChecksumType, head.header.Get("X-Amz-Checksum-Type") == fullObject, "has the type %q",
		head.header.Get("X-Amz-Checksum-Type"))
	bad := p.trailer(key+"-trailer", sum+1)
	if p.err == nil && bad.status == http.StatusOK {
		p.note(TrailerCRC64, false, "took a wrong checksum")
		return
	}
	s = p.trailer(key+"-trailer", sum)
	got := p.shoot(http.MethodGet, key+"-trailer", nil, http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}, nil)
	p.note(TrailerCRC64, s.status == http.StatusOK && string(got.body) == string(probeText) &&
		got.header.Get(name) == sumText(sum), "answered %d, and has %d bytes of %d", s.status, len(got.body), len(probeText))
}

// trailer writes a scratch object in the format aws-chunked.
func (p *prober) trailer(key string, sum uint64) shot {
	if p.err != nil {
		return shot{}
	}
	p.dirt = append(p.dirt, key)
	w := &write{b: p.b, op: "probe", size: int64(len(probeText)), header: http.Header{}, algorithm: "CRC64NVME",
		forced: sumText(sum)}
	w.body, w.path = newReader(probeText), key
	h, err := w.send(p.ctx)
	switch r := refusalOf(err); {
	case err == nil:
		return shot{status: http.StatusOK, header: h}
	case r != nil && !errors.Is(err, ErrUnavailable):
		return shot{status: r.Status, code: r.Code}
	case errors.Is(err, ErrUnavailable):
		// A server that does not know the format may wait for more, or break off: it lacks the ability.
		return shot{status: http.StatusNotImplemented}
	}
	return shot{status: http.StatusBadRequest}
}

// rest probes tags, versions and lists.
func (p *prober) rest() {
	s := p.put(p.key+"-tags", http.Header{"X-Amz-Tagging": {"a=b"}}, probeText)
	got := p.shoot(http.MethodGet, p.key+"-tags", url.Values{"tagging": {""}}, nil, nil)
	var x struct {
		Tags []tag `xml:"TagSet>Tag"`
	}
	p.note(Tagging, s.status == http.StatusOK && decode(got.body, "Tagging", &x) == nil && len(x.Tags) == 1 &&
		x.Tags[0] == tag{"a", "b"}, "answered %d to tags, and has %d of them", s.status, len(x.Tags))
	head := p.shoot(http.MethodHead, p.key+"-tags", nil, nil, nil)
	p.note(TagCount, head.header.Get("X-Amz-Tagging-Count") == "1", "says %q", head.header.Get("X-Amz-Tagging-Count"))

	s = p.shoot(http.MethodGet, "", url.Values{"versioning": {""}}, nil, nil)
	var v struct{ Status string }
	p.note(Versioning, s.status == http.StatusOK && decode(s.body, "VersioningConfiguration", &v) == nil, "answered %d %s",
		s.status, s.code)

	s = p.shoot(http.MethodGet, "", url.Values{"list-type": {"2"}, "prefix": {p.key}, "start-after": {p.key},
		"max-keys": {"1"}}, nil, nil)
	var l struct {
		NextContinuationToken string
		Contents              []struct{ Key string }
	}
	err := decode(s.body, "ListBucketResult", &l)
	p.note(ListV2, s.status == http.StatusOK && err == nil && l.NextContinuationToken != "" && len(l.Contents) == 1 &&
		l.Contents[0].Key > p.key, "answered %d with %d keys", s.status, len(l.Contents))
}

// deletes probes conditions of DELETE.
func (p *prober) deletes() {
	key := p.key + "-delete"
	p.put(key, nil, probeText)
	s := p.shoot(http.MethodDelete, key, nil, http.Header{"If-Match": {wrongTag}}, nil)
	head := p.shoot(http.MethodHead, key, nil, nil, nil)
	p.note(DeleteIfMatch, s.status == http.StatusPreconditionFailed && head.status == http.StatusOK,
		"answered %d to a wrong If-Match", s.status)
}

// clean removes the scratch objects, even if the context has ended.
func (p *prober) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), abortTimeout)
	defer cancel()
	p.ctx, p.err = ctx, nil
	done := map[string]bool{}
	for _, key := range p.dirt {
		if !done[key] && p.err == nil {
			done[key] = true
			p.shoot(http.MethodDelete, key, nil, nil, nil)
		}
	}
	p.cleanVersions()
}

// mostScratch is more than the number of versions that a probe can leave.
const mostScratch = 200

// cleanVersions removes the versions and delete markers of the scratch objects in a bucket with versioning.
func (p *prober) cleanVersions() {
	l := &object.List{Prefix: strings.TrimPrefix(p.key, p.b.o.Prefix)}
	found, _, _, err := p.b.versionsPage(p.ctx, l, cursor{}, mostScratch)
	if err != nil {
		return // no versioning: nothing is left
	}
	for i := range found {
		if !found[i].group && p.err == nil {
			p.shoot(http.MethodDelete, p.b.path(found[i].key), url.Values{"versionId": {found[i].info.Version}}, nil, nil)
		}
	}
}

// refusalOf returns the refusal in err, or nil.
func refusalOf(err error) *object.Refusal {
	var r *object.Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
