// SPDX-License-Identifier: Apache-2.0

package wire

// Discovery is the JSON reply of an S3 endpoint to a signed request for the path of its door.
type Discovery struct {
	// Version is the version of the format of the Discovery reply.
	Version int `json:"version"`
	// Enabled reports whether the server has a door.
	Enabled bool `json:"enabled"`
	// Socket is the path of the door's socket on the server's host.
	Socket string `json:"socket"`
	// Store is the identity of the store behind the door.
	Store string `json:"store"`
	// Reason explains why there is no door, and Fix what to do about it. Reason and Fix are empty if Enabled is true.
	Reason string `json:"reason"`
	Fix    string `json:"fix"`
}
