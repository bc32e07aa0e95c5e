// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// About describes one version of an object as the upstream described it. The JSON form of About is stable, so that a
// cache can keep it. The caller owns an About with its map.
type About struct {
	Identity object.Identity `json:"identity"`
	Modified time.Time       `json:"modified"`
	// Attributes are the headers, the user metadata, the tags, the lock and the checksum, under the names that the S3
	// front end uses (the Attr constants of package object).
	Attributes map[string]string `json:"attributes,omitempty"`
	// CRC64 is the CRC-64/NVME of the whole content; valid if HasCRC64 is set. The upstream said that it covers the whole
	// content.
	CRC64    uint64 `json:"crc64,omitempty"`
	HasCRC64 bool   `json:"has_crc64,omitempty"`
	// CRC32C is the CRC-32C of the whole content; valid if HasCRC32C is set.
	CRC32C    uint32 `json:"crc32c,omitempty"`
	HasCRC32C bool   `json:"has_crc32c,omitempty"`
	// CRC32 is the CRC-32 of the whole content; valid if HasCRC32 is set. Most clients send this one unless told
	// otherwise.
	CRC32    uint32 `json:"crc32,omitempty"`
	HasCRC32 bool   `json:"has_crc32,omitempty"`
	// Parts is the number of parts of a multipart object; 0 if the object was written in one request, or if unknown.
	Parts      int    `json:"parts,omitempty"`
	Restore    string `json:"restore,omitempty"`    // state of a restore from an archive
	Encryption string `json:"encryption,omitempty"` // kind of encryption on the upstream, such as "aws:kms"
	// NotModified means that the ETag is the one of ifNoneMatch. Then only Identity.ETag and Identity.Key are set.
	NotModified bool `json:"-"`
	// Marker means that the version is a delete marker. Then only the identity and Modified are set.
	Marker bool `json:"marker,omitempty"`
}

// MD5 returns the MD5 of the content in hex, if the ETag is one. The ETag of a multipart object and of an object that
// is encrypted with a key of its own is no MD5. Some servers make ETags in other ways. If content has another MD5, then
// the content is wrong only if the server is known to use MD5.
func (a About) MD5() (string, bool) {
	if len(a.Identity.ETag) != 32 || a.Parts > 0 || a.Encryption != "" && a.Encryption != "AES256" {
		return "", false
	}
	for _, c := range a.Identity.ETag {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return "", false
		}
	}
	return a.Identity.ETag, true
}

// Encode returns the JSON form of a.
func (a About) Encode() []byte {
	doc, err := json.Marshal(a)
	if err != nil {
		return nil // cannot happen: a has only texts, numbers and a valid time
	}
	return doc
}

// DecodeAbout reads what Encode returned. DecodeAbout fails with kind Corrupt for anything else.
func DecodeAbout(doc []byte) (About, error) {
	var a About
	if err := json.Unmarshal(doc, &a); err != nil {
		return About{}, errs.New(errs.Corrupt, "read description of object", "", err.Error())
	}
	if a.Identity.Size < 0 || a.Identity.Key == "" {
		return About{}, errs.New(errs.Corrupt, "read description of object", a.Identity.Key,
			fmt.Sprintf("has a key of %d bytes and a size of %d", len(a.Identity.Key), a.Identity.Size))
	}
	return a, nil
}

// Info returns a as an object.Info of the bucket with the given name. Latest is set, because Stat does not tell; a
// caller that asked for one version sets it right.
func (a About) Info(bucket string) object.Info {
	i := object.Info{Bucket: bucket, Key: a.Identity.Key, Version: a.Identity.Version, Latest: true, Marker: a.Marker,
		Size: a.Identity.Size, ETag: a.Identity.ETag, CRC64: a.CRC64, NoCRC64: !a.HasCRC64, Modified: a.Modified,
		Attributes: maps.Clone(a.Attributes)}
	if i.Version == "" && !a.Marker { // some servers do not name the version of a delete marker
		i.Version, i.Unnamed = object.NullVersion, true
	}
	if i.Attributes == nil {
		i.Attributes = map[string]string{}
	}
	return i
}
