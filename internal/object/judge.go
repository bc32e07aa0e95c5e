// SPDX-License-Identifier: Apache-2.0

package object

// Change describes what a write or a deletion is about to do to one key.
type Change struct {
	// Bucket holds the current settings of the bucket. A Judge must not change the bucket's settings, because they
	// are shared.
	Bucket *Bucket
	// Removed is the version that the change removes permanently. Removed is nil if the change only adds a version
	// or a delete marker, or if the change removes a delete marker.
	Removed *Info
	// Current is the current version of the key before a deletion that adds a delete marker. Current is nil for every
	// other change, and if the key has no current version.
	Current *Info
}

// Judge decides whether a change is made, in the same atomic step as the change. The store calls the Judge under
// the key's lock, after checking the Condition and before the change is visible.
//
// The store adds the attributes that a Judge returns to the new version, and ignores the attributes for a deletion.
// If the Judge returns an error, nothing is changed and the store returns that error unchanged. A Judge must be
// quick and must not call the store.
type Judge func(Change) (map[string]string, error)
