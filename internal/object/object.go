// SPDX-License-Identifier: Apache-2.0

// Package object defines the types and interfaces of an object store: buckets, objects, versions and uploads. Package
// object itself does no I/O.
//
// Bucket names and keys are opaque bytes. A key has 1 to MaxKey bytes of any value. The S3 front end decides which
// bucket names are valid. A store never uses a bucket name or a key as a file name.
//
// Changes are durable. If a method that changes the store returns nil, the change survives kill -9 and power loss.
// If a method that changes the store returns an error, the change is not visible, not even after a restart, unless
// the error says otherwise. All methods of a store are safe for concurrent use.
//
// An error that a caller can act on wraps one of the Err variables of package object, so that errors.Is finds it.
package object

import (
	"io"
	"time"
)

const (
	// MaxKey is the largest length of a key, in bytes.
	MaxKey = 1024
	// MaxAttributes is the largest total size of the names and values of one object's attributes, in bytes.
	MaxAttributes = 256 << 10
	// MaxParts is the highest part number of a multipart upload.
	MaxParts = 10000
	// NullVersion is the identifier of a version that was written while versioning was not enabled.
	NullVersion = "null"
)

// Versioning is the versioning state of a bucket.
type Versioning string

// A bucket has one of the versioning states VersioningOff, VersioningEnabled and VersioningSuspended. A new bucket is
// in state VersioningOff. A bucket that has left VersioningOff never returns to VersioningOff.
const (
	// VersioningOff means that a write replaces the object and a delete removes it.
	VersioningOff Versioning = ""
	// VersioningEnabled means that a write adds a version and a delete adds a delete marker.
	VersioningEnabled Versioning = "Enabled"
	// VersioningSuspended means that a write or a delete replaces the null version and keeps all other versions.
	VersioningSuspended Versioning = "Suspended"
)

// ETagKind is the way in which the ETag of an object is computed.
type ETagKind string

// A bucket has one of the kinds of ETag ETagMD5 and ETagCRC64.
const (
	// ETagMD5 makes the ETag the MD5 of the content in hex. With ETagMD5, the ETag of a multipart object is the MD5 of
	// the parts' MD5s, followed by "-" and the number of parts. Most S3 clients expect an ETag of kind ETagMD5.
	ETagMD5 ETagKind = "md5"
	// ETagCRC64 makes the ETag the CRC-64/NVME and the size of the content, each in 16 hex digits, followed by "-" and
	// the number of parts. For ETagCRC64, an object that was not made by a multipart upload counts as one part. The
	// suffix ("-" and a number) keeps clients from taking an ETag of kind ETagCRC64 for an MD5. An ETag of kind
	// ETagCRC64 costs almost no CPU time.
	ETagCRC64 ETagKind = "crc64nvme"
)

// Bucket holds the settings of a bucket. The store acts on Versioning and ETag, and keeps the other settings for
// the S3 front end.
type Bucket struct {
	Name       string
	Created    time.Time
	Owner      string // access key of the account that created the bucket
	Versioning Versioning
	ETag       ETagKind
	// Settings holds the bucket's documents of the S3 front end, such as ACL, policy, CORS and tags, by name. The
	// store does not interpret the documents in Settings.
	Settings map[string][]byte
}

// Ref identifies a version of an object.
type Ref struct {
	Bucket, Key string
	Version     string // identifier of the version; empty means the current version
}

// Info describes one version of an object. The caller owns an Info with its maps and may change them.
type Info struct {
	Bucket, Key string
	Version     string // NullVersion, or an opaque identifier whose order has no meaning
	Unnamed     bool   // whether an upstream did not name the version, which is then NullVersion
	Latest      bool   // whether this is the newest version or delete marker of the key
	Marker      bool   // whether the version is a delete marker, which has no content and no attributes
	Size        int64
	ETag        string // without quotes
	CRC64       uint64 // CRC-64/NVME of the whole content; always set, unless NoCRC64 is true
	NoCRC64     bool   // whether CRC64 is unknown, because another S3 server has the object and names no CRC-64/NVME
	Modified    time.Time
	// Parts lists the parts of a multipart object in order, as the upload was completed. Parts is nil if the object
	// was not made by a multipart upload.
	Parts []PartInfo
	// Part is the part that Detailed asked for, if an upstream names its place and does not list all parts.
	Part *PartRange
	// Attributes holds the values of the S3 front end, such as headers, user metadata, tags, checksums and
	// retention, by name. The store does not interpret Attributes.
	Attributes map[string]string
	// Stored is the length of the content in the store, if the content is encrypted; otherwise it is 0. The ranges of
	// Content.Section are ranges of the stored bytes, unless an Encrypter opened the content.
	Stored int64
}

