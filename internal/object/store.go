// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"io"
)

// Store is a complete object store: the store on disk, or a model of it for tests. Code that needs only some
// methods accepts one of the smaller interfaces, such as Objects.
type Store interface {
	Buckets
	Objects
	Lister
	Uploads
	Records
	// Close waits for operations in progress and closes the store. The caller calls Close once.
	Close() error
}

// Buckets creates, changes, lists and deletes buckets with their settings.
type Buckets interface {
	// CreateBucket creates a bucket with the settings b. If b.Created is zero, the store sets it to the current
	// time. CreateBucket fails with ErrBucketExists if the bucket exists.
	CreateBucket(ctx context.Context, b Bucket) error
	// Bucket returns the settings of a bucket, without I/O. The caller must not change the returned settings,
	// because they are shared. Bucket fails with ErrNoSuchBucket if the bucket does not exist.
	Bucket(ctx context.Context, name string) (*Bucket, error)
	// UpdateBucket changes the settings of a bucket. The function change edits a copy of the settings, which then
	// becomes durable and visible in one step. UpdateBucket keeps the values of Name and Created. If the function
	// change returns an error, the bucket stays as it is and UpdateBucket returns that error. UpdateBucket fails with
	// ErrNoSuchBucket if the bucket does not exist.
	UpdateBucket(ctx context.Context, name string, change func(*Bucket) error) error
	// DeleteBucket removes an empty bucket and aborts its multipart uploads in progress. DeleteBucket fails with
	// ErrNoSuchBucket if the bucket does not exist, and with ErrBucketNotEmpty if the bucket has any version or
	// delete marker.
	DeleteBucket(ctx context.Context, name string) error
	// ListBuckets returns all buckets, ordered by name.
	ListBuckets(ctx context.Context) ([]Bucket, error)
}

// Objects writes, reads and deletes objects. Each method of Objects fails with ErrNoSuchBucket if the bucket does
// not exist.
type Objects interface {
	// Put writes an object. If Put succeeds, the object is durable and visible; if Put fails, the object is
	// neither.
	Put(ctx context.Context, p Put) (Info, error)
	// Stat describes an object. Stat fails with ErrNoSuchKey if the key has no object, and with ErrNoSuchVersion if
	// the object does not have the version. If the current version is a delete marker, Stat returns ErrNoSuchKey
	// and sets Marker, Version and Modified in the Info. If ref.Version identifies a delete marker, Stat succeeds
	// and sets Marker.
	Stat(ctx context.Context, ref Ref) (Info, error)
	// Open opens the content of an object for reading. Open fails with the errors of Stat, with ErrDamaged, and
	// with ErrIsMarker if ref.Version identifies a delete marker. Opened content stays readable and unchanged until
	// it is closed, even if the object is deleted.
	Open(ctx context.Context, ref Ref) (Content, error)
	// Delete deletes an object or one version, as the bucket's versioning state requires. If the object or version
	// does not exist, Delete succeeds with Deleted.Existed false. If d.Condition is not met, Delete fails with
	// ErrNoSuchKey or ErrPrecondition, as Put does.
	Delete(ctx context.Context, d Deletion) (Deleted, error)
	// DeleteMany deletes several objects of one bucket, in one durable step if possible. The results and the errors of
	// DeleteMany have the same order as the deletions ds. In DeleteMany, a failed deletion does not affect the other
	// deletions.
	DeleteMany(ctx context.Context, bucket string, ds []Deletion) ([]Deleted, []error)
	// Copy makes an object with the content of another object. If the file system can copy file ranges itself, the
	// copied bytes do not pass through the server's memory. An object may be copied onto itself with new
	// attributes.
	Copy(ctx context.Context, c Copy) (Info, error)
	// SetAttributes changes the attributes of a version in place. The parameter `change` edits a copy of the attributes,
	// which the store then saves. If `change` returns an error, the attributes stay as they are and
	// SetAttributes returns that error. SetAttributes does not change the version's identifier, ETag and time of
	// modification.
	SetAttributes(ctx context.Context, ref Ref, change func(map[string]string) error) error
}

