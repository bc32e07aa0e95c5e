// SPDX-License-Identifier: Apache-2.0

package iam

// Access is what a grant allows.
type Access string

// The kinds of access.
const (
	AccessRead      Access = "read"       // list and read objects
	AccessWrite     Access = "write"      // write and delete objects
	AccessReadWrite Access = "read-write" // both
)

// Grant is what an operator allows an account in a bucket.
type Grant struct {
	Bucket string `json:"bucket"`
	User   string `json:"user"`
	Access Access `json:"access"`
	Prefix string `json:"prefix,omitempty"` // of the keys; empty: all
}
