// SPDX-License-Identifier: Apache-2.0

package iam

// Access is the kind of access that a grant allows.
type Access string

// A grant allows one of the kinds of access AccessRead, AccessWrite and AccessReadWrite.
const (
	AccessRead      Access = "read"       // allows listing and reading objects
	AccessWrite     Access = "write"      // allows writing and deleting objects
	AccessReadWrite Access = "read-write" // allows listing, reading, writing and deleting objects
)

// Grant gives an account access to the objects of a bucket.
type Grant struct {
	Bucket string `json:"bucket"`
	User   string `json:"user"`
	Access Access `json:"access"`
	Prefix string `json:"prefix,omitempty"` // the grant covers only keys with this prefix; empty: all keys
}
