// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"os"
)

// This file is for doors, which hand out files instead of bytes. A client reads and writes the files itself, so that
// the server's CPU never touches the bytes.

// Handles is a store whose content can be handed out as files.
type Handles interface {
	// Handle opens the content of an object in order to hand it out. The errors are those of Open. The caller closes the
	// handle when no client uses the content any more.
	Handle(ctx context.Context, ref Ref) (Handle, error)
	// NewDraft begins an object whose bytes a client will write. It fails with ErrNoSuchBucket, with ErrNoSpace, or with
	// kind Unsupported if the file system of the store, such as overlayfs, cannot tell whether a file still has writers.
	NewDraft(ctx context.Context, d Draft) (Drafting, error)
}

// Handle is the content of one version that is handed out. While it is open, the version's file keeps its bytes and its
// name, even if the object is deleted. Its space counts as held. All methods are safe for concurrent use.
type Handle interface {
	// Info describes the version.
	Info() Info
	// Inline returns the verified content if it is stored with the metadata, and false if it is stored in a file.
	Inline() ([]byte, bool)
	// Sums returns the CRC-64/NVME of at most n blocks, from block first on. Block i begins at byte i*SumBlock. The slice
	// may be shared and must not be changed.
	Sums(first, n int64) ([]uint64, error)
	// Open opens the file for reading, with O_DIRECT if direct is true. Each call returns a new open file description,
	// whose flags the receiver may change. Inline content is first copied to a file that lives as long as the handle.
	// Open fails with kind Unsupported if the file system has no O_DIRECT. The caller closes the file.
	Open(direct bool) (*os.File, error)
	// Path returns the present name of the file, for messages. It is empty while the content is inline.
	Path() string
	// Close closes the handle. A second call does nothing.
	Close() error
}

// SumBlock is the size in bytes of a block with a checksum of its own. The last block of an object may be shorter.
const SumBlock = 1 << 20

// Draft is a request to write an object through open files.
type Draft struct {
	Bucket, Key string
	// Size is the largest size of the object in bytes. The store reserves that much space.
	Size int64
	// Attributes of the new version; the store keeps no reference.
	Attributes map[string]string
	// Condition is judged when the draft is committed.
	Condition Condition
	// Judge, if not nil, decides on the change when the draft is committed.
	Judge Judge
}

// Drafting is an object that a client is writing. Nothing of it is visible before Commit, and a crash or Abort leaves
// no trace. Reserved, Abort and Remains are safe for concurrent use. One goroutine at a time may call the other
// methods.
type Drafting interface {
	// Open opens the file for writing only, with O_DIRECT if direct is true. The file has a name, because cuFile refuses
	// files without one. The caller sends the file to the client, and closes its own copy.
	Open(direct bool) (*os.File, error)
	// Reserved returns the bytes on disk that the draft takes now. A client can write more than it announced.
	Reserved() int64
	// Path returns the name of the file, for messages.
	Path() string
	// Commit publishes the first d.Size bytes of the file. When it returns nil, the object is durable and visible.
	//
	// Commit fails with ErrWriterLeft while anything can still write to the file: an open file, a descriptor in flight or
	// a shared mapping. It fails with ErrInvalidSums if the file is shorter than Size, if the checksums do not combine to
	// d.CRC64, or if there are too many or too few. Both errors leave the draft as it was. Any other error ends the draft
	// without a trace.
	Commit(ctx context.Context, d Sealed) (Info, error)
	// Abort removes the file. It may be called at any time and more than once. After a successful Commit it does nothing.
	Abort() error
	// Remains reports, after Abort, whether a client can still write to the removed file. It frees what was written since.
	// The caller calls it until it returns false, because nothing else bounds the space of such a file.
	Remains() bool
}

// Sealed describes the content that a client has written. The store does not read the content at Commit. Scrubs and
// readers compare it with these checksums later.
type Sealed struct {
	Size  int64
	CRC64 uint64   // of the whole content
	Sums  []uint64 // of its blocks of SumBlock bytes
}

// Action is what a request wants of an object or a bucket.
type Action string

// The actions that doors ask for, by their names in policies.
const (
	ActionGet        Action = "s3:GetObject"
	ActionGetVersion Action = "s3:GetObjectVersion"
	ActionPut        Action = "s3:PutObject"
	ActionList       Action = "s3:ListBucket"
)

// Access is a request as policies see it.
type Access struct {
	Account string // access key, already proved
	Action  Action
	Bucket  string
	Key     string // with ActionList: the prefix that is listed, for policies that speak of it
	Version string
	// Delimiter and Limit, with ActionList, are those of the listing, for policies that speak of them; 0 and empty where
	// none was asked for.
	Delimiter string
	Limit     int
}

// Description is what a client says of a new object.
type Description struct {
	ContentType string
	// Metadata are the user's own names and values (x-amz-meta-…, without the prefix).
	Metadata map[string]string
}

// Authorizer judges requests of doors by the rules of the front end: roles, bucket owner, ACL and policy. The front end
// implements it.
type Authorizer interface {
	// Authorize returns nil if the request is allowed. Otherwise it returns an error of kind Permission that says what is
	// not allowed, or ErrNoSuchBucket.
	Authorize(ctx context.Context, a Access) error
	// Describe returns the attributes of an object that is written through a door: those of a PUT with the same
	// description. It fails with kind Invalid if S3 would refuse the description.
	Describe(ctx context.Context, bucket string, d Description) (map[string]string, error)
	// JudgeWrite returns the Judge for writes through a door. It refuses to replace locked versions, and adds the bucket's
	// default retention.
	JudgeWrite() Judge
}
