// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

func newReader(p []byte) io.Reader { return bytes.NewReader(p) }

// uploads probes multipart uploads: conditions of the completion, and a CRC-64/NVME of the whole content.
func (p *prober) uploads() {
	key := p.key + "-upload"
	p.put(key, nil, probeText)
	there := p.shoot(http.MethodHead, key, nil, nil, nil)
	etag := unquote(there.header.Get("ETag"))
	s, _ := p.multipart(key, false, http.Header{"If-None-Match": {"*"}})
	p.note(CompleteIfNoneMatch, s == http.StatusPreconditionFailed, "answered %d for an object that exists", s)
	tag := func(t string) string {
		if p.found[BareIfMatch].Proven {
			return t
		}
		return `"` + t + `"`
	}
	wrong, _ := p.multipart(key, false, http.Header{"If-Match": {tag(unquote(wrongTag))}})
	right := 0
	if wrong == http.StatusPreconditionFailed {
		right, _ = p.multipart(key, false, http.Header{"If-Match": {tag(etag)}})
	}
	p.note(CompleteIfMatch, right == http.StatusOK, "answered %d to a wrong If-Match and %d to the right one", wrong,
		right)
	status, sum := p.multipart(key+"-sum", true, nil)
	p.note(UploadCRC64, status == http.StatusOK && sum == sumText(checksum.Of(probeText)),
		"answered %d, and has the checksum %q", status, sum)
}

// multipart writes a scratch object of one part. It returns the status of the completion and the checksum of the
// object.
func (p *prober) multipart(key string, summed bool, conditions http.Header) (status int, sum string) {
	p.dirt = append(p.dirt, key)
	name, value := sumHeader+"CRC64NVME", sumText(checksum.Of(probeText))
	begin, part := http.Header{}, http.Header{}
	if summed {
		begin.Set("X-Amz-Checksum-Algorithm", "CRC64NVME")
		begin.Set("X-Amz-Checksum-Type", fullObject)
		part.Set(name, value)
	}
	s := p.shoot(http.MethodPost, key, url.Values{"uploads": {""}}, begin, nil)
	var up struct {
		UploadID string `xml:"UploadId"`
	}
	if s.status != http.StatusOK || decode(s.body, "InitiateMultipartUploadResult", &up) != nil || up.UploadID == "" {
		return s.status, ""
	}
	s = p.shoot(http.MethodPut, key, partQuery(up.UploadID, 1), part, probeText)
	doc := completeDocument{Parts: []completePart{{PartNumber: 1, ETag: s.header.Get("ETag")}}}
	if conditions == nil {
		conditions = http.Header{}
	}
	if summed {
		doc.Parts[0].ChecksumCRC64NVME = value
		conditions.Set(name, value)
		conditions.Set("X-Amz-Checksum-Type", fullObject)
	}
	text, err := xml.Marshal(doc)
	if err != nil {
		return 0, ""
	}
	done := p.shoot(http.MethodPost, key, url.Values{"uploadId": {up.UploadID}}, conditions, text)
	var x struct {
		ETag string
	}
	if done.status != http.StatusOK || decode(done.body, "CompleteMultipartUploadResult", &x) != nil {
		p.shoot(http.MethodDelete, key, url.Values{"uploadId": {up.UploadID}}, nil, nil)
		if done.status == http.StatusOK {
			if f, ok := s3.FaultIn(done.body); ok {
				return f.Status, ""
			}
			return 0, ""
		}
		return done.status, ""
	}
	head := p.shoot(http.MethodHead, key, nil, http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}, nil)
	if head.header.Get("X-Amz-Checksum-Type") != fullObject {
		return done.status, ""
	}
	return done.status, head.header.Get(name)
}
