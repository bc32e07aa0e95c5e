// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"strings"
	"time"
)

// Entry is one file or object below a place.
type Entry struct {
	// Key is the name below the place, with slashes. For the object that has the key of the folder itself, Key is empty.
	Key string
	// Name is the whole path or object key. For an object of a bucket, it has no bucket.
	Name     string
	Size     int64
	ETag     string // without quotes; empty for a file
	Modified time.Time
	// Linked is true for a file that is a symbolic link, or below a link to a directory.
	Linked bool
}

// Marker reports whether the entry is an empty object that stands for a folder, whose key ends in a slash.
func (e Entry) Marker() bool { return e.Key == "" || strings.HasSuffix(e.Key, "/") }

// Walker lists entries in the byte order of their keys. Each key is greater than the one before.
type Walker interface {
	// Walk calls each with every entry, on one goroutine. An error of each ends the walk and is returned.
	Walk(ctx context.Context, each func(Entry) error) error
}
