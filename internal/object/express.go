// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"io"
	"strings"
)

// DirectorySuffix ends the name of every directory bucket, and of no other bucket.
const DirectorySuffix = "--x-s3"

// DirectoryInline is the largest size, in bytes, of content of a directory bucket that a store keeps with its metadata.
// Larger content has a file of its own, which begins on a page and which clients of the door can read directly.
const DirectoryInline = 4 << 10

// IsDirectory reports whether the name is that of a directory bucket of S3 Express. Objects of a directory bucket can
// be appended to and renamed. A directory bucket has ETags of kind ETagCRC64 and no versions.
func IsDirectory(bucket string) bool { return strings.HasSuffix(bucket, DirectorySuffix) }

// ParseDirectory returns the zone in the name of a directory bucket, which has the form BASE--ZONE--x-s3.
// ParseDirectory returns false if the name has another form, or if S3 does not allow the name: 3 to 63 lower-case
// letters, digits and hyphens.
func ParseDirectory(bucket string) (zone string, ok bool) {
	rest, ok := strings.CutSuffix(bucket, DirectorySuffix)
	if !ok || len(bucket) > 63 {
		return "", false
	}
	at := strings.LastIndex(rest, "--")
	if at < 1 || !label(rest[:at]) || !IsZone(rest[at+2:]) {
		return "", false
	}
	return rest[at+2:], true
}

// IsZone reports whether the text can be the zone in the name of a directory bucket, such as "use1-az4".
func IsZone(zone string) bool { return len(zone) <= 32 && label(zone) && !strings.Contains(zone, "--") }

// label reports whether s has lower-case letters, digits and hyphens, and a letter or digit at both ends.
func label(s string) bool {
	for i := range len(s) {
		if c := s[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[len(s)-1] != '-'
}

// Directories appends to and renames the objects of directory buckets. Append and Rename fail with kind Unsupported if
// the bucket is no directory bucket, and with ErrNoSuchBucket if the bucket does not exist.
type Directories interface {
	// Append adds content to the end of an object, or makes the object. If Append succeeds, the longer object is durable
	// and visible; if Append fails, the object is as before. Readers see the object before or after. Content that was
	// opened before keeps its bytes and its length. An append of no bytes to an object changes nothing.
	//
	// Append fails with ErrWriteOffset if a.Offset is not the size of the object; an object that does not exist has size
	// 0. Append fails with ErrNoSuchKey or ErrPrecondition as Put does.
	Append(ctx context.Context, a Append) (Info, error)
	// Rename gives an object another key of the same bucket, in one durable step that copies no content. An object that
	// has the new key is replaced. Rename keeps the content, the attributes, the ETag and the time of modification. Rename
	// fails with ErrNoSuchKey if there is no object to rename.
	//
	// A second Rename with the same r.Token succeeds without a change, for at least an hour and even after a restart.
	// Rename fails with ErrTokenUsed if the second Rename names other keys.
	Rename(ctx context.Context, r Rename) error
}

// Append is a request to add content to the end of an object.
type Append struct {
	Bucket, Key string
	Offset      int64 // the size that the object must have, in bytes
	// Size and Body are the new content, as in Put.
	Size int64
	Body io.Reader
	// Condition is a condition on the object before the append.
	Condition Condition
	// Finish, if not nil, is called once after the last byte of Body. If Finish returns an error, nothing is appended and
	// Append returns that error unchanged.
	Finish func(Written) error
	// Extend returns the attributes of the longer object. The parameter before is the object before the append, or nil if
	// the append makes the object. Extend must be quick and must not call the store. The store may call it several times.
	Extend func(before *Info, added Written) (map[string]string, error)
}

// Rename is a request to give an object another key.
type Rename struct {
	Bucket, From, To string
	// CheckFrom and CheckTo, if not nil, decide in the same atomic step whether the object is renamed. CheckTo gets nil if
	// the new key has no object. The errors of CheckFrom and CheckTo are returned unchanged.
	CheckFrom, CheckTo func(*Info) error
	// Token, if not empty, identifies the request, so that a repeated request changes nothing.
	Token string
}
