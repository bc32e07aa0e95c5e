// SPDX-License-Identifier: Apache-2.0

package object

// Change is what a write or a deletion is about to do to one key.
type Change struct {
	// Bucket is the bucket's settings at this moment. They are shared and must not be changed.
	Bucket *Bucket
	// Removed is the version that the change removes for good. It is nil where nothing is lost:
	// where a version or a delete marker is only added, or where a delete marker is removed.
	Removed *Info
}

// Judge decides on a change in the same instant as the change is made. The store calls it under the key's lock,
// after the condition was found to hold and before anything is visible.
//
// The attributes that Judge returns are added to the new version; for a deletion they are ignored. An error ends
// the change without a trace and is returned as it is. A Judge must be quick, and must not call the store.
type Judge func(Change) (map[string]string, error)
