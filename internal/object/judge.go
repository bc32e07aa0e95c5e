// SPDX-License-Identifier: Apache-2.0

package object

// Change is what a write or a deletion is about to do to one key.
type Change struct {
	// Bucket is the bucket's settings at this moment. They are shared and must not be changed.
	Bucket *Bucket
	// Removed is the version that the change removes for good. It is nil if nothing is lost: if the change only adds a
	// version or a delete marker, or if it removes a delete marker.
	Removed *Info
}

// Judge decides on a change in the same atomic step as the change. The store calls it under the key's lock, after the
// condition was found to hold and before anything is visible.
//
// The store adds the returned attributes to the new version, and ignores them for a deletion. An error ends the change
// without a trace, and the store returns it unchanged. A Judge must be quick and must not call the store.
type Judge func(Change) (map[string]string, error)
