// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/console/inside"
)

// Sizes of uploads in parts.
const (
	firstPart = 16 << 20 // size of a part in bytes, unless the object is very large
	mostParts = 10_000
	mostSize  = 48 << 40 // 48 TiB, below 10,000 parts of 5 GiB
)

// uploadRow is one unfinished upload.
type uploadRow struct {
	Key     string    `json:"key"`
	Upload  string    `json:"upload"`
	Started time.Time `json:"started"`
}

// uploads answers GET buckets/{bucket}/uploads. With the parameter key, only the uploads of that key are listed.
func (c contentPage) uploads() (any, error) {
	query := url.Values{"uploads": {""}, "encoding-type": {"url"}, "max-uploads": {"1000"}}
	prefix, only := c.query("prefix"), c.query("key")
	if only != "" {
		prefix = only
	}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	var x struct {
		More    bool `xml:"IsTruncated"`
		Uploads []struct {
			Key     string    `xml:"Key"`
			ID      string    `xml:"UploadId"`
			Started time.Time `xml:"Initiated"`
		} `xml:"Upload"`
	}
	if _, err := c.s3(http.MethodGet, "", query, nil, &x); err != nil {
		return nil, err
	}
	out := struct {
		Uploads []uploadRow `json:"uploads"`
		More    bool        `json:"more"`
	}{[]uploadRow{}, x.More}
	for _, u := range x.Uploads {
		if key := decoded(u.Key); only == "" || key == only {
			out.Uploads = append(out.Uploads, uploadRow{key, u.ID, u.Started})
		}
	}
	return out, nil
}

// beginUpload answers POST buckets/{bucket}/uploads.
func (c contentPage) beginUpload() (any, error) {
	var in struct {
		Key      string            `json:"key"`
		Size     int64             `json:"size"`
		Type     string            `json:"type"`
		Metadata map[string]string `json:"metadata"`
		Checksum string            `json:"checksum"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Size < 0 || in.Size > mostSize {
		return nil, invalid(fmt.Sprintf("the size is %d; expected 0 to %d", in.Size, int64(mostSize)), "")
	}
	if in.Key == "" {
		return nil, invalid("the key is missing", "")
	}
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	if err := checkMetadata(in.Metadata); err != nil {
		return nil, err
	}
	r := request(http.MethodPost, c.name(), in.Key, url.Values{"uploads": {""}}, nil)
	describe(r.Header, in.Type, in.Metadata)
	switch in.Checksum {
	case "":
	case "crc32":
		r.Header.Set("X-Amz-Checksum-Algorithm", "CRC32")
	default:
		return nil, invalid("the checksum is "+quoted(in.Checksum)+"; expected crc32 or none", "")
	}
	var x struct {
		ID string `xml:"UploadId"`
	}
	if _, err := c.S3.XML(c.r.Context(), c.as(), r, &x); err != nil {
		return nil, err
	}
	size := partSize(in.Size)
	return made{map[string]any{"upload": x.ID, "part_size": size, "parts": max(1, (in.Size+size-1)/size)}}, nil
}

// partSize returns the size of the parts of an object, so that there are at most mostParts.
func partSize(size int64) int64 {
	const step = 1 << 20
	least := (size + mostParts - 1) / mostParts
	return max(firstPart, (least+step-1)/step*step)
}

// uploadQuery names an unfinished upload by the parameters key and upload.
func (c contentPage) uploadQuery() (key string, query url.Values, err error) {
	if key, err = c.key(); err != nil {
		return "", nil, err
	}
	id := c.query("upload")
	if id == "" || len(id) > 1024 {
		return "", nil, invalid("upload is "+quoted(id)+"; expected the identifier of an upload", "")
	}
	return key, url.Values{"uploadId": {id}}, nil
}

// putPart answers PUT buckets/{bucket}/part.
func (c contentPage) putPart() (any, error) {
	key, query, err := c.uploadQuery()
	if err != nil {
		return nil, err
	}
	number, err := c.number("number", 0, 1, mostParts)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return nil, invalid("number is missing; expected the number of the part", "")
	}
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	body, n, err := c.body(maxPart)
	if err != nil {
		return nil, err
	}
	query.Set("partNumber", strconv.FormatInt(number, 10))
	r := inside.Request{Method: http.MethodPut, Bucket: c.name(), Key: key, Query: query, Header: http.Header{},
		Body: body, Size: n}
	if err := c.checksum(r.Header); err != nil {
		return nil, err
	}
	h, err := c.S3.XML(c.r.Context(), c.as(), r, nil)
	if err != nil {
		return nil, err
	}
	return partRow{Number: int(number), Size: n, ETag: strings.Trim(h.Get("ETag"), `"`),
		CRC32: h.Get("X-Amz-Checksum-Crc32")}, nil
}

