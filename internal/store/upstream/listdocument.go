// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// listDocument is the reply to ListObjects, ListObjectsV2 and ListObjectVersions.
type listDocument struct {
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	NextMarker            string // of the first version of the listing
	NextKeyMarker         string // of versions, with NextVersionID
	NextVersionID         string `xml:"NextVersionIdMarker"`
	// Entries are objects, versions, delete markers and common prefixes, in the order of the document.
	Entries []listEntry `xml:",any"`
}

type listEntry struct {
	XMLName      xml.Name
	Key          string
	VersionID    string `xml:"VersionId"`
	IsLatest     bool
	LastModified string
	ETag         string
	StorageClass string
	Size         int64
	Prefix       string
}

// entriesOf returns the entries of a listing in byte order, with the keys below the prefix of b.
func (b *Bucket) entriesOf(x *listDocument) ([]listed, error) {
	var out []listed
	enc := plainer(x.EncodingType == "url")
	for i := range x.Entries {
		e := &x.Entries[i]
		var name string
		switch e.XMLName.Local {
		case "CommonPrefixes":
			name = e.Prefix
		case "Contents", "Version", "DeleteMarker":
			name = e.Key
		default:
			continue // a field of the listing itself
		}
		if len(out) == mostEntries {
			return nil, fmt.Errorf("the reply has more than %d entries", mostEntries)
		}
		full, err := enc.text(name)
		key, ok := strings.CutPrefix(full, b.o.Prefix)
		if err != nil || !ok || key == "" && e.XMLName.Local != "Contents" || e.Size < 0 || len(full) > 4*object.MaxKey {
			return nil, fmt.Errorf("the reply lists %.64q with %d bytes", name, e.Size)
		}
		if key == "" {
			continue // an object with the name of the prefix itself is not below the prefix
		}
		if e.XMLName.Local == "CommonPrefixes" {
			out = append(out, listed{key: key, group: true})
			continue
		}
		info := object.Info{Key: key, Version: e.VersionID, Latest: e.IsLatest, Marker: e.XMLName.Local == "DeleteMarker",
			Size: e.Size, ETag: unquote(e.ETag), NoCRC64: true, Modified: parseTime(e.LastModified)}
		if e.StorageClass != standard {
			info.Attributes = addClass(map[string]string{}, e.StorageClass)
		}
		if e.XMLName.Local == "Contents" {
			info.Latest, info.Version = true, "" // a listing of current objects does not name versions
		} else if info.Version == "" {
			info.Version = object.NullVersion
		}
		out = append(out, listed{key: key, id: info.Version, info: info})
	}
	sorted(out)
	return out, nil
}
