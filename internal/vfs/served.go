// SPDX-License-Identifier: Apache-2.0

package vfs

// Served tells how a server got the bytes of a file that another server keeps: the source, the seconds since the other
// server was asked about the file, and how the whole content was compared.
type Served struct {
	From     string
	Age      int64
	Verified string
}

// Sourced is implemented by a Remote whose server tells how it got the bytes.
type Sourced interface {
	// Served returns how each reply so far was served, and nil if the server told nothing.
	Served() []Served
}

// Served returns how the server got the bytes of the file, one value for each reply. Served returns nil for local files,
// and for objects that the server itself keeps.
func (f *File) Served() []Served {
	if s, ok := f.remote.(Sourced); ok {
		return s.Served()
	}
	if f.served.From != "" {
		return []Served{f.served}
	}
	return nil
}

// Via returns "http" for a remote file, "door" for a file whose descriptors a server passed, and "" for a local file.
func (f *File) Via() string {
	switch {
	case f.remote != nil:
		return "http"
	case f.passed:
		return "door"
	}
	return ""
}
