// SPDX-License-Identifier: Apache-2.0

package iam

// Access is the kind of access that a grant allows.
type Access string

// The kinds of access that a grant can allow.
const (
	AccessRead      Access = "read"       // list and read objects
	AccessWrite     Access = "write"      // write and delete objects
	AccessReadWrite Access = "read-write" // list, read, write and delete objects
)

// Grant gives an account access to the objects of a bucket.
type Grant struct {
	Bucket string `json:"bucket"`
	User   string `json:"user"`
	Access Access `json:"access"`
	Prefix string `json:"prefix,omitempty"` // prefix of the keys that the grant covers; empty: all keys
}
