// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"io"
)

// Store is everything that a store on disk, or a model of one, does. Those who
// need less ask for one of its roles.
type Store interface {
	Buckets
	Objects
	Lister
	Uploads
	Records
	// Close waits for what is under way, and lets go of the store. It is called once.
	Close() error
}

// Buckets keeps the buckets and their settings.
type Buckets interface {
	// CreateBucket makes a bucket with these settings; Created is set by the store where it is zero.
	// ErrBucketExists where one of that name exists.
	CreateBucket(ctx context.Context, b Bucket) error
	// Bucket returns a bucket's settings without I/O; they are shared and must not be changed. ErrNoSuchBucket.
	Bucket(ctx context.Context, name string) (*Bucket, error)
	// UpdateBucket changes settings: change gets a copy of its own, and what it leaves there becomes durable
	// and visible at once; an error of change is returned and changes nothing. Name and Created stay. ErrNoSuchBucket.
	UpdateBucket(ctx context.Context, name string, change func(*Bucket) error) error
	// DeleteBucket removes an empty bucket; uploads in progress are aborted. ErrNoSuchBucket, ErrBucketNotEmpty
	// (versions and delete markers count).
	DeleteBucket(ctx context.Context, name string) error
	// ListBuckets returns all buckets in the order of their names.
	ListBuckets(ctx context.Context) ([]Bucket, error)
}

// Objects writes, reads and deletes objects. Each returns ErrNoSuchBucket where the bucket does not exist.
type Objects interface {
	// Put writes an object. When it returns, the object is durable and visible, or neither.
	Put(ctx context.Context, p Put) (Info, error)
	// Stat describes an object. ErrNoSuchKey (also where the current version is a delete marker; the Info
	// then has Marker, Version and Modified), ErrNoSuchVersion. A version that is a delete marker is
	// returned with Marker set and a nil error.
	Stat(ctx context.Context, ref Ref) (Info, error)
	// Open opens the content of an object for reading; the errors are Stat's, and ErrDamaged. A delete marker that
	// is named by its version is ErrIsMarker. What is opened keeps its bytes, whatever happens to the key.
	Open(ctx context.Context, ref Ref) (Content, error)
	// Delete deletes as the bucket's versioning says; deleting what does not exist is no error (Existed is false),
	// neither is naming a version that does not exist. Condition: as in Put; ErrNoSuchKey, ErrPrecondition.
	Delete(ctx context.Context, d Deletion) (Deleted, error)
	// DeleteMany deletes several objects of one bucket in one durable step where it can; results and errors are in
	// the order of the deletions, and one that fails does not keep the others.
	DeleteMany(ctx context.Context, bucket string, ds []Deletion) ([]Deleted, []error)
	// Copy makes an object of another one's content without moving the bytes through memory where the file
	// system allows it. Copying an object onto itself with new attributes is allowed.
	Copy(ctx context.Context, c Copy) (Info, error)
	// SetAttributes changes the attributes of a version in place: change gets a copy; an error of it is returned and
	// changes nothing. The version keeps its identifier, ETag and time of modification.
	SetAttributes(ctx context.Context, ref Ref, change func(map[string]string) error) error
}

// Content is the content of one version, open for reading. Its methods may be
// called from many goroutines at once.
type Content interface {
	// Info describes the version that was opened.
	Info() Info
	// Section returns a reader of a range, which has to lie within the content.
	Section(r Range) (Body, error)
	// Close lets go of the content; bodies that are still open keep it.
	Close() error
}

// Body is a range of content on its way to a reader. It is for one goroutine.
//
// Bytes are checked against the block checksums as the store's policy says. A
// mismatch ends the reading with an error that wraps ErrDamaged, before any
// byte of the damaged block was handed out.
type Body interface {
	io.ReadCloser
	// WriterTo moves what is left. Where w is, or buffers for, a socket, the bytes go by sendfile when they need not be looked at.
	io.WriterTo
	// Len is how many bytes are left.
	Len() int64
}

// Verifier is a Body that can look at its first block ahead: Verify returns the error, of ErrDamaged say, that the first read
// would return. It costs nothing beyond that read.
type Verifier interface{ Verify() error }

// Stricter is a Content that can compare every block with its sum, whatever the store's policy and whatever was compared
// before. Whoever makes a new checksum of the bytes needs it: else damage would get a checksum that is right.
type Stricter interface {
	// Strict is Section with every block compared.
	Strict(r Range) (Body, error)
}

// Lister lists the objects of a bucket.
type Lister interface {
	// List returns one page. The cost depends on what is on the page and not on what else is in the bucket.
	List(ctx context.Context, l List) (Page, error)
}

// Uploads keeps multipart uploads. Each returns ErrNoSuchBucket, and ErrNoSuchUpload where the upload does not
// exist or is of another key.
type Uploads interface {
	// CreateUpload begins an upload and returns its identifier.
	CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error)
	// GetUpload describes one.
	GetUpload(ctx context.Context, bucket, key, id string) (Upload, error)
	// PutPart writes one part, durable when it returns.
	PutPart(ctx context.Context, p PutPart) (PartInfo, error)
	// CopyPart makes one part of a range of an object. ErrInvalidRange where the range does not lie within it.
	CopyPart(ctx context.Context, c CopyPart) (PartInfo, error)
	// ListParts returns up to limit parts with numbers above after, in order, and whether there are more.
	ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]PartInfo, bool, error)
	// CompleteUpload makes the object; its cost does not depend on the bytes where the parts are of equal size and none is left out.
	CompleteUpload(ctx context.Context, c Complete) (Info, error)
	// AbortUpload ends an upload and gives back its space.
	AbortUpload(ctx context.Context, bucket, key, id string) error
	// ListUploads returns one page of the uploads in progress.
	ListUploads(ctx context.Context, l UploadList) (UploadPage, error)
}

// Records keeps small documents of others (accounts, for one) with the same
// durability. Kinds and names are non-empty; a value has at most 1 MiB.
type Records interface {
	// PutRecord writes a record.
	PutRecord(ctx context.Context, kind, name string, value []byte) error
	// Record reads one; ErrNoSuchRecord.
	Record(ctx context.Context, kind, name string) ([]byte, error)
	// DeleteRecord removes one; ErrNoSuchRecord.
	DeleteRecord(ctx context.Context, kind, name string) error
	// RecordNames lists the names of a kind in order.
	RecordNames(ctx context.Context, kind string) ([]string, error)
}