// Content is the content of one object version, open for reading. All methods of Content are safe for concurrent
// use.
type Content interface {
	// Info describes the version that was opened.
	Info() Info
	// Section returns a reader of the range r, which must lie within the content.
	Section(r Range) (Body, error)
	// Close closes the content. A Body that is still open stays readable until the Body itself is closed.
	Close() error
}

// Body reads a range of an object's content. Only one goroutine at a time may use a Body.
//
// The store's setting verify_reads decides when a Body compares blocks with their checksums. If a block does not match
// its checksum, the read ends with an error that wraps ErrDamaged, before any byte of the block is returned.
type Body interface {
	io.ReadCloser
	// WriterTo writes the remaining bytes. If the writer is a socket or a buffer in front of one, and the bytes
	// need no check, the bytes go by sendfile.
	io.WriterTo
	// Len returns the number of bytes that are still to be read.
	Len() int64
}

// Verifier is a Body that can check its first block in advance. Verify returns the error that the first Read of the
// Body would return, such as ErrDamaged. A call of Verify costs no extra read, because a block that Verify has compared
// is not compared again.
type Verifier interface{ Verify() error }

// Stricter is a Content that can compare every block with its checksum, regardless of the setting verify_reads.
// Code that computes a new checksum of stored bytes must use Strict: otherwise damaged bytes would get a checksum
// that matches them.
type Stricter interface {
	// Strict returns a Body for the range r that compares every block with its checksum.
	Strict(r Range) (Body, error)
}

// Lister lists the objects of a bucket.
type Lister interface {
	// List returns one page of a listing. The cost of List depends only on the page, not on the size of the bucket.
	List(ctx context.Context, l List) (Page, error)
}

// Uploads manages multipart uploads. Each method of Uploads fails with ErrNoSuchBucket if the bucket does not
// exist, and with ErrNoSuchUpload if the upload does not exist or belongs to another key.
type Uploads interface {
	// CreateUpload begins a multipart upload and returns its identifier.
	CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error)
	// GetUpload describes a multipart upload.
	GetUpload(ctx context.Context, bucket, key, id string) (Upload, error)
	// PutPart writes one part of a multipart upload durably.
	PutPart(ctx context.Context, p PutPart) (PartInfo, error)
	// CopyPart makes one part of a multipart upload from a range of an object. CopyPart fails with ErrInvalidRange
	// if the range does not lie within the object.
	CopyPart(ctx context.Context, c CopyPart) (PartInfo, error)
	// ListParts returns parts with numbers above the parameter after, in order and at most `limit` parts, and reports
	// whether more parts follow.
	ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]PartInfo, bool, error)
	// CompleteUpload makes an object from parts of a multipart upload. If all parts have the same size and the
	// object uses all of them, CompleteUpload copies no content.
	CompleteUpload(ctx context.Context, c Complete) (Info, error)
	// AbortUpload ends a multipart upload and frees its space.
	AbortUpload(ctx context.Context, bucket, key, id string) error
	// ListUploads returns one page of the multipart uploads in progress.
	ListUploads(ctx context.Context, l UploadList) (UploadPage, error)
}

// Records stores small documents of other packages, such as accounts, as durably as objects. The kind and the name
// of a record must not be empty. The value of a record has at most 1 MiB.
type Records interface {
	// PutRecord writes a record, and replaces the record of the same kind and name.
	PutRecord(ctx context.Context, kind, name string, value []byte) error
	// Record reads a record. Record fails with ErrNoSuchRecord if the record does not exist.
	Record(ctx context.Context, kind, name string) ([]byte, error)
	// DeleteRecord removes a record. DeleteRecord fails with ErrNoSuchRecord if the record does not exist.
	DeleteRecord(ctx context.Context, kind, name string) error
	// RecordNames lists the names of all records of a kind, in order.
	RecordNames(ctx context.Context, kind string) ([]string, error)
}