// Versioned reports whether the version has an identifier other than NullVersion.
func (i *Info) Versioned() bool { return i.Version != "" && i.Version != NullVersion }

// Condition is a precondition of a change: each field that is set is a requirement on the key's current version.
// The store checks the condition and makes the change in one atomic step. The zero Condition is always true.
type Condition struct {
	// IfMatch is the required ETag; "*" allows any ETag. If IfMatch is set, the change fails with ErrNoSuchKey if there
	// is no object, and with ErrPrecondition if the object has another ETag.
	IfMatch string
	// IfNoneMatch is an ETag that the object must not have; "*" means that there must be no object. For IfNoneMatch, a
	// delete marker counts as no object. If IfNoneMatch is not met, the change fails with ErrPrecondition.
	IfNoneMatch string
	IfSize      *int64
	IfModified  *time.Time // required time of the last modification; fractions of a second are ignored
}

// Put is a request to write an object.
type Put struct {
	Bucket, Key string
	// Size is the exact length of Body in bytes, or -1 if the length is not known. Put fails with ErrIncompleteBody
	// if Body is shorter or longer than Size.
	Size int64
	Body io.Reader
	// Attributes are the attributes of the new version. The store keeps no reference to the map Attributes.
	Attributes map[string]string
	Condition  Condition
	// If MD5 is true, the store sets Written.MD5, even if the bucket's ETags are no MD5s.
	MD5 bool
	// SumAlgorithm is the algorithm of the checksum that Finish returns, such as "CRC32C"; "" means CRC64NVME. A store on
	// another S3 server announces it before it sends the content.
	SumAlgorithm string
	// Finish, if not nil, is called once after the last byte of Body and before the object is visible. The store
	// adds the attributes that Finish returns to the new version. If Finish returns an error, nothing is stored and
	// Put returns that error unchanged.
	Finish func(Written) (map[string]string, error)
	// Judge, if not nil, decides whether the store makes the change.
	Judge Judge
	// Plain, if not nil, means that Body is encrypted. The store calls Plain once after the last byte of Body. Plain
	// describes the content before its encryption: its size, its CRC-64/NVME and the 16 bytes of its MD5 ETag. Info.Size,
	// Info.CRC64 and the ETag of the new version, and the argument of Finish, are those of Plain. Size is the length of
	// the encrypted Body.
	Plain func() Written
	// Origin, if not nil, makes the new version a copy of a version of another S3 server.
	Origin *Origin
}

// Written describes the content of an object or a part after its last byte was received.
type Written struct {
	Size  int64
	CRC64 uint64
	MD5   []byte // nil if the store did not compute the MD5
}

// Deletion is a request to delete an object or one version of it.
type Deletion struct {
	Ref
	Condition Condition
	// Judge, if not nil, decides whether the store makes the deletion.
	Judge Judge
	// Bypass lets an upstream delete a version that has a retention in the mode GOVERNANCE. The store on disk asks the
	// Judge instead.
	Bypass bool
	// Origin, if not nil, makes the delete marker that Delete adds a copy of a delete marker of another S3 server. Origin
	// has no effect on the deletion of a version by its identifier.
	Origin *Origin
}

// Deleted is the result of a deletion.
type Deleted struct {
	// Version is the identifier of the removed version or of the added delete marker. Version is empty if the
	// bucket has never had versioning enabled.
	Version string
	Marker  bool // whether Version identifies a delete marker, added or removed
	Existed bool // whether the deleted object or version existed
}

// List is a request for one page of a bucket's objects, in byte order of the keys.
type List struct {
	Bucket string
	Prefix string
	// If keys contain Delimiter after Prefix, the page lists only their common prefix up to and including Delimiter.
	// Delimiter may have any length.
	Delimiter string
	// The page begins after the key or common prefix that the field After names. A common prefix is listed if at least
	// one of its keys sorts after the value of After, unless the common prefix equals that value.
	After string
	// If Versions is true, the page begins after the version AfterVersion of the key that the field After names. If
	// AfterVersion is empty, the page begins after all versions of the key in the field After.
	AfterVersion string
	Limit        int  // largest number of objects and common prefixes together, 1 to 1000; 0 means 1000
	Versions     bool // whether to list all versions and delete markers, newest first within a key
	Attributes   bool // whether to set Info.Attributes and Info.Parts, which makes the listing slower
}

// Page is the result of a List. Objects and Prefixes are each in byte order, so that a caller can merge the two
// lists.
type Page struct {
	Objects   []Info
	Prefixes  []string
	Truncated bool
	// If Truncated is true, Next and NextVersion are the values of List.After and List.AfterVersion for the next
	// page.
	Next, NextVersion string
}

