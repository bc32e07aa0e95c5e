// SPDX-License-Identifier: Apache-2.0

// Package object defines object stores: buckets, objects, versions, uploads, and the interfaces of a store. It does no
// I/O.
//
// Names are opaque bytes. A key is any 1 to MaxKey bytes. The front end decides which names a bucket may have. No part
// of a name ever becomes a path of the file system.
//
// Changes are durable. If a method that changes something returns nil, the change survives kill -9 and power loss. If
// it returns an error, the change is not visible, now or after a restart, unless the error says otherwise. All methods
// are safe for concurrent use.
//
// If a caller can act on an error, the error wraps one of the sentinels of this package, and errors.Is finds it.
package object

import (
	"io"
	"time"
)

const (
	// MaxKey bounds a key, in bytes.
	MaxKey = 1024
	// MaxAttributes bounds the names and values of one object's attributes together, in bytes.
	MaxAttributes = 256 << 10
	// MaxParts is the highest part number of an upload.
	MaxParts = 10000
	// NullVersion names the version that is written while versioning is not enabled.
	NullVersion = "null"
)

// Versioning is what happens to the object that a write replaces.
type Versioning string

// The states of a bucket. A bucket begins with VersioningOff and never returns to it.
const (
	// VersioningOff: a write replaces, a delete removes.
	VersioningOff Versioning = ""
	// VersioningEnabled: a write adds a version, a delete adds a delete marker.
	VersioningEnabled Versioning = "Enabled"
	// VersioningSuspended: a write or a delete replaces the null version and keeps the others.
	VersioningSuspended Versioning = "Suspended"
)

// ETagKind is how the ETag of an object is computed.
type ETagKind string

// The kinds of ETag.
const (
	// ETagMD5 is the MD5 of the content in hex, and for a multipart object the MD5
	// of the parts' MD5s followed by "-" and their count. What most clients expect.
	ETagMD5 ETagKind = "md5"
	// ETagCRC64 is the CRC-64/NVME of the content, followed by "-1" or, for a multipart object, by "-" and the count of
	// its parts. By that, no client takes it for an MD5. It costs almost nothing.
	ETagCRC64 ETagKind = "crc64nvme"
)

// Bucket is a bucket's settings. The store reads Versioning and ETag; the rest
// is kept for the front end.
type Bucket struct {
	Name       string
	Created    time.Time
	Owner      string // access key of the account that made it
	Versioning Versioning
	ETag       ETagKind
	// Settings are documents of the front end (acl, policy, cors, tagging,
	// ownership, object lock …) by its own names, opaque to the store.
	Settings map[string][]byte
}

// Ref names a version of an object.
type Ref struct {
	Bucket, Key string
	Version     string // empty: the current one
}

// Info describes one version of an object. It belongs to the caller, maps too.
type Info struct {
	Bucket, Key string
	Version     string // NullVersion, or an identifier that sorts nowhere and means nothing
	Latest      bool   // no later version or delete marker of this key exists
	Marker      bool   // a delete marker: no content, no attributes
	Size        int64
	ETag        string // without quotes
	CRC64       uint64 // CRC-64/NVME of the whole content, always known
	Modified    time.Time
	// Parts of a multipart object in order, as they were completed; nil otherwise.
	Parts []PartInfo
	// Attributes are the front end's (headers, user metadata, tags, checksums,
	// retention …) by its own names, opaque to the store.
	Attributes map[string]string
}

// Versioned reports whether the version has an identifier that clients see.
func (i *Info) Versioned() bool { return i.Version != "" && i.Version != NullVersion }

// Condition is what has to hold for the current version of a key before a change is made. The store judges it and makes
// the change in one atomic step. The zero value always holds.
type Condition struct {
	IfMatch     string // its ETag; "*" for any. No object: ErrNoSuchKey; another ETag: ErrPrecondition
	IfNoneMatch string // "*": no current object (a delete marker is none); an ETag: not this one. Else ErrPrecondition
	IfSize      *int64
	IfModified  *time.Time // its time of modification, to the second
}

// Put is a request to write an object.
type Put struct {
	Bucket, Key string
	// Size is the exact length of Body, or -1 if it is not known. A Body that is shorter or longer is ErrIncompleteBody.
	Size int64
	Body io.Reader
	// Attributes of the new version; the store keeps no reference.
	Attributes map[string]string
	Condition  Condition
	// MD5 asks for the MD5 of the content in Written, even if the bucket's ETags do not need it.
	MD5 bool
	// Finish, if not nil, is called once after the last byte and before anything is visible. The attributes that it
	// returns are added. An error ends the Put without a trace, and Put returns it unchanged.
	Finish func(Written) (map[string]string, error)
	// Judge, if not nil, decides on the change when it is made.
	Judge Judge
}

// Written describes content after its last byte was received.
type Written struct {
	Size  int64
	CRC64 uint64
	MD5   []byte // nil where it was not computed
}

