// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"maps"
	"time"
)

// Ability is something that an S3 server may or may not do as Amazon does it.
type Ability string

// Abilities that this package relies on only if they were proven.
const (
	// RangeIfMatch: a ranged GET with a wrong If-Match gets 412.
	RangeIfMatch Ability = "range-if-match"
	// NotModified: a HEAD with the ETag in If-None-Match gets 304.
	NotModified Ability = "not-modified"
	// PutIfNoneMatch: a PUT with If-None-Match: * gets 412 if the object exists.
	PutIfNoneMatch Ability = "put-if-none-match"
	// PutIfMatch: a PUT with If-Match replaces the right object, and gets 412 for a wrong ETag.
	PutIfMatch Ability = "put-if-match"
	// BareIfMatch: PutIfMatch holds for an ETag without quotes, and not for one with quotes.
	BareIfMatch Ability = "bare-if-match"
	// CompleteIfNoneMatch: the completion of an upload with If-None-Match: * gets 412 if the object exists.
	CompleteIfNoneMatch Ability = "complete-if-none-match"
	// CompleteIfMatch: the completion of an upload with a wrong If-Match gets 412, and with the right one succeeds.
	CompleteIfMatch Ability = "complete-if-match"
	// CopySourceIfMatch: a copy with a wrong x-amz-copy-source-if-match gets 412.
	CopySourceIfMatch Ability = "copy-source-if-match"
	// DeleteIfMatch: a DELETE with a wrong If-Match gets 412 and deletes nothing.
	DeleteIfMatch Ability = "delete-if-match"
	// CopyIfNoneMatch: a copy with If-None-Match: * gets 412 if the target exists.
	CopyIfNoneMatch Ability = "copy-if-none-match"
	// Checksums: a checksum that was sent with a PUT is compared with the content, and comes back on HEAD.
	Checksums Ability = "checksums"
	// ChecksumType: a HEAD says whether the checksum covers the whole content.
	ChecksumType Ability = "checksum-type"
	// TrailerCRC64: a PUT in the format aws-chunked with a CRC-64/NVME as trailer is decoded and compared.
	TrailerCRC64 Ability = "trailer-crc64nvme"
	// UploadCRC64: an upload with CRC-64/NVME of type FULL_OBJECT gets the checksum of the whole content.
	UploadCRC64 Ability = "upload-crc64nvme"
	// PartNumber: a HEAD with partNumber describes one part.
	PartNumber Ability = "part-number"
	// ObjectAttributes: GetObjectAttributes answers with the size of the object.
	ObjectAttributes Ability = "object-attributes"
	// Versioning: the bucket's versioning state can be read.
	Versioning Ability = "versioning"
	// ListV2: ListObjectsV2 honours start-after and max-keys.
	ListV2 Ability = "list-v2"
	// Tagging: the tags of an object can be written and read.
	Tagging Ability = "tagging"
	// TagCount: a HEAD says how many tags the object has.
	TagCount Ability = "tag-count"
)

// Finding is what is known about one ability.
type Finding struct {
	Proven bool   `json:"proven"`
	Detail string `json:"detail,omitempty"` // what the upstream did instead
}

// Capabilities is the record of the abilities of one upstream. An ability that is not in the record is unproven. The
// JSON form of Capabilities is stable.
type Capabilities struct {
	// Probed is the time at which Probe has finished; zero means never.
	Probed   time.Time           `json:"probed"`
	Findings map[Ability]Finding `json:"findings,omitempty"`
}

// Has reports whether the ability was proven.
func (c Capabilities) Has(a Ability) bool { return c.Findings[a].Proven }

// Lacks reports whether the ability was tried, and the upstream does not have it.
func (c Capabilities) Lacks(a Ability) bool {
	f, ok := c.Findings[a]
	return ok && !f.Proven
}

// with returns a copy of c with one more finding.
func (c Capabilities) with(a Ability, f Finding) Capabilities {
	m := make(map[Ability]Finding, len(c.Findings)+1)
	maps.Copy(m, c.Findings)
	m[a] = f
	c.Findings = m
	return c
}

// Capabilities returns the current record. The caller must not change its map.
func (b *Bucket) Capabilities() Capabilities { return *b.caps.Load() }

// learn records a finding, and tells Options.Learned if it is new.
func (b *Bucket) learn(a Ability, f Finding) {
	for {
		old := b.caps.Load()
		if was, ok := old.Findings[a]; ok && was == f {
			return
		}
		next := old.with(a, f)
		if b.caps.CompareAndSwap(old, &next) {
			if b.o.Learned != nil {
				b.o.Learned(next)
			}
			return
		}
	}
}