// Upload describes a multipart upload in progress.
type Upload struct {
	Bucket, Key, ID string
	Started         time.Time
	Attributes      map[string]string // attributes of the object that CompleteUpload will make
	// Forgotten means that an upstream has the upload and does not tell which checksum the client chose. Checksums of
	// parts cannot be compared then.
	Forgotten bool
	// NoSums means that an upstream has the upload and does not keep checksums of its parts.
	NoSums bool
}

// PartInfo describes one part of a multipart upload or a multipart object.
type PartInfo struct {
	Number   int
	Size     int64
	ETag     string // ETag of the part without quotes, computed by the bucket's ETagKind
	CRC64    uint64
	Modified time.Time
	// Attributes holds values of the S3 front end, such as the checksum of the part, by name.
	Attributes map[string]string
}

// PutPart is a request to write one part of a multipart upload. The fields Size, Body, MD5 and Finish of PutPart
// mean the same as in Put. A new part replaces the stored part with the same number only when the new part is
// complete.
type PutPart struct {
	Bucket, Key, Upload string
	Number              int // 1 to MaxParts
	Size                int64
	Body                io.Reader
	MD5                 bool
	Finish              func(Written) (map[string]string, error)
	// Plain means the same as in Put. The attributes that Finish returns must then have AttrSealedPart.
	Plain func() Written
}

// CompletedPart identifies one part in the request that completes a multipart upload.
type CompletedPart struct {
	Number int
	ETag   string // required ETag without quotes; empty allows any ETag
}

// Complete is a request to make an object from the parts of a multipart upload.
type Complete struct {
	Bucket, Key, Upload string
	// Parts lists the parts of the object by ascending number. The request fails with ErrPartOrder if the part numbers
	// do not ascend, and with ErrInvalidPart if a part was not uploaded or has another ETag.
	Parts []CompletedPart
	// MinPart is the smallest allowed size in bytes of every part except the last. If a part other than the last is
	// smaller than MinPart, the request fails with ErrPartTooSmall.
	MinPart   int64
	Condition Condition
	// Finish, if not nil, is called with the parts in order, before the object is visible. The attributes and the
	// error that Finish returns have the same effect as in Put.
	Finish func([]PartInfo) (map[string]string, error)
	// Judge, if not nil, decides whether the store makes the change.
	Judge Judge
	// Origin, if not nil, makes the new version a copy of a version of another S3 server.
	Origin *Origin
}

// Copy is a request to make an object with the content of another object.
type Copy struct {
	From Ref
	// FromCondition is a condition on the source version.
	FromCondition Condition
	Bucket, Key   string
	// Attributes are the attributes of the new version. If Attributes is nil, the new version gets the attributes
	// of the source.
	Attributes map[string]string
	Condition  Condition
	// Judge, if not nil, decides whether the store makes the change.
	Judge Judge
}

// CopyPart is a request to make one part of a multipart upload from N bytes of an object, beginning at byte Off. If
// N is -1, the range reaches to the end of the object.
type CopyPart struct {
	From                Ref
	Off, N              int64
	Bucket, Key, Upload string
	Number              int
	// The field Finish of CopyPart has the same meaning as in PutPart. If Finish is not nil, the copied bytes pass
	// through the server's memory. For a CopyPart, the store sets Written.MD5 only if the bucket's ETags are MD5s.
	Finish func(Written) (map[string]string, error)
}

// Range is a range of an object's content: N bytes, beginning at byte Off.
type Range struct{ Off, N int64 }

// UploadList is a request for one page of the multipart uploads in progress, ordered by key and then by upload
// identifier.
type UploadList struct {
	Bucket, Prefix, Delimiter string
	// The page begins after the upload with the key AfterKey and the identifier AfterID. If AfterID is empty, the page
	// begins after all uploads of the key AfterKey.
	AfterKey, AfterID string
	Limit             int
}

// UploadPage is the result of an UploadList.
type UploadPage struct {
	Uploads         []Upload
	Prefixes        []string
	Truncated       bool
	NextKey, NextID string
}

// DamageDeclared and DamageRecord are values of Damage.What.
const (
	// DamageDeclared means that the content differs from the checksums that a client of the door supplied when it wrote
	// the content. The server cannot distinguish wrong checksums of a client from content that was damaged later.
	DamageDeclared = "declared"
	// DamageRecord means that the record of the object in the metadata cannot be read.
	DamageRecord = "record"
)

// Damage describes stored content that differs from the content that was written.
type Damage struct {
	Ref
	File string    // path of the data file; empty if the content is stored with the metadata
	Off  int64     // offset of the damaged block in the content, in bytes
	N    int64     // length of the damaged block in bytes
	What string    // kind of damage: "checksum", "missing", "short", "unreadable", DamageDeclared or DamageRecord
	Time time.Time // time at which the damage was found
}