// partRow is one part of an upload.
type partRow struct {
	Number   int        `json:"number"`
	Size     int64      `json:"size"`
	ETag     string     `json:"etag"`
	CRC32    string     `json:"crc32,omitempty"`
	Modified *time.Time `json:"modified,omitempty"`
}

// parts answers GET buckets/{bucket}/parts with all parts of an upload.
func (c contentPage) parts() (any, error) {
	key, query, err := c.uploadQuery()
	if err != nil {
		return nil, err
	}
	all := []partRow{}
	query.Set("max-parts", "1000")
	for range mostParts/1000 + 1 {
		var x struct {
			More  bool   `xml:"IsTruncated"`
			Next  string `xml:"NextPartNumberMarker"`
			Parts []struct {
				Number   int       `xml:"PartNumber"`
				Size     int64     `xml:"Size"`
				ETag     string    `xml:"ETag"`
				CRC32    string    `xml:"ChecksumCRC32"`
				Modified time.Time `xml:"LastModified"`
			} `xml:"Part"`
		}
		if _, err := c.s3(http.MethodGet, key, query, nil, &x); err != nil {
			return nil, err
		}
		for _, p := range x.Parts {
			all = append(all, partRow{p.Number, p.Size, strings.Trim(p.ETag, `"`), p.CRC32, &p.Modified})
		}
		if !x.More {
			break
		}
		query.Set("part-number-marker", x.Next)
	}
	return map[string]any{"parts": all}, nil
}

// completeDocument lists the parts of an upload for S3.
type completeDocument struct {
	XMLName xml.Name       `xml:"CompleteMultipartUpload"`
	Parts   []completePart `xml:"Part"`
}

type completePart struct {
	Number int    `xml:"PartNumber" json:"number"`
	ETag   string `xml:"ETag" json:"etag"`
	CRC32  string `xml:"ChecksumCRC32,omitempty" json:"crc32"`
}

// completeUpload answers POST buckets/{bucket}/complete.
func (c contentPage) completeUpload() (any, error) {
	var in struct {
		Key    string         `json:"key"`
		Upload string         `json:"upload"`
		Parts  []completePart `json:"parts"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Key == "" || in.Upload == "" || len(in.Parts) == 0 || len(in.Parts) > mostParts {
		return nil, invalid("key, upload and 1 to 10000 parts are needed", "")
	}
	body, err := xml.Marshal(completeDocument{Parts: in.Parts})
	if err != nil {
		return nil, err
	}
	var x struct {
		ETag string `xml:"ETag"`
	}
	h, err := c.s3(http.MethodPost, in.Key, url.Values{"uploadId": {in.Upload}}, body, &x)
	if err != nil {
		return nil, err
	}
	return stored{strings.Trim(x.ETag, `"`), h.Get("X-Amz-Version-Id")}, nil
}

// abortUpload answers DELETE buckets/{bucket}/upload.
func (c contentPage) abortUpload() (any, error) {
	key, query, err := c.uploadQuery()
	if err != nil {
		return nil, err
	}
	_, err = c.s3(http.MethodDelete, key, query, nil, nil)
	return nil, err
}
