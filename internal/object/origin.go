// SPDX-License-Identifier: Apache-2.0

package object

import "time"

// The HeaderOrigin constants are the headers of an S3 request to a NebulaIO server that writes a version with an
// Origin. HeaderOriginModified makes the request such a write; the others are optional.
const (
	HeaderOriginModified = "X-Nebulaio-Origin-Modified" // Origin.Modified, such as 2026-01-31T10:00:00.123Z
	HeaderOriginETag     = "X-Nebulaio-Origin-Etag"     // Origin.ETag
	HeaderOriginVersion  = "X-Nebulaio-Origin-Version"  // identifier on the other server; "null" sets Origin.Null
	HeaderOriginNewest   = "X-Nebulaio-Origin-Newest"   // Origin.Newest
)

// HeaderExact is the header of a listing of versions. If its value is "true", a NebulaIO server lists versions and
// delete markers in their order, with times in milliseconds. Otherwise the listing has the form of S3.
const HeaderExact = "X-Nebulaio-Exact"

// Origin is the identity that a version has on another S3 server. A write with an Origin adds a copy of that version:
// the copy keeps the time, the ETag and the place of the version among the versions of its key.
type Origin struct {
	// Modified is the time of the last modification on the other server. The store keeps whole milliseconds.
	Modified time.Time
	// ETag is the ETag on the other server, without quotes. If ETag is empty, the store computes the ETag.
	ETag string
	// Null makes the copy the null version of its key, whatever the versioning state of the bucket is.
	Null bool
	// Newest is the identifier of the newest version or delete marker that the key must have before the write, and empty
	// if the key must have none. If the key has another newest version, the write fails with ErrPrecondition. So a write
	// that is repeated after a lost reply adds no second copy.
	Newest string
}
