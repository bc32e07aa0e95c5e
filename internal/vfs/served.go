// SPDX-License-Identifier: Apache-2.0

package vfs

// Served tells how a server got the bytes of a file that another server keeps.
type Served struct {
	From     string // source of the bytes
	Age      int64  // seconds since the other server was asked about the file
	Verified string // how the whole content was compared
}

// Sourced is implemented by a Remote whose server tells how it got the bytes.
type Sourced interface {
	// Served returns how each reply so far was served, and nil if the server told nothing.
	Served() []Served
}

// ServedBy returns how the server got the bytes of the file, one value for each reply. ServedBy returns nil for local
// files, and for objects that the server itself keeps.
func ServedBy(f *File) []Served {
	if s, ok := f.remote.(Sourced); ok {
		return s.Served()
	}
	if f.served.From != "" {
		return []Served{f.served}
	}
	return nil
}

// Via returns the way of the bytes: "http" for a remote file, "door" for a file whose descriptors a server passed, and
// "" for a local file.
func Via(f *File) string {
	switch {
	case f.remote != nil:
		return "http"
	case f.passed:
		return "door"
	}
	return ""
}
