// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"io"
)

// Store is a whole object store: one on disk, or a model of it for tests. Code that needs less uses one of its parts.
type Store interface {
	Buckets
	Objects
	Lister
	Uploads
	Records
	// Close waits for operations in progress and closes the store. It is called once.
	Close() error
}

// Buckets keeps the buckets and their settings.
type Buckets interface {
	// CreateBucket creates a bucket with these settings. If Created is zero, the store sets it. It fails with
	// ErrBucketExists.
	CreateBucket(ctx context.Context, b Bucket) error
	// Bucket returns the settings of a bucket, without I/O. They are shared and must not be changed. It fails with
	// ErrNoSuchBucket.
	Bucket(ctx context.Context, name string) (*Bucket, error)
	// UpdateBucket changes the settings of a bucket. change gets a copy and changes it; the result becomes durable and
	// visible in one step. Name and Created stay. An error of change is returned and changes nothing. UpdateBucket fails
	// with ErrNoSuchBucket.
	UpdateBucket(ctx context.Context, name string, change func(*Bucket) error) error
	// DeleteBucket removes an empty bucket and aborts its uploads in progress. It fails with ErrNoSuchBucket, and with
	// ErrBucketNotEmpty if the bucket has any version or delete marker.
	DeleteBucket(ctx context.Context, name string) error
	// ListBuckets returns all buckets in the order of their names.
	ListBuckets(ctx context.Context) ([]Bucket, error)
}

// Objects writes, reads and deletes objects. Each method fails with ErrNoSuchBucket if the bucket does not exist.
type Objects interface {
	// Put writes an object. When it returns, the object is durable and visible, or neither.
	Put(ctx context.Context, p Put) (Info, error)
	// Stat describes an object. It fails with ErrNoSuchKey and ErrNoSuchVersion. If the current version is a delete
	// marker, the error is ErrNoSuchKey, and the Info has Marker, Version and Modified. If ref names the version of a
	// delete marker, the error is nil and Marker is set.
	Stat(ctx context.Context, ref Ref) (Info, error)
	// Open opens the content of an object for reading. The errors are those of Stat and ErrDamaged. If ref names the
	// version of a delete marker, the error is ErrIsMarker. Open content keeps its bytes, even if the object is deleted.
	Open(ctx context.Context, ref Ref) (Content, error)
	// Delete deletes an object or a version, by the versioning of the bucket. If the object or the version does not exist,
	// Existed is false and the error nil. The condition is that of Put, with ErrNoSuchKey and ErrPrecondition.
	Delete(ctx context.Context, d Deletion) (Deleted, error)
	// DeleteMany deletes several objects of one bucket, in one durable step if possible. Results and errors are in the
	// order of the deletions. A deletion that fails does not affect the others.
	DeleteMany(ctx context.Context, bucket string, ds []Deletion) ([]Deleted, []error)
	// Copy makes an object of the content of another one. If the file system allows it, the bytes do not pass through
	// memory. An object may be copied onto itself with new attributes.
	Copy(ctx context.Context, c Copy) (Info, error)
	// SetAttributes changes the attributes of a version in place. change gets a copy and changes it. An error of change is
	// returned and changes nothing. The version keeps its identifier, ETag and time of modification.
	SetAttributes(ctx context.Context, ref Ref, change func(map[string]string) error) error
}

// Content is the content of one version, open for reading. All methods are safe for concurrent use.
type Content interface {
	// Info describes the version that was opened.
	Info() Info
	// Section returns a reader of a range, which has to lie within the content.
	Section(r Range) (Body, error)
	// Close closes the content. Bodies that are still open keep it.
	Close() error
}

// Body is a range of content on its way to a reader. It is for one goroutine.
//
// The store's policy decides when bytes are compared with the checksums of their blocks. A mismatch ends the read with
// an error that wraps ErrDamaged, before any byte of the damaged block is returned.
type Body interface {
	io.ReadCloser
	// WriterTo writes the remaining bytes. If w is a socket, or a buffer before one, and the bytes need no check, they go
	// by sendfile.
	io.WriterTo
	// Len returns the number of remaining bytes.
	Len() int64
}

// Verifier is a Body that can check its first block in advance. Verify returns the error that the first read would
// return, ErrDamaged for one. It costs nothing beyond that read.
type Verifier interface{ Verify() error }

// Stricter is a Content that can compare every block with its checksum, regardless of the store's policy. Code that
// computes a new checksum of the bytes needs it: otherwise damaged bytes would get a checksum that matches them.
type Stricter interface {
	// Strict returns a Section of which every block is compared.
	Strict(r Range) (Body, error)
}

// Lister lists the objects of a bucket.
type Lister interface {
	// List returns one page. Its cost depends on the page alone, not on the rest of the bucket.
	List(ctx context.Context, l List) (Page, error)
}

// Uploads keeps multipart uploads. Each method fails with ErrNoSuchBucket, and with ErrNoSuchUpload if the upload does
// not exist or belongs to another key.
type Uploads interface {
	// CreateUpload begins an upload and returns its identifier.
	CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error)
	// GetUpload describes an upload.
	GetUpload(ctx context.Context, bucket, key, id string) (Upload, error)
	// PutPart writes one part, durably.
	PutPart(ctx context.Context, p PutPart) (PartInfo, error)
	// CopyPart makes one part of a range of an object. It fails with ErrInvalidRange if the object does not have the
	// range.
	CopyPart(ctx context.Context, c CopyPart) (PartInfo, error)
	// ListParts returns up to limit parts with numbers above after, in order, and whether there are more.
	ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]PartInfo, bool, error)
	// CompleteUpload makes an object of the parts. If all parts have the same size and none is left out, its cost does not
	// depend on their bytes.
	CompleteUpload(ctx context.Context, c Complete) (Info, error)
	// AbortUpload ends an upload and frees its space.
	AbortUpload(ctx context.Context, bucket, key, id string) error
	// ListUploads returns one page of the uploads in progress.
	ListUploads(ctx context.Context, l UploadList) (UploadPage, error)
}

// Records keeps small documents of other packages, such as accounts, as durably as objects. Kinds and names are not
// empty. A value has at most 1 MiB.
type Records interface {
	// PutRecord writes a record.
	PutRecord(ctx context.Context, kind, name string, value []byte) error
	// Record reads a record. It fails with ErrNoSuchRecord.
	Record(ctx context.Context, kind, name string) ([]byte, error)
	// DeleteRecord removes a record. It fails with ErrNoSuchRecord.
	DeleteRecord(ctx context.Context, kind, name string) error
	// RecordNames lists the names of a kind in order.
	RecordNames(ctx context.Context, kind string) ([]string, error)
}