// Deletion is a request to delete an object or one version of it.
type Deletion struct {
	Ref
	Condition Condition
	// Judge, if not nil, decides on the deletion when it is made.
	Judge Judge
}

// Deleted is what a deletion did.
type Deleted struct {
	// of what was removed, or of the delete marker that was added; empty in a bucket that never had versions
	Version string
	Marker  bool // Version is a delete marker, added or removed
	Existed bool // there was something to delete
}

// List is a request for one page of a bucket in the order of the keys' bytes.
type List struct {
	Bucket    string
	Prefix    string
	Delimiter string // groups the keys that have it after Prefix; may be of any length
	// After leaves out all keys up to and including it, and every common prefix
	// that equals it. A common prefix is listed as long as a key of it is left.
	After string
	// AfterVersion, with Versions, continues inside the versions of the key After:
	// those up to and including it are left out. Empty: all versions of After are.
	AfterVersion string
	Limit        int  // objects and common prefixes together; 1 to 1000 (0: 1000)
	Versions     bool // all versions and delete markers, newest first within a key
	Attributes   bool // fill Info.Attributes and Info.Parts, which costs
}

// Page is the result of List. Objects and Prefixes are each in byte order, so that a caller can merge both.
type Page struct {
	Objects   []Info
	Prefixes  []string
	Truncated bool
	// Next and NextVersion are After and AfterVersion of the next page, where Truncated.
	Next, NextVersion string
}

// Upload describes a multipart upload in progress.
type Upload struct {
	Bucket, Key, ID string
	Started         time.Time
	Attributes      map[string]string // become the object's
}

// PartInfo describes one part.
type PartInfo struct {
	Number   int
	Size     int64
	ETag     string // without quotes; the hex MD5, or, by the bucket's ETagKind, made of the CRC64
	CRC64    uint64
	Modified time.Time
	// Attributes are the front end's, such as the part's own checksum.
	Attributes map[string]string
}

// PutPart is a request to write one part of an upload. The fields are those of Put. A stored part stays until another
// part with the same number is stored.
type PutPart struct {
	Bucket, Key, Upload string
	Number              int // 1 to MaxParts
	Size                int64
	Body                io.Reader
	MD5                 bool
	Finish              func(Written) (map[string]string, error)
}

// CompletedPart names a part in a completion.
type CompletedPart struct {
	Number int
	ETag   string // without quotes; empty: any
}

// Complete is a request to make an object of an upload's parts.
type Complete struct {
	Bucket, Key, Upload string
	// numbers ascending (else ErrPartOrder), each uploaded with that ETag (else ErrInvalidPart)
	Parts     []CompletedPart
	MinPart   int64 // every part but the last has at least so many bytes, else ErrPartTooSmall
	Condition Condition
	// Finish is called with the parts in order, before anything is visible; as in Put.
	Finish func([]PartInfo) (map[string]string, error)
	// Judge, if not nil, decides on the change when it is made.
	Judge Judge
}

// Copy is a request to make an object of the content of another one.
type Copy struct {
	From Ref
	// FromCondition is judged on the source version.
	FromCondition Condition
	Bucket, Key   string
	// Attributes of the new version; nil keeps those of the source.
	Attributes map[string]string
	Condition  Condition
	// Judge, if not nil, decides on the change when it is made.
	Judge Judge
}

// CopyPart is a request to make a part of a range of an object. N of -1 means all of it from Off.
type CopyPart struct {
	From                Ref
	Off, N              int64
	Bucket, Key, Upload string
	Number              int
	// Finish is that of PutPart. If it is not nil, the bytes pass through memory. The MD5 is computed if the ETag needs
	// it.
	Finish func(Written) (map[string]string, error)
}

// Range is a part of an object's content: N bytes from Off.
type Range struct{ Off, N int64 }

// UploadList is a request for one page of the uploads in progress, in the order of key and identifier.
type UploadList struct {
	Bucket, Prefix, Delimiter string
	// leaves out what comes before and this one itself; without AfterID all uploads of AfterKey
	AfterKey, AfterID string
	Limit             int
}

// UploadPage is what UploadList found.
type UploadPage struct {
	Uploads         []Upload
	Prefixes        []string
	Truncated       bool
	NextKey, NextID string
}

// Further words of Damage.What.
const (
	// DamageDeclared: the content differs from the checksums that a client of the door declared when it wrote the content.
	// Either the checksums were wrong from the start, or the content was damaged later. The server cannot tell.
	DamageDeclared = "declared"
	// DamageRecord: the record of the object in the metadata cannot be read.
	DamageRecord = "record"
)

// Damage is content that differs from what was written.
type Damage struct {
	Ref
	File string    // the data file, or empty where the content lies with the metadata
	Off  int64     // where in the content the damaged block begins
	N    int64     // its length
	What string    // "checksum", "missing", "short", "unreadable"; see also DamageDeclared and DamageRecord
	Time time.Time // when it was found
}
