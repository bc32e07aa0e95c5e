// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// SentPart is one part of an upload that the server has.
type SentPart struct {
	Number int
	Size   int64
	ETag   string // without its quotes
	// CRC64 is the CRC-64/NVME of the part; valid if HasCRC64 is set.
	CRC64    uint64
	HasCRC64 bool
}

// ID returns the upload ID, and whether the server checks the content of parts. The ID is empty before Begin.
func (u *Upload) ID() (id string, sums bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.id, u.sums
}

// Resume makes the Upload continue a multipart upload that an earlier process began, in place of Begin. The parameters
// are what ID returned to the earlier process.
func (u *Upload) Resume(id string, sums bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.id, u.sums = id, sums
}

// Adopt records a part that an earlier process sent, so that Complete names it. The parameter sum is the CRC-64/NVME
// of the part's content, which the caller has compared with the server's part.
func (u *Upload) Adopt(p SentPart, sum uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[p.Number] = sentPart{etag: `"` + p.ETag + `"`, sum: sum, size: p.Size}
}

// mostParts is the largest number of parts that S3 allows.
const mostParts = 10_000

// Sent lists the parts of the upload that the server has, by part number. Sent fails with kind NotFound if the server
// does not know the upload any more.
func (u *Upload) Sent(ctx context.Context) ([]SentPart, error) {
	id, _ := u.ID()
	var all []SentPart
	for after := 0; ; {
		q := &call{op: "list parts of", method: http.MethodGet, bucket: u.put.Bucket, key: u.put.Key, traffic: &u.traffic,
			query: url.Values{"uploadId": {id}, "part-number-marker": {strconv.Itoa(after)}}}
		body, _, err := u.c.text(ctx, q, mostList)
		if err != nil {
			return nil, err
		}
		parts, next, err := parseParts(body)
		if err != nil {
			return nil, errs.Wrap(q.op, q.name(), err)
		}
		if all = append(all, parts...); next == 0 {
			return all, nil
		}
		if next <= after || len(all) > mostParts {
			return nil, errs.New(errs.Corrupt, q.op, q.name(), "the listing of parts does not end")
		}
		after = next
	}
}

// parseParts reads a reply to ListParts. The result next is the marker of the next page, or 0 on the last page.
func parseParts(body []byte) (parts []SentPart, next int, err error) {
	var x struct {
		XMLName xml.Name `xml:"ListPartsResult"`
		More    bool     `xml:"IsTruncated"`
		Next    int      `xml:"NextPartNumberMarker"`
		Parts   []struct {
			Number int    `xml:"PartNumber"`
			Size   int64  `xml:"Size"`
			ETag   string `xml:"ETag"`
			CRC64  string `xml:"ChecksumCRC64NVME"`
		} `xml:"Part"`
	}
	bad := func(msg string) ([]SentPart, int, error) {
		return nil, 0, errs.New(errs.Corrupt, "read listing of parts", "",
			msg).WithFix("check that the endpoint is one of S3")
	}
	if err := xml.Unmarshal(body, &x); err != nil {
		return bad("the reply is no listing of parts: " + clip(err.Error()))
	}
	if len(x.Parts) > mostParts {
		return bad(fmt.Sprintf("the reply has %d parts, expected at most %d", len(x.Parts), mostParts))
	}
	for _, p := range x.Parts {
		tag := unquote(p.ETag)
		if p.Number < 1 || p.Number > mostParts || p.Size < 0 || tag == "" || len(tag) > 1024 {
			return bad(fmt.Sprintf("the reply lists part %d with %d bytes and ETag %q", p.Number, p.Size, clip(p.ETag)))
		}
		s := SentPart{Number: p.Number, Size: p.Size, ETag: tag}
		s.CRC64, s.HasCRC64 = parseSum(p.CRC64)
		parts = append(parts, s)
	}
	if x.More {
		if x.Next < 1 {
			return bad("the reply says that more follows and not how to ask for it")
		}
		next = x.Next
	}
	return parts, next, nil
}
