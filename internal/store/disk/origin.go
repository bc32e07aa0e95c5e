// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// imitate gives v the time, the ETag and the kind of the version that v is a copy of, if the change t has an origin.
// head is the current version of the key. The caller holds the key's lock, so that nobody adds a version in between.
func imitate(t *tx, op, key string, head, v *record.Version, state object.Versioning) error {
	o := t.origin
	if o == nil {
		return nil
	}
	newest := ""
	if head != nil {
		newest = t.s.names.Version(head)
	}
	if newest != o.Newest {
		return object.Fail(op, key, object.ErrPrecondition,
			fmt.Sprintf("the newest version is %q, expected %q", newest, o.Newest))
	}
	v.Modified = o.Modified.UnixMilli()
	if o.ETag != "" && !v.Marker() {
		v.ETag = o.ETag
	}
	if v.Flags &^= record.FlagNull; o.Null || state == object.VersioningOff {
		v.Flags |= record.FlagNull
	}
	return nil
}
