// SPDX-License-Identifier: Apache-2.0

// Package place names, lists and compares the places of files and objects: a local path, or a prefix of a bucket.
//
// All places are listed in the same order, the byte order of their keys, so that sync and verify compare places of any
// size with little memory.
package place

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Place is a local path, or a key or prefix of a bucket.
type Place struct {
	Path    string // local path; empty for an S3 place
	Bucket  string // empty for a local path, and for the list of all buckets
	Key     string // key or prefix in the bucket; empty means the whole bucket
	Profile string // AWS profile that the URL names, s3://PROFILE@bucket/key; empty means that of the command
}

// scheme begins the name of each S3 place.
const scheme = "s3://"

// Parse reads a place: a path, s3://bucket, s3://bucket/key, or s3://profile@bucket/key. The name s3:// alone means all
// buckets. Parse does not look whether the place exists. A name that is no place gives an error of kind Invalid.
func Parse(s string) (Place, error) {
	bad := func(why, fix string) (Place, error) {
		return Place{}, errs.New(errs.Invalid, "name place", strconv.Quote(clip(s)), why).WithFix(fix)
	}
	if s == "" {
		return bad("is empty; expected a path or s3://bucket/key", "name a path or an S3 URL")
	}
	if strings.ContainsRune(s, 0) {
		return bad("has a NUL character; expected a path or s3://bucket/key", "leave out the NUL character")
	}
	rest, remote := strings.CutPrefix(s, scheme)
	if !remote {
		if i := strings.Index(s, "://"); i > 0 && !strings.ContainsAny(s[:i], "/.") {
			return bad(fmt.Sprintf("has the scheme %q; expected a path or s3://bucket/key", clip(s[:i])),
				"name the server with --endpoint, and the bucket with s3://")
		}
		return Place{Path: s}, nil
	}
	var p Place
	p.Bucket, p.Key, _ = strings.Cut(rest, "/")
	if profile, bucket, ok := strings.Cut(p.Bucket, "@"); ok {
		if p.Profile, p.Bucket = profile, bucket; profile == "" {
			return bad("has no profile before the @; expected s3://profile@bucket/key", "name the profile, or leave out the @")
		}
	}
	switch {
	case p.Bucket == "" && p.Key != "":
		return bad("names no bucket; expected s3://bucket/key", "name the bucket after s3://")
	case len(p.Bucket) > 255 || strings.ContainsFunc(p.Bucket, notInBucket):
		return bad(fmt.Sprintf("has the bucket %q; expected letters, digits, dots, hyphens and underscores",
			clip(p.Bucket)), "check the bucket's name")
	case len(p.Key) > 1024:
		return bad(fmt.Sprintf("has a key of %d bytes; expected at most 1024", len(p.Key)), "use a shorter key")
	}
	return p, nil
}

func notInBucket(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
}

// clip shortens a text for a message, at a whole character.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Remote reports whether the place is on an S3 server.
func (p Place) Remote() bool { return p.Path == "" }

// String returns the path or URL of the place, which Parse reads again.
func (p Place) String() string {
	if !p.Remote() {
		return p.Path
	}
	u := s3.URL(p.Bucket, p.Key)
	if p.Profile != "" {
		u = scheme + p.Profile + "@" + strings.TrimPrefix(u, scheme)
	}
	return u
}

// Folder reports whether the name alone says that the place holds others: it ends in a slash, or is a bucket.
func (p Place) Folder() bool {
	if p.Remote() {
		return p.Key == "" || strings.HasSuffix(p.Key, "/")
	}
	return strings.HasSuffix(p.Path, "/") || strings.HasSuffix(p.Path, string(filepath.Separator))
}

// AsFolder returns the place as a folder. The key of an S3 place gets a slash at its end, so that s3://b/run does not
// mean s3://b/run2 too.
func (p Place) AsFolder() Place {
	if p.Remote() && !p.Folder() {
		p.Key += "/"
	}
	return p
}

// Base returns the last part of the name, without a slash at its end. For a bucket, Base returns "".
func (p Place) Base() string {
	if p.Remote() {
		key := strings.TrimSuffix(p.Key, "/")
		return key[strings.LastIndexByte(key, '/')+1:]
	}
	return filepath.Base(p.Path)
}

// Join returns the place of a key below the folder p. Below a local folder, a key that is not a plain relative path
// gives an error of kind Invalid: such a key could name a file outside of the folder.
func (p Place) Join(key string) (Place, error) {
	if p.Remote() {
		p = p.AsFolder()
		if p.Key += key; p.Key == "" || len(p.Key) > 1024 {
			return Place{}, errs.New(errs.Invalid, "name place", clip(p.String()),
				fmt.Sprintf("has a key of %d bytes; expected 1 to 1024", len(p.Key)))
		}
		return p, nil
	}
	if why := unsafe(key); why != "" {
		return Place{}, errs.New(errs.Invalid, "name file", strconv.Quote(clip(key)),
			fmt.Sprintf("%s, so no file below %s can have this name", why, p.Path)).
			WithFix("leave it out with --exclude, or store the object under another key")
	}
	p.Path = filepath.Join(p.Path, filepath.FromSlash(key))
	return p, nil
}

// unsafe tells why a key cannot be the name of a file below a folder; empty if it can.
func unsafe(key string) string {
	switch {
	case key == "":
		return "is empty"
	case strings.HasSuffix(key, "/"):
		return "ends in a slash"
	case strings.ContainsRune(key, 0):
		return "has a NUL character"
	}
	for part := range strings.SplitSeq(key, "/") {
		switch {
		case part == "":
			return "has an empty part between two slashes"
		case part == "." || part == "..":
			return "has the part " + strconv.Quote(part)
		case len(part) > 255:
			return fmt.Sprintf("has a part of %d bytes, expected at most 255", len(part))
		}
	}
	return ""
}
