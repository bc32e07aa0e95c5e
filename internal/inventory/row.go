// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// timeForm is the form of times in an inventory.
const timeForm = "2006-01-02T15:04:05.000Z"

// schema returns the columns of the inventory, as the manifest names them.
func (c *Config) schema() []string {
	all := []string{"Bucket", "Key"}
	if c.Versions == allVersions {
		all = append(all, "VersionId", "IsLatest", "IsDeleteMarker")
	}
	return append(all, c.optional()...)
}

// row appends the line of a version to buf. Every value is in quotes. As in S3, the key is encoded as in a URL.
func (c *Config) row(buf []byte, owner string, i *object.Info) []byte {
	var retention struct {
		Mode            string
		RetainUntilDate *time.Time
	}
	if doc := i.Attributes[object.AttrRetention]; doc != "" {
		_ = json.Unmarshal([]byte(doc), &retention) // a retention that cannot be read leaves its columns empty
	}
	for k, name := range c.schema() {
		if k > 0 {
			buf = append(buf, ',')
		}
		buf = append(buf, '"')
		switch name {
		case "Bucket":
			buf = append(buf, i.Bucket...)
		case "Key":
			buf = append(buf, url.QueryEscape(i.Key)...)
		case "VersionId":
			if i.Versioned() {
				buf = append(buf, i.Version...)
			}
		case "IsLatest":
			buf = strconv.AppendBool(buf, i.Latest)
		case "IsDeleteMarker":
			buf = strconv.AppendBool(buf, i.Marker)
		case "LastModifiedDate":
			buf = i.Modified.UTC().AppendFormat(buf, timeForm)
		case "ObjectOwner":
			buf = append(buf, strings.ReplaceAll(owner, `"`, `""`)...)
		default:
			if !i.Marker {
				buf = appendField(buf, name, i, retention.Mode, retention.RetainUntilDate)
			}
		}
		buf = append(buf, '"')
	}
	return append(buf, '\n')
}

// appendField appends a value that a delete marker does not have.
func appendField(buf []byte, name string, i *object.Info, mode string, until *time.Time) []byte {
	switch name {
	case "Size":
		return strconv.AppendInt(buf, i.Size, 10)
	case "ETag":
		return append(buf, i.ETag...)
	case "StorageClass":
		return append(buf, "STANDARD"...)
	case "IsMultipartUploaded":
		return strconv.AppendBool(buf, len(i.Parts) > 0)
	case "ChecksumAlgorithm":
		if algorithm := i.Attributes[object.AttrSumAlgo]; algorithm != "" {
			return append(buf, algorithm...)
		}
		return append(buf, "CRC64NVME"...)
	case "ObjectLockMode":
		return append(buf, mode...)
	case "ObjectLockRetainUntilDate":
		if until != nil {
			return until.UTC().AppendFormat(buf, timeForm)
		}
	case "ObjectLockLegalHoldStatus":
		switch i.Attributes[object.AttrHold] {
		case "1":
			return append(buf, "On"...)
		case "0":
			return append(buf, "Off"...)
		}
	}
	return buf
}

// reads reports whether the inventory needs the attributes and parts of versions, which makes the listing slower.
func (c *Config) reads() bool {
	for _, f := range c.optional() {
		switch f {
		case "IsMultipartUploaded", "ChecksumAlgorithm", "ObjectLockMode", "ObjectLockRetainUntilDate",
			"ObjectLockLegalHoldStatus":
			return true
		}
	}
	return false
}
