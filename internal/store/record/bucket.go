// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// CheckBucket refuses settings that no bucket can have, and fills in the kind of ETag.
func CheckBucket(op string, b *object.Bucket) error {
	if b.ETag == "" {
		b.ETag = object.ETagMD5
	}
	if b.ETag != object.ETagMD5 && b.ETag != object.ETagCRC64 {
		return errs.New(errs.Invalid, op, b.Name, fmt.Sprintf("kind of ETag %q, expected %q or %q", b.ETag, object.ETagMD5, object.ETagCRC64))
	}
	switch b.Versioning {
	case object.VersioningOff, object.VersioningEnabled, object.VersioningSuspended:
		return nil
	}
	return errs.New(errs.Invalid, op, b.Name, fmt.Sprintf("versioning %q, expected %q or %q", b.Versioning, object.VersioningEnabled, object.VersioningSuspended))
}
